/* test-forked.c - a client in a child of fork(): the child can do nothing with it, and nothing to
 * it.
 */
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/client/fixture.h"

#define CHILD_SECONDS 20u /* and a signal: what hangs has failed */

static bool is_refused(int r)
{
    return r == GEMMD_INVALID_ARGUMENT && strstr(gemmd_last_error(), "before fork()") != NULL;
}

/* The number of the first check that fails; 0: none. */
static int use_all(struct fixture *fixture, gemmd_ticket_t ticket)
{
    struct gemmd_gemm gemm = fixture_gemm(fixture, 0);
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    gemmd_buffer_t *buffer = NULL;
    const bool checks[] = {
        is_refused(gemmd_gemm(fixture->client, &gemm)),
        is_refused(gemmd_wait(fixture->client, ticket, GEMMD_WAIT_FOREVER, NULL)),
        is_refused(gemmd_cancel(fixture->client, ticket)),
        is_refused(gemmd_find_weight(fixture->client, "m/w", &weight)),
        is_refused(gemmd_buffer_alloc(fixture->client, 0, 64, &buffer)),
    };
    for (int i = 0; i < (int)(sizeof(checks) / sizeof(checks[0])); i++) {
        if (!checks[i]) {
            return i + 1;
        }
    }
    gemmd_buffer_free(fixture->x);
    gemmd_buffer_free(fixture->y);
    gemmd_close(fixture->client);
    return 0;
}

static void multiply(struct fixture *fixture)
{
    struct gemmd_gemm gemm = fixture_gemm(fixture, 1);
    float *y = gemmd_buffer_data(fixture->y);
    const float *x = gemmd_buffer_data(fixture->x);
    y[FAKE_N] = 0;
    assert_int_equal(gemmd_gemm(fixture->client, &gemm), GEMMD_OK);
    assert_true(y[FAKE_N] == 2 * x[FAKE_N]);
}

static void fork_on(enum gemmd_path path)
{
    struct fixture fixture;
    gemmd_ticket_t ticket;
    int state;
    fixture_open(&fixture, path);
    multiply(&fixture);
    fake_set(fixture.fake, FAKE_HOLD);
    struct gemmd_gemm gemm = fixture_gemm(&fixture, 0);
    assert_int_equal(gemmd_submit(fixture.client, &gemm, 1, &ticket), GEMMD_OK);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)alarm(CHILD_SECONDS);
        _exit(use_all(&fixture, ticket));
    }
    assert_int_equal(waitpid(pid, &state, 0), pid);
    assert_true(WIFEXITED(state));
    assert_int_equal(WEXITSTATUS(state), 0);
    fake_set(fixture.fake, 0);
    assert_int_equal(gemmd_wait(fixture.client, ticket, GEMMD_WAIT_FOREVER, NULL), GEMMD_OK);
    multiply(&fixture);
    fixture_close(&fixture);
}

static void test_ring(void **state)
{
    (void)state;
    fork_on(GEMMD_PATH_RING);
}

static void test_zeromq(void **state)
{
    (void)state;
    fork_on(GEMMD_PATH_ZEROMQ);
}

static uint32_t count_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint32_t n = 0;
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        n++;
    }
    (void)closedir(folder);
    return n;
}

/* How many descriptors a child's closing lets go of. */
static int let_go_in_child(struct fixture *fixture, bool is_freeing)
{
    int state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)alarm(CHILD_SECONDS);
        uint32_t n_before = count_fds();
        if (is_freeing) {
            gemmd_buffer_free(fixture->x);
            gemmd_buffer_free(fixture->y);
        }
        gemmd_close(fixture->client);
        _exit((int)(n_before - count_fds()));
    }
    assert_int_equal(waitpid(pid, &state, 0), pid);
    assert_true(WIFEXITED(state));
    return WEXITSTATUS(state);
}

static void test_closing_frees_inherited_buffers(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, GEMMD_PATH_RING);
    multiply(&fixture);
    int n_one_by_one = let_go_in_child(&fixture, true);
    assert_true(n_one_by_one > 2);
    assert_int_equal(let_go_in_child(&fixture, false), n_one_by_one);
    multiply(&fixture);
    fixture_close(&fixture);
}

/* Buffers that nobody frees go with their client. */
static void test_closing_frees_buffers(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, GEMMD_PATH_RING);
    multiply(&fixture);
    uint32_t n_before = count_fds();
    for (uint32_t i = 0; i < 10; i++) {
        struct gemmd_options options = fixture_options(&fixture, GEMMD_PATH_RING);
        gemmd_client_t *client = NULL;
        gemmd_buffer_t *buffer = NULL;
        assert_int_equal(gemmd_open(&options, &client), GEMMD_OK);
        assert_int_equal(gemmd_buffer_alloc_host(client, 0, 4096, &buffer), GEMMD_OK);
        gemmd_close(client);
    }
    uint64_t end = fixture_now_msec() + FIXTURE_PATIENCE_MSEC;
    while (count_fds() > n_before && fixture_now_msec() < end) {
        (void)usleep(1000); /* the fake daemon, in this process, has descriptors of them too */
    }
    assert_int_equal(count_fds(), n_before);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_zeromq),
        cmocka_unit_test(test_closing_frees_buffers),
        cmocka_unit_test(test_closing_frees_inherited_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
