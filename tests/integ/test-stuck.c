/* test-stuck.c - a daemon that is stopped for a while (SIGSTOP): its clients are held up only where
 * the header says so, and only for as long as it says; nothing is lost when it goes on. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/cleanup.h"
#include "ipc/side.h"
#include "tests/harness/fixture.h"
#include "tests/harness/model.h"

#define IN_FLIGHT_MAX   4096u
#define N               64u
#define K               128u
#define AT_ONCE_SECONDS 4.0 /* on a busy machine; a blocked call would take TIMEOUT_MSEC */
#define TIMEOUT_MSEC    5000u
#define SHORT_MSEC      200u
#define BACKLOG_MAX     1024u

static struct fixture fixture;

static int set_up(void **state)
{
    (void)state;
    char argument[512];
    fixture_init(&fixture);
    test_gptq_write(&fixture.folder, "w", N, K, 1);
    (void)snprintf(argument, sizeof(argument), "stuck=%s", temp_path(&fixture.folder, "w"));
    const struct fixture_options options = {.model = argument,
                                            .config = "session_requests_max = 4096\n"
                                                      "lane_entries = 4096\n"};
    fixture_start(&fixture, &options);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    int code = fixture_stop(&fixture);
    fixture_finish(&fixture);
    return code;
}

/* More than socket buffers and ZeroMQ's old queues held: a send that waited would show here. */
static void test_submit_does_not_wait(void **state)
{
    (void)state;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_ZEROMQ);
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    struct gemmd_gemm gemm = GEMMD_GEMM_INIT;
    CLEAN_FREE gemmd_ticket_t *tickets = calloc(IN_FLIGHT_MAX, sizeof(*tickets));
    assert_non_null(tickets);
    assert_int_equal(gemmd_find_weight(client, "stuck/w", &weight), 0);
    assert_int_equal(gemmd_buffer_alloc_host(client, 0, K * sizeof(float), &gemm.x), 0);
    assert_int_equal(gemmd_buffer_alloc_host(client, 0, N * sizeof(float), &gemm.y), 0);
    gemm.weight = &weight;
    gemm.m = 1;
    assert_int_equal(gemmd_gemm(client, &gemm), 0);

    assert_int_equal(kill(fixture.pid, SIGSTOP), 0);
    double begin = fixture_now();
    for (uint32_t i = 0; i < IN_FLIGHT_MAX; i++) {
        assert_int_equal(gemmd_submit(client, &gemm, 1, &tickets[i]), 0);
    }
    gemmd_ticket_t one_more;
    assert_int_equal(gemmd_submit(client, &gemm, 1, &one_more), GEMMD_BUSY);
    double took = fixture_now() - begin;
    assert_int_equal(kill(fixture.pid, SIGCONT), 0);
    assert_true(took < AT_ONCE_SECONDS);
    for (uint32_t i = 0; i < IN_FLIGHT_MAX; i++) {
        assert_int_equal(gemmd_wait(client, tickets[i], GEMMD_WAIT_FOREVER, NULL), 0);
    }
    gemmd_buffer_free(gemm.x);
    gemmd_buffer_free(gemm.y);
    gemmd_close(client);
}

/* Connections that the stopped daemon does not accept, until the kernel queues no more. */
static uint32_t fill_backlog(int *fds)
{
    char path[400];
    uint32_t n_fds = 0;
    (void)snprintf(path, sizeof(path), "%s/%s", fixture.socket_dir, SIDE_SOCKET_NAME);
    while (n_fds < BACKLOG_MAX && (fds[n_fds] = side_connect(path, SHORT_MSEC)) >= 0) {
        n_fds++;
    }
    return n_fds;
}

static void test_full_backlog(void **state)
{
    (void)state;
    int fds[BACKLOG_MAX];
    assert_int_equal(kill(fixture.pid, SIGSTOP), 0);
    uint32_t n_fds = fill_backlog(fds);
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    options.socket_dir = fixture.socket_dir;
    options.timeout_msec = SHORT_MSEC;
    gemmd_client_t *client = NULL;
    double begin = fixture_now();
    int r = gemmd_open(&options, &client);
    double took = fixture_now() - begin;
    assert_int_equal(kill(fixture.pid, SIGCONT), 0);
    for (uint32_t i = 0; i < n_fds; i++) {
        cleanup_fd(&fds[i]);
    }
    assert_in_range(n_fds, 1, BACKLOG_MAX - 1);
    assert_int_equal(r, GEMMD_TIMEOUT);
    assert_non_null(strstr(gemmd_last_error(), "took no connection within 200 ms"));
    assert_true(took < AT_ONCE_SECONDS);

    options.timeout_msec = TIMEOUT_MSEC;
    assert_int_equal(gemmd_open(&options, &client), 0);
    gemmd_close(client);
}

/* A client that gave up meanwhile is no news: the log does not say that it does not read. */
static void test_leaving_before_the_answer(void **state)
{
    (void)state;
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    options.socket_dir = fixture.socket_dir;
    options.timeout_msec = SHORT_MSEC;
    gemmd_client_t *client = NULL;
    assert_int_equal(kill(fixture.pid, SIGSTOP), 0);
    int r = gemmd_open(&options, &client);
    assert_int_equal(kill(fixture.pid, SIGCONT), 0);
    assert_int_equal(r, GEMMD_TIMEOUT);
    options.timeout_msec = TIMEOUT_MSEC;
    assert_int_equal(gemmd_open(&options, &client), 0); /* behind the other */
    gemmd_close(client);
    assert_int_equal(fixture_logged(&fixture, "is hung up"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_submit_does_not_wait),
        cmocka_unit_test(test_leaving_before_the_answer),
        cmocka_unit_test(test_full_backlog),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
