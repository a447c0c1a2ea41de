/* test-few-descriptors.c - programs that are started with few descriptors, or without the standard
 * ones, without threads, or with files that may not grow. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/base/check.h"
#include "tests/integ/life_case.h"

#define N_FEW 4u

/* ---- clients without descriptors ---- */

static struct rlimit own_limit;

/* Leave so many descriptors free in this process. */
static void leave_free(uint32_t n_free)
{
    int next = dup(STDIN_FILENO);
    assert_true(next >= 0);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &own_limit), 0);
    const struct rlimit low = {.rlim_cur = (rlim_t)next + n_free, .rlim_max = own_limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
}

static void free_all(void)
{
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &own_limit), 0);
}

/* However few there are, a program is told, and not ended. */
static void test_opening_with_few_descriptors(void **state)
{
    struct life *life = *state;
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    int r = GEMMD_OK;
    options.socket_dir = life->fixture.socket_dir;
    fixture_start(&life->fixture, &life->options);
    for (uint32_t n_free = 0; n_free < 16; n_free++) {
        gemmd_client_t *client = NULL;
        leave_free(n_free);
        r = gemmd_open(&options, &client);
        free_all();
        assert_true(r == GEMMD_BUSY || (r == GEMMD_OK && n_free >= 8));
        gemmd_close(client);
    }
    assert_int_equal(r, GEMMD_OK);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

/* Nor is it while it looks for the next daemon, which it finds once there are some again. The few
 * that are held from the start are the lowest numbers, and all that a limit behind them leaves,
 * whatever else the client gives back. */
static void reconnect(struct life *life, enum gemmd_path path)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    struct product product;
    gemmd_client_t *client;
    int few[N_FEW];
    options.socket_dir = life->fixture.socket_dir;
    options.path = path;
    fixture_start(&life->fixture, &life->options);
    for (uint32_t i = 0; i < N_FEW; i++) {
        few[i] = dup(STDIN_FILENO);
        assert_true(few[i] >= 0);
    }
    int session_fd = dup(STDIN_FILENO); /* the number that the client takes first, and keeps */
    (void)close(session_fd);
    assert_int_equal(gemmd_open(&options, &client), GEMMD_OK);
    assert_true(
        product_init(&product, client, "tiny", &life->model.weights[TEST_INT4], &life_shape));
    assert_true(product_run(&product, client));
    fixture_kill(&life->fixture);
    fixture_start(&life->fixture, &life->options);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &own_limit), 0);
    const struct rlimit low = {.rlim_cur = (rlim_t)session_fd + 1, .rlim_max = own_limit.rlim_max};
    for (uint32_t i = 0; i < N_FEW; i++) {
        (void)close(few[i]);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    product.gemm.timeout_usec = 300000;
    int r = gemmd_gemm(client, &product.gemm);
    free_all();
    assert_int_equal(r, GEMMD_TIMEOUT);
    product.gemm.timeout_usec = 0;
    product_clear(&product);
    assert_true(product_run(&product, client));
    assert_true(product_is_right(&product));
    product_finish(&product);
    gemmd_close(client);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

static void test_reconnecting_with_few_descriptors(void **state)
{
    reconnect(*state, GEMMD_PATH_RING);
    reconnect(*state, GEMMD_PATH_ZEROMQ);
}

/* ---- clients without threads ---- */

/* From now on no thread can be started here: no stack is so large. */
static void forbid_threads(size_t *ret_stack_bytes)
{
    pthread_attr_t attributes;
    assert_int_equal(pthread_getattr_default_np(&attributes), 0);
    assert_int_equal(pthread_attr_getstacksize(&attributes, ret_stack_bytes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, (size_t)1 << 50), 0);
    assert_int_equal(pthread_setattr_default_np(&attributes), 0);
    (void)pthread_attr_destroy(&attributes);
}

static void allow_threads(size_t stack_bytes)
{
    pthread_attr_t attributes;
    assert_int_equal(pthread_getattr_default_np(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, stack_bytes), 0);
    assert_int_equal(pthread_setattr_default_np(&attributes), 0);
    (void)pthread_attr_destroy(&attributes);
}

/* libzmq ends the program where it can start none ("ulimit -u", "ulimit -v"). */
static void test_opening_without_threads(void **state)
{
    struct life *life = *state;
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    gemmd_client_t *client = NULL;
    size_t stack_bytes;
    options.socket_dir = life->fixture.socket_dir;
    fixture_start(&life->fixture, &life->options);
    forbid_threads(&stack_bytes);
    int r = gemmd_open(&options, &client);
    allow_threads(stack_bytes);
    assert_int_equal(r, GEMMD_BUSY);
    assert_non_null(strstr(gemmd_last_error(), "Resource temporarily unavailable"));
    assert_int_equal(gemmd_open(&options, &client), GEMMD_OK);
    gemmd_close(client);
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

/* ---- what a shell may start it with ---- */

static void close_standard(GD_UNUSED void *arg)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        (void)close(fd);
    }
}

/* "gemmd <&- >&- 2>&-": lines of the log go nowhere, rather than into a socket. */
static void test_no_standard_descriptors(void **state)
{
    struct life *life = *state;
    life->options.in_child = close_standard;
    fixture_start(&life->fixture, &life->options);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        char path[64];
        char target[64] = "";
        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)life->fixture.pid, fd);
        assert_true(readlink(path, target, sizeof(target) - 1) > 0);
        assert_string_equal(target, "/dev/null");
    }
    assert_true(life_serves(life));
    assert_int_equal(fixture_stop(&life->fixture), 0);
}

static void limit_files(GD_UNUSED void *arg)
{
    const struct rlimit limit = {4096, 4096};
    (void)setrlimit(RLIMIT_FSIZE, &limit);
}

/* "ulimit -f": a sentence, and no core. */
static void test_files_that_may_not_grow(void **state)
{
    struct life *life = *state;
    life->options.in_child = limit_files;
    fixture_spawn(&life->fixture, &life->options);
    assert_int_equal(fixture_wait_exit(&life->fixture, FIXTURE_READY_SECONDS), EXIT_FAILED);
    assert_int_equal(fixture_logged(&life->fixture, "/stats': File too large"), 1);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, life_set_up, life_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_opening_with_few_descriptors), CASE(test_reconnecting_with_few_descriptors),
        CASE(test_opening_without_threads),      CASE(test_no_standard_descriptors),
        CASE(test_files_that_may_not_grow),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
