/* test-look.c - what gemmctl top makes of two looks at a page: rates, quantiles, health. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/tool/look.h"

#define SECOND 1000000000ull

static struct look then, now;

/* Two looks a second apart, 100 s after the start of this very process as a daemon. */
static int set_up(void **state)
{
    (void)state;
    memset(&then, 0, sizeof(then));
    then.page.pid = (uint64_t)getpid();
    then.page.start_nsec = SECOND;
    then.page.n_devices = 1;
    then.at_nsec = 101 * SECOND;
    stats_set(&then.page.main.turn_nsec, then.at_nsec);
    memcpy(&now, &then, sizeof(now));
    now.at_nsec = 102 * SECOND;
    return 0;
}

static void test_rates(void **state)
{
    (void)state;
    struct stats_worker *before = &then.page.workers[0];
    struct stats_worker *worker = &now.page.workers[0];
    stats_set(&before->n_ok, 100);
    stats_set(&worker->n_ok, 350);
    stats_set(&worker->n_refused, 1);
    stats_set(&worker->n_failed, 2);
    stats_set(&worker->n_timed_out, 4);
    stats_set(&worker->n_launches, 50);
    stats_set(&worker->n_shared_launches, 10);
    stats_set(&worker->launch_rows, 400);
    stats_set(&worker->n_fired, 40);
    stats_set(&before->n_disarmed[1], 7);
    stats_set(&worker->n_disarmed[1], 9);
    stats_set(&worker->n_disarmed[STATS_DISARMS - 1], 3);
    stats_set(&worker->busy_nsec, SECOND / 4);
    stats_set(&worker->launches_by_rows[3], 50);
    struct look_rates rates;
    now.at_nsec = 103 * SECOND;
    look_rates(&now, &then, 0, &rates);
    assert_true(rates.seconds == 2 && rates.requests == 125 && rates.bad == 3.5);
    assert_true(rates.launches == 25 && rates.shared == 0.2 && rates.rows_a_launch == 8);
    assert_true(rates.busy == 0.125 && rates.ahead == 0.8 && rates.vain == 0.1);
    assert_int_equal(rates.launches_by_rows[3], 50);
    assert_true(rates.queue_p50 < 0 && rates.stall_p99 < 0);
}

static void test_quantiles(void **state)
{
    (void)state;
    struct stats_times a = {.sum_nsec = 0}, b = {.sum_nsec = 0};
    assert_true(look_quantile(&b, &a, 0.5) < 0);
    stats_set(&a.counts[4], 1000); /* long ago */
    stats_set(&b.counts[4], 1000);
    stats_set(&b.counts[2], 90); /* 2 to 4 us */
    stats_set(&b.counts[10], 10);
    assert_true(look_quantile(&b, &a, 0.45) > 2.99e-6 && look_quantile(&b, &a, 0.45) < 3.01e-6);
    double p99 = look_quantile(&b, &a, 0.99); /* 512 to 1024 us */
    assert_true(p99 > 972e-6 && p99 < 973e-6);
    stats_set(&b.counts[STATS_TIME_BUCKETS - 1], 1000000);
    double beyond = look_quantile(&b, &a, 0.5);
    assert_true(beyond > 1.048576 && beyond < 2.1);
}

static void check_health(uint64_t poked_nsec, const char *begin)
{
    char text[256];
    look_health(&now, &then, poked_nsec, text, sizeof(text));
    if (strncmp(text, begin, strlen(begin)) != 0 || (begin[0] == '\0' && text[0] != '\0')) {
        fail_msg("'%s' instead of '%s'", text, begin);
    }
}

static void test_a_stuck_worker(void **state)
{
    (void)state;
    struct stats_worker *worker = &now.page.workers[0];
    (void)strcpy(worker->device_name, "cuda:3");
    stats_set(&worker->n_in_flight, 7); /* since this look: it may just have come */
    check_health(0, "");
    stats_set(&then.page.workers[0].n_in_flight, 1);
    check_health(0, "cuda:3: 7 requests in flight, and no launch has ended for 101.0 s");
    stats_set(&worker->last_end_nsec, 101 * SECOND + 1);
    check_health(0, "");
}

static void test_a_stuck_main_thread(void **state)
{
    (void)state;
    check_health(0, "");
    check_health(101 * SECOND + 1, ""); /* poked less than a moment ago */
    now.at_nsec = 104 * SECOND;
    check_health(101 * SECOND + 1, "the main thread has not come round for 3.0 s");
    check_health(101 * SECOND, ""); /* it came round after that */
    now.at_nsec = 1000 * SECOND;
    check_health(0, ""); /* nobody asked it to */
}

static void test_a_dead_process(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    now.page.pid = (uint64_t)pid;
    check_health(0, "process ");
    now.listener = LOOK_LISTENER_THERE; /* the number is that of another container */
    check_health(0, "");
    now.page.pid = (uint64_t)getpid(); /* one that nobody has reaped, say */
    now.listener = LOOK_LISTENER_NONE;
    check_health(0, ""); /* it may be starting */
    now.page.pid = (uint64_t)pid;
    check_health(0, "process "); /* it was killed while it was starting */
    stats_set(&now.page.main.phase, 1);
    check_health(0, "process ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_rates, set_up),
        cmocka_unit_test_setup(test_quantiles, set_up),
        cmocka_unit_test_setup(test_a_stuck_worker, set_up),
        cmocka_unit_test_setup(test_a_stuck_main_thread, set_up),
        cmocka_unit_test_setup(test_a_dead_process, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
