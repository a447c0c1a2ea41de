/* test-worker-sched.c - the worker with sessions that decode: they come into step, whoever may not
 * be held is not, and what is held is launched in time though nobody rings. On a device whose
 * launches take so long that what the machine does besides does not matter. */
#include "tests/unit/engine/cmocka_all.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ipc/base/clock.h"
#include "tests/unit/engine/worker_bench.h"

#define N_CLIENTS    3u
#define RUN_MSEC     5u
#define WAIT_SECONDS 30u

static struct worker_bench wb;
static struct device_ops slow_ops;
static const struct device_ops *real_ops;

static int slow_launch(struct device *device, struct device_launch *launch)
{
    const struct timespec span = {.tv_nsec = RUN_MSEC * 1000000};
    uint64_t start_nsec = clock_now_nsec();
    (void)nanosleep(&span, NULL);
    int r = real_ops->launch(device, launch);
    launch->start_nsec = start_nsec;
    return r;
}

static void set_up(void)
{
    struct worker_limits limits = worker_bench_limits;
    limits.mode = SCHED_RENDEZVOUS;
    worker_bench_init(&wb, &limits);
    real_ops = wb.bench.device->ops;
    slow_ops = *real_ops;
    slow_ops.launch = slow_launch;
    gate_close(&wb); /* the worker looks at nothing meanwhile */
    wb.bench.device->ops = &slow_ops;
    gate_open(&wb);
}

struct walker {
    struct client client;
    pthread_t thread;
    atomic_bool *is_over;
    uint32_t flags;
    uint32_t n_wrong;
};

/* Over both weights, again and again, thinking next to nothing. */
static void *walk(void *arg)
{
    struct walker *walker = arg;
    struct request_desc descs[2];
    for (uint32_t i = 0; i < 2; i++) {
        const struct weight *weight = wb.bench.weights[i == 0 ? WEIGHT_INT4 : WEIGHT_PLAIN];
        client_use(&walker->client, weight, 1, 0, DTYPE_F32, DTYPE_F32, i);
        descs[i] = bench_desc(weight, 1, 1, &walker->client.x, &walker->client.y);
        descs[i].flags = walker->flags;
    }
    for (uint32_t i = 0; !atomic_load(walker->is_over); i++) {
        client_submit(&walker->client, &descs[i % 2]);
        walker->n_wrong += client_wait(&walker->client).status != STATUS_OK;
    }
    return NULL;
}

/* Until so many sessions are in step, or `seconds` have passed. */
static uint32_t wait_in_step(uint32_t wanted, uint32_t seconds)
{
    uint64_t end_nsec = clock_now_nsec() + seconds * (uint64_t)CLOCK_NSEC_PER_SEC;
    struct worker_stats stats;
    do {
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        worker_stats(wb.worker, &stats);
    } while (stats.n_in_step != wanted && clock_now_nsec() < end_nsec);
    return stats.n_in_step;
}

static uint32_t run_walkers(uint32_t flags, uint32_t wanted, uint32_t seconds)
{
    struct walker walkers[N_CLIENTS] = {0};
    atomic_bool is_over = false;
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        client_init(&walkers[i].client, &wb, 10 + i, 16, 1);
        walkers[i].is_over = &is_over;
        walkers[i].flags = flags;
        assert_int_equal(pthread_create(&walkers[i].thread, NULL, walk, &walkers[i]), 0);
    }
    uint32_t n_in_step = wait_in_step(wanted, seconds);
    atomic_store(&is_over, true);
    for (uint32_t i = 0; i < N_CLIENTS; i++) {
        assert_int_equal(pthread_join(walkers[i].thread, NULL), 0);
        assert_int_equal(walkers[i].n_wrong, 0);
        client_finish(&walkers[i].client);
    }
    return n_in_step;
}

static void decoders_come_into_step(void **state)
{
    (void)state;
    set_up();
    assert_int_equal(run_walkers(REQUEST_FLAG_NONE, N_CLIENTS, WAIT_SECONDS), N_CLIENTS);
    struct worker_stats stats;
    worker_stats(wb.worker, &stats);
    assert_int_equal(stats.n_passes, 1);
    assert_true(stats.n_closed[SCHED_CLOSE_COMPLETE] > 0);
    uint64_t n_closed = 0;
    for (uint32_t i = 0; i < SCHED_CLOSES; i++) {
        n_closed += stats.n_closed[i];
    }
    assert_int_equal(n_closed, stats.n_launches);
    worker_bench_finish(&wb);
}

static void who_may_not_be_held_is_not(void **state)
{
    (void)state;
    set_up();
    assert_int_equal(run_walkers(REQUEST_FLAG_NO_HOLD, 1, 1), 0);
    struct worker_stats stats;
    worker_stats(wb.worker, &stats);
    for (uint32_t i = 0; i < SCHED_HOLDS; i++) {
        assert_int_equal(stats.n_holds[i], 0);
    }
    worker_bench_finish(&wb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoders_come_into_step),
        cmocka_unit_test(who_may_not_be_held_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
