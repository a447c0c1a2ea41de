/* test-gpu-stream-ends.c - a stream that waits for a product goes on whatever becomes of the
 * request, of the daemon and of the GPU, and one that stalls holds up nobody else. Run with and
 * without MPS. Skipped without a GPU. The parent never uses CUDA: it forks. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/server/exit_code.h"
#include "tests/gpu/chain.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/step.h"

#define WEIGHT       "tiny/layer.int4"
#define SOON_SECONDS 5.0
#define N_IN_FLIGHT  20u

static struct fixture fixture;
static struct test_model model;
static char argument[512];

static int set_up(void **state)
{
    (void)state;
    fixture_init(&fixture);
    test_model_write(&model, &fixture.folder, "tiny", 1);
    (void)snprintf(argument, sizeof(argument), "tiny=%s", model.path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_finish(&fixture);
    test_model_finish(&model);
    return 0;
}

static void start(void)
{
    const struct fixture_options options = {.model = argument, .config = "devices = cuda:0\n"};
    fixture_start(&fixture, &options);
}

/* A chain in the best way that there is, and a word that holds its stream while it is 0. */
struct held {
    struct chain chain;
    uint32_t *word;
};

static enum chain_way best_way(gemmd_client_t *client)
{
    return chain_has_way(client, 0, CHAIN_KERNEL) ? CHAIN_KERNEL : CHAIN_MEMORY;
}

static bool held_init(struct held *held, gemmd_client_t *client, enum chain_way way)
{
    if (!chain_init(&held->chain, client, WEIGHT, way) || !chain_seed(&held->chain, 1) ||
        cudaHostAlloc((void **)&held->word, sizeof(*held->word), cudaHostAllocMapped) != 0) {
        return false;
    }
    *held->word = 0;
    /* Once now: loading a kernel waits for what runs. */
    return chain_steps(&held->chain, 1) && chain_sync(&held->chain);
}

static void let_go(struct held *held)
{
    *(volatile uint32_t *)held->word = 1;
}

/* Does the stream's work end soon? */
static bool ends_soon(const struct chain *chain)
{
    double end = fixture_now() + SOON_SECONDS;
    while (cudaStreamQuery(chain->cuda_stream) == cudaErrorNotReady) {
        if (fixture_now() > end) {
            (void)fprintf(stderr, "the stream still waits after %.0f s\n", SOON_SECONDS);
            return false;
        }
    }
    return true;
}

/* The stream has ended, and says why its products have not. */
static bool ends_with(struct chain *chain, int status, const char *words)
{
    if (!ends_soon(chain)) {
        return false;
    }
    int r = gemmd_stream_status(chain->stream);
    if (r != status || (words != NULL && strstr(gemmd_last_error(), words) == NULL)) {
        (void)fprintf(stderr, "status 0x%x, not 0x%x with '%s': %s\n", (unsigned)r,
                      (unsigned)status, words != NULL ? words : "", gemmd_last_error());
        return false;
    }
    return true;
}

/* ---- refusals ---- */

/* One that the daemon refuses, with others before and after it. */
static bool child_that_errs(uint32_t i_child)
{
    (void)i_child;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    struct held held;
    bool is_right = held_init(&held, client, best_way(client)) && chain_steps(&held.chain, 3);
    struct gemmd_gemm bad = held.chain.gemm;
    bad.x_offset_bytes = 1ull << 40;
    is_right =
        is_right && gemmd_gemm_on_stream(held.chain.stream, &bad) == GEMMD_OK &&
        ends_soon(&held.chain) &&
        gemmd_gemm_on_stream(held.chain.stream, &held.chain.gemm) == GEMMD_INVALID_ARGUMENT &&
        ends_with(&held.chain, GEMMD_INVALID_ARGUMENT, "x needs bytes") &&
        chain_steps(&held.chain, 3) && ends_with(&held.chain, GEMMD_OK, NULL);
    chain_finish(&held.chain);
    gemmd_close(client);
    return is_right;
}

static void test_a_refusal_lets_the_stream_go_on(void **state)
{
    (void)state;
    start();
    assert_true(gpu_children(1, child_that_errs));
    assert_int_equal(fixture_stop(&fixture), 0);
}

/* ---- a stream that stalls ---- */

/* Held for far longer than its products may take, which counts from when it is ready. */
static bool child_that_stalls(uint32_t i_child)
{
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    struct held stalled, other;
    bool is_right = held_init(&stalled, client, best_way(client)) &&
                    held_init(&other, client, best_way(client)) &&
                    hold_enqueue(stalled.word, stalled.chain.cuda_stream) == 0;
    double begin = fixture_now();
    stalled.chain.gemm.timeout_usec = 200000;
    is_right = is_right && chain_steps(&stalled.chain, N_IN_FLIGHT + i_child) &&
               chain_steps(&other.chain, 3 * N_IN_FLIGHT) &&
               ends_with(&other.chain, GEMMD_OK, NULL) &&
               gemmd_gemm(client, &other.chain.gemm) == GEMMD_OK;
    (void)fprintf(stderr, "note: %u steps beside a stalled stream took %.0f ms\n", 3 * N_IN_FLIGHT,
                  (fixture_now() - begin) * 1e3);
    fixture_sleep(0.5);
    is_right = is_right && cudaStreamQuery(stalled.chain.cuda_stream) == cudaErrorNotReady;
    let_go(&stalled);
    is_right = is_right && ends_with(&stalled.chain, GEMMD_OK, NULL);
    chain_finish(&stalled.chain);
    chain_finish(&other.chain);
    gemmd_close(client);
    return is_right;
}

