/* test-thread-pool.c - every part once, results visible, nothing burnt when idle. */
#include "tests/unit/engine/cmocka_all.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "daemon/device/thread_pool.h"

#define PARTS_MAX 64u

struct loop {
    uint32_t n_calls[PARTS_MAX];
    uint32_t n_parts_seen;
};

static void count_part(void *arg, uint32_t i_part, uint32_t n_parts)
{
    struct loop *loop = arg;
    loop->n_calls[i_part]++; /* not atomic: a part run twice is a race that TSan sees, too */
    if (i_part == 0) {
        loop->n_parts_seen = n_parts;
    }
}

static void each_part_runs_once(void **state)
{
    (void)state;
    struct thread_pool *pool;
    assert_int_equal(thread_pool_new(4, &pool), 0);
    for (uint32_t i_loop = 0; i_loop < 3000; i_loop++) {
        uint32_t n_parts = i_loop % (PARTS_MAX + 1);
        struct loop loop = {0};
        thread_pool_run(pool, count_part, &loop, n_parts);
        for (uint32_t i = 0; i < PARTS_MAX; i++) {
            assert_int_equal(loop.n_calls[i], i < n_parts);
        }
        assert_int_equal(loop.n_parts_seen, n_parts);
    }
    assert_null(thread_pool_free(pool));
}

static void sleepers_wake_up(void **state)
{
    (void)state;
    struct thread_pool *pool;
    assert_int_equal(thread_pool_new(3, &pool), 0);
    for (int i_loop = 0; i_loop < 20; i_loop++) {
        struct timespec pause = {.tv_nsec = 1000000};
        (void)nanosleep(&pause, NULL);
        struct loop loop = {0};
        thread_pool_run(pool, count_part, &loop, PARTS_MAX);
        for (uint32_t i = 0; i < PARTS_MAX; i++) {
            assert_int_equal(loop.n_calls[i], 1);
        }
    }
    assert_null(thread_pool_free(pool));
}

static double cpu_seconds(void)
{
    struct timespec used;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

static void idle_pool_uses_no_cpu(void **state)
{
    (void)state;
    struct thread_pool *pool;
    assert_int_equal(thread_pool_new(4, &pool), 0);
    struct loop loop = {0};
    thread_pool_run(pool, count_part, &loop, 8);
    struct timespec settle = {.tv_nsec = 50000000};
    (void)nanosleep(&settle, NULL);
    double before = cpu_seconds();
    struct timespec pause = {.tv_nsec = 200000000};
    (void)nanosleep(&pause, NULL);
    assert_true(cpu_seconds() - before < 0.02);
    assert_null(thread_pool_free(pool));
}

static void alone_it_runs_in_the_caller(void **state)
{
    (void)state;
    struct thread_pool *pool;
    assert_int_equal(thread_pool_new(1, &pool), 0);
    struct loop loop = {0};
    thread_pool_run(pool, count_part, &loop, 5);
    assert_int_equal(loop.n_calls[4], 1);
    assert_int_equal(loop.n_parts_seen, 5);
    assert_null(thread_pool_free(pool));
    assert_true(thread_pool_new(0, &pool) < 0);
    assert_true(thread_pool_new(THREAD_POOL_THREADS_MAX + 1, &pool) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_runs_once),
        cmocka_unit_test(sleepers_wake_up),
        cmocka_unit_test(idle_pool_uses_no_cpu),
        cmocka_unit_test(alone_it_runs_in_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
