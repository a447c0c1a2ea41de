/* test-idle.c - whoever has nothing to do uses no CPU: the daemon between requests, and a client
 * that waits for a long product. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "tests/harness/fixture.h"
#include "tests/harness/model.h"

#define QUIET_SECONDS      1.0
#define QUIET_TRIES        5u
#define SETTLE_SECONDS     10.0
#define SETTLE_LOOK        0.1
#define LONG_N             2048u
#define LONG_K             2048u
#define LONG_M             128u
#define N_LONG             8u
#define BUSY_SHARE_ALLOWED 0.2

static struct fixture fixture;

static int set_up(void **state)
{
    (void)state;
    char argument[512];
    fixture_init(&fixture);
    test_gptq_write(&fixture.folder, "w", LONG_N, LONG_K, 1);
    (void)snprintf(argument, sizeof(argument), "long=%s", temp_path(&fixture.folder, "w"));
    /* One thread: long products that leave a CPU to the client. */
    const struct fixture_options options = {.model = argument, .config = "threads = 1\n"};
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

static uint64_t cpu_nsec(clockid_t clock)
{
    struct timespec used;
    assert_int_equal(clock_gettime(clock, &used), 0);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static uint64_t daemon_cpu_nsec(void)
{
    clockid_t clock;
    assert_int_equal(clock_getcpuclockid(fixture.pid, &clock), 0);
    return cpu_nsec(clock);
}

struct request {
    gemmd_client_t *client;
    gemmd_weight_t weight;
    struct gemmd_gemm gemm;
};

static void request_init(struct request *request, enum gemmd_path path, uint32_t m)
{
    *request = (struct request){.client = fixture_open(&fixture, path)};
    request->weight = (gemmd_weight_t)GEMMD_WEIGHT_INIT;
    request->gemm = (struct gemmd_gemm)GEMMD_GEMM_INIT;
    request->gemm.weight = &request->weight;
    request->gemm.m = m;
    assert_int_equal(gemmd_find_weight(request->client, "long/w", &request->weight), 0);
    uint64_t x_bytes = (uint64_t)m * LONG_K * sizeof(float);
    uint64_t y_bytes = (uint64_t)m * LONG_N * sizeof(float);
    assert_int_equal(gemmd_buffer_alloc_host(request->client, 0, x_bytes, &request->gemm.x), 0);
    assert_int_equal(gemmd_buffer_alloc_host(request->client, 0, y_bytes, &request->gemm.y), 0);
}

static void request_finish(struct request *request)
{
    gemmd_buffer_free(request->gemm.x);
    gemmd_buffer_free(request->gemm.y);
    gemmd_close(request->client);
}

/* What was served before may still be polled for, or be logged: until two looks agree. */
static uint64_t settled_cpu_nsec(void)
{
    double end = fixture_now() + SETTLE_SECONDS;
    uint64_t before = daemon_cpu_nsec();
    for (;;) {
        fixture_sleep(SETTLE_LOOK);
        uint64_t now = daemon_cpu_nsec();
        if (now == before) {
            return now;
        }
        assert_true(fixture_now() < end);
        before = now;
    }
}

/* Not little: none. No thread of the daemon has a reason to wake up. On a busy machine one that was
 * on its way to sleep may get its CPU late: so one whole second of a few has to be quiet. */
static void test_idle_daemon(void **state)
{
    (void)state;
    struct request ring;
    struct request zeromq;
    request_init(&ring, GEMMD_PATH_RING, 1);
    request_init(&zeromq, GEMMD_PATH_ZEROMQ, 1);
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(gemmd_gemm(ring.client, &ring.gemm), 0);
        assert_int_equal(gemmd_gemm(zeromq.client, &zeromq.gemm), 0);
    }
    uint64_t before = 0;
    uint64_t used = UINT64_MAX;
    for (uint32_t i = 0; i < QUIET_TRIES && used != 0; i++) {
        before = settled_cpu_nsec();
        fixture_sleep(QUIET_SECONDS);
        used = daemon_cpu_nsec() - before;
    }
    assert_int_equal(used, 0);
    assert_int_equal(gemmd_gemm(ring.client, &ring.gemm), 0);
    assert_true(daemon_cpu_nsec() > before); /* the clock does count */
    request_finish(&ring);
    request_finish(&zeromq);
}

static void test_waiting_client(void **state)
{
    (void)state;
    struct request request;
    request_init(&request, GEMMD_PATH_RING, LONG_M);
    assert_int_equal(gemmd_gemm(request.client, &request.gemm), 0);
    double begin = fixture_now();
    uint64_t before = cpu_nsec(CLOCK_THREAD_CPUTIME_ID);
    for (uint32_t i = 0; i < N_LONG; i++) {
        assert_int_equal(gemmd_gemm(request.client, &request.gemm), 0);
    }
    double waited = fixture_now() - begin;
    double used = (double)(cpu_nsec(CLOCK_THREAD_CPUTIME_ID) - before) / 1e9;
    assert_true(waited > N_LONG * 1e-3); /* long, that is: ten times what a wait may poll */
    assert_true(used < waited * BUSY_SHARE_ALLOWED);
    request_finish(&request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_daemon),
        cmocka_unit_test(test_waiting_client),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