static void test_a_stalled_stream_holds_up_nobody(void **state)
{
    (void)state;
    start();
    assert_true(gpu_children(2, child_that_stalls));
    assert_int_equal(fixture_stop(&fixture), 0);
}

/* ---- the daemon's end ---- */

/* With products in flight that will never be made: the CPU is asleep in CUDA meanwhile. */
static bool child_of_the_bereft(uint32_t i_signal)
{
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    struct held held;
    bool is_right = held_init(&held, client, best_way(client)) && chain_steps(&held.chain, 5) &&
                    chain_sync(&held.chain) &&
                    hold_enqueue(held.word, held.chain.cuda_stream) == 0 &&
                    chain_steps(&held.chain, N_IN_FLIGHT);
    fixture_sleep(0.05); /* so that the worker has them */
    (void)kill(fixture.pid, i_signal == 0 ? SIGKILL : SIGTERM);
    fixture_sleep(0.3);
    let_go(&held);
    is_right =
        is_right &&
        ends_with(&held.chain, i_signal == 0 ? GEMMD_DISCONNECTED : GEMMD_SHUTTING_DOWN, NULL) &&
        gemmd_gemm_on_stream(held.chain.stream, &held.chain.gemm) != GEMMD_OK;
    chain_finish(&held.chain);
    gemmd_close(client);
    return is_right;
}

static bool child_of_the_killed(uint32_t i_child)
{
    (void)i_child;
    return child_of_the_bereft(0);
}

static bool child_of_the_stopped(uint32_t i_child)
{
    (void)i_child;
    return child_of_the_bereft(1);
}

static void test_a_killed_daemon_lets_streams_go(void **state)
{
    (void)state;
    start();
    assert_true(gpu_children(1, child_of_the_killed));
    assert_int_equal(fixture_wait_exit(&fixture, SOON_SECONDS), 256 + SIGKILL);
}

static void test_a_daemon_that_stops_lets_streams_go(void **state)
{
    (void)state;
    start();
    assert_true(gpu_children(1, child_of_the_stopped));
    assert_int_equal(fixture_wait_exit(&fixture, SOON_SECONDS), 0);
}

/* ---- the device's end ---- */

static bool child_of_the_lost(uint32_t i_child)
{
    (void)i_child;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    struct held held;
    bool is_right = held_init(&held, client, best_way(client));
    int r = GEMMD_OK;
    while (is_right && (r == GEMMD_OK || r == GEMMD_BUSY)) {
        r = gemmd_gemm_on_stream(held.chain.stream, &held.chain.gemm);
    }
    is_right = is_right && ends_with(&held.chain, GEMMD_DEVICE_LOST, NULL);
    chain_finish(&held.chain);
    gemmd_close(client);
    return is_right;
}

static void test_a_lost_device_lets_streams_go(void **state)
{
    (void)state;
    (void)setenv("GEMMD_FAULT", "lost:50", 1);
    start();
    (void)unsetenv("GEMMD_FAULT");
    assert_true(gpu_children(1, child_of_the_lost));
    assert_int_equal(fixture_wait_exit(&fixture, SOON_SECONDS), EXIT_CODE_FAILED);
}

/* ---- the client's end ---- */

/* In the middle of products that have turns on a stream, or of kernels that take their turns
 * themselves, two of which are in their places at a time. */
static bool child_that_dies(uint32_t usec, bool is_early)
{
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    struct held held;
    is_early = is_early && chain_has_way(client, 0, CHAIN_EARLY);
    return held_init(&held, client, is_early ? CHAIN_EARLY : best_way(client)) &&
           chain_steps(&held.chain, 200) && usleep(usec) == 0 && raise(SIGKILL) == 0;
}

static void kill_one(uint32_t usec, bool is_early)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(child_that_dies(usec, is_early) ? 0 : 1);
    }
    int state;
    assert_int_equal(waitpid(pid, &state, 0), pid);
    assert_true(WIFSIGNALED(state));
}

static bool serves(uint32_t i_child)
{
    (void)i_child;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    struct held held;
    bool is_right = held_init(&held, client, best_way(client)) &&
                    chain_steps(&held.chain, N_IN_FLIGHT) && ends_with(&held.chain, GEMMD_OK, NULL);
    chain_finish(&held.chain);
    gemmd_close(client);
    return is_right;
}

static void test_dead_clients_are_forgotten(void **state)
{
    (void)state;
    start();
    kill_one(0, false);
    kill_one(0, true);
    fixture_sleep(0.3);
    uint32_t n_fds = fixture_fds(&fixture);
    for (uint32_t i = 0; i < 12; i++) {
        kill_one(50 * i, i % 2 == 0);
    }
    fixture_sleep(0.5);
    assert_true(fixture_fds(&fixture) <= n_fds + 8);
    assert_true(gpu_children(2, serves));
    assert_int_equal(fixture_stop(&fixture), 0);
}

int main(void)
{
    gpu_need();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_refusal_lets_the_stream_go_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_stalled_stream_holds_up_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_killed_daemon_lets_streams_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_daemon_that_stops_lets_streams_go, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_lost_device_lets_streams_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dead_clients_are_forgotten, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
