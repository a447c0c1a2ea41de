/* test-sched-sim.c - thousands of random scenarios on a virtual clock: the simulation itself checks
 * what must hold whatever happens (sched_sim.h); here is what makes them different from one
 * another, and what rendezvous promises in comparison.
 *
 * GEMMD_SCENARIOS: how many. */
#include "tests/unit/engine/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/random.h"
#include "tests/harness/sched_sim.h"

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(test_random(&seed) % n);
}

static bool one_in(uint32_t n)
{
    return below(n) == 0;
}

static struct sim_client decoder(double think_usec)
{
    return (struct sim_client){.think_usec = think_usec,
                               .jitter = 0.2,
                               .pass_think_usec = 100,
                               .hold_usec_max = -1,
                               .priority = SCHED_NORMAL};
}

/* Any client at all. */
static struct sim_client anybody(double usec)
{
    struct sim_client client = decoder(1 + below(one_in(4) ? 500 : 40));
    client.model = below(2);
    client.jitter = below(10) / 10.0;
    client.pass_think_usec = below(300);
    client.n_burst = one_in(4) ? 1 + below(3) : 1;
    client.n_experts = one_in(6) ? 4 : 0;
    client.is_random = one_in(8);
    client.stall_share = one_in(6) ? 0.01 : 0;
    client.stall_usec = 1000;
    client.prefill_share = one_in(6) ? 0.2 : 0;
    client.prefill_rows = 65 + below(1000);
    client.timeout_usec = one_in(6) ? 20 + below(2000) : 0;
    client.hold_usec_max = one_in(5) ? (double)below(2) * below(500) : -1;
    client.join_usec = one_in(3) ? below((uint32_t)usec) : 0;
    client.leave_usec = one_in(3) ? client.join_usec + below((uint32_t)usec) + 1 : 0;
    client.priority = (enum sched_priority)below(SCHED_PRIORITIES);
    return client;
}

static void anything(struct sim_setup *setup, uint64_t number, enum sched_mode mode)
{
    seed = number * 7919 + 1;
    *setup = (struct sim_setup){.mode = mode,
                                .n_layers = 1 + below(40),
                                .n_clients = 1 + below(one_in(8) ? SIM_CLIENTS_MAX : 10),
                                .run_usec = 1 + below(60),
                                .row_usec = one_in(4) ? below(10) : 0,
                                .gap_usec = below(6),
                                .queue_usec = below(2),
                                .n_ahead = 1 + below(3),
                                .may_arm = one_in(2),
                                .fired_usec = 1,
                                .disarm_usec = below(8),
                                .seconds = 0.02,
                                .seed = number};
    for (uint32_t i = 0; i < setup->n_clients; i++) {
        setup->clients[i] = anybody(setup->seconds * 1e6);
    }
}

static void random_scenarios(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result result;
    const char *wanted = getenv("GEMMD_SCENARIOS");
    uint64_t n = wanted != NULL ? strtoull(wanted, NULL, 10) : 3000;
    for (uint64_t i = 0; i < n; i++) {
        anything(&setup, i, (enum sched_mode)(i % 4 < 3 ? SCHED_RENDEZVOUS : i / 4 % 2));
        sim_run(&setup, &result);
    }
}

/* Who shares which launch, and when, is the same whether launches are queued ahead or not, as long
 * as the device is no quicker with them. */
static void asking_ahead_changes_nothing(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result results[2];
    uint64_t n_armed = 0;
    for (uint64_t i = 0; i < 200; i++) {
        anything(&setup, 100000 + i, (enum sched_mode)(i % 3));
        setup.fired_usec = 0;
        setup.disarm_usec = 0;
        for (uint32_t may_arm = 0; may_arm < 2; may_arm++) {
            setup.may_arm = may_arm != 0;
            sim_run(&setup, &results[may_arm]);
        }
        assert_memory_equal(results[0].n_done, results[1].n_done, sizeof(results[0].n_done));
        assert_true(results[0].per_launch == results[1].per_launch);
        assert_int_equal(results[0].n_refused, results[1].n_refused);
        n_armed += results[1].n_armed;
    }
    assert_true(n_armed > 1000);
}

/* ---- what it promises ---- */

static void in_step(struct sim_setup *setup, uint32_t n_clients, double think_usec,
                    enum sched_mode mode)
{
    *setup = (struct sim_setup){.mode = mode,
                                .n_layers = 100,
                                .n_clients = n_clients,
                                .run_usec = 30,
                                .gap_usec = 4,
                                .queue_usec = 1,
                                .n_ahead = 2,
                                .seconds = 0.1,
                                .seed = 3};
    for (uint32_t i = 0; i < n_clients; i++) {
        setup->clients[i] = decoder(think_usec);
    }
}

static void sixteen_share_every_launch(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result result;
    in_step(&setup, 16, 5, SCHED_RENDEZVOUS);
    sim_run(&setup, &result);
    assert_true(result.per_launch > 15.5);
    assert_true(result.pass_p99 < 1.1);
    assert_int_equal(result.stats.n_rings, 1);
    assert_int_equal(result.stats.n_in_step, 16);
    assert_true(result.stats.n_closed[SCHED_CLOSE_COMPLETE] > 1000);
    assert_true(result.stats.n_holds[SCHED_HOLD_CATCH_UP] > 0);
    assert_true(result.stats.n_holds[SCHED_HOLD_ARRIVAL] > 0);
    assert_true(result.stats.idle_nsec[SCHED_HOLD_ARRIVAL] > 0);
}

/* A GPU on which sixteen processes keep each other's launches waiting. */
static void on_a_busy_gpu(struct sim_setup *setup, uint32_t n_clients)
{
    in_step(setup, n_clients, 5, SCHED_RENDEZVOUS);
    setup->run_usec = 10;
    setup->row_usec = 0.4;
    setup->gap_usec = 9 + 0.7 * (n_clients - 1);
    setup->fired_usec = 3;
    setup->disarm_usec = 3;
}

static void launches_ahead_save_their_way(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result without;
    struct sim_result with;
    for (uint32_t n_clients = 1; n_clients <= 16; n_clients *= 4) {
        on_a_busy_gpu(&setup, n_clients);
        sim_run(&setup, &without);
        setup.may_arm = true;
        sim_run(&setup, &with);
        assert_int_equal(without.n_armed, 0);
        assert_true(with.n_fired > 9 * with.n_armed / 10);
        assert_true(with.per_run > 1.2 * without.per_run);
        assert_true(with.per_launch > 0.99 * without.per_launch);
    }
}

/* Where they save nothing they are soon left alone. */
static void launches_ahead_end_where_they_cost(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result without;
    struct sim_result with;
    on_a_busy_gpu(&setup, 8);
    setup.seconds = 0.4;
    sim_run(&setup, &without);
    setup.may_arm = true;
    setup.fired_usec = setup.gap_usec + 2; /* its kernels are in the way of the clients' */
    sim_run(&setup, &with);
    assert_true(with.n_armed > 0);
    assert_true(with.per_run > 0.99 * without.per_run);
}

/* One that thinks long is no brake, and gets what it would get without the others in step. */
static void slow_one_throttles_nobody(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result natural;
    struct sim_result result;
    in_step(&setup, 16, 5, SCHED_NATURAL);
    setup.clients[15].think_usec = 500;
    sim_run(&setup, &natural);
    setup.mode = SCHED_RENDEZVOUS;
    sim_run(&setup, &result);
    assert_true(result.pass_p50 < 1.15);
    assert_true(result.n_done[15] >= natural.n_done[15]);
    assert_int_equal(result.stats.n_in_step, 15);
}

static void who_may_not_be_held_is_not(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result result;
    in_step(&setup, 8, 5, SCHED_RENDEZVOUS);
    for (uint32_t i = 0; i < 8; i++) {
        setup.clients[i].hold_usec_max = 0;
    }
    sim_run(&setup, &result);
    assert_int_equal(result.stats.n_in_step, 0);
    for (uint32_t i = 0; i < SCHED_HOLDS; i++) {
        assert_int_equal(result.stats.n_holds[i], 0);
    }
}

/* Nobody waits where nothing comes of it: launches that take as long as their rows one by one. */
static void no_gain_no_hold(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result result;
    in_step(&setup, 4, 20, SCHED_RENDEZVOUS);
    setup.row_usec = setup.run_usec;
    sim_run(&setup, &result);
    assert_int_equal(result.stats.n_in_step, 0);
}

/* A decode step beside a prefill of 4096 rows takes at most 1.3 times as long. */
static void prefill_stays_in_its_share(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result result;
    for (uint32_t n_clients = 2; n_clients <= 8; n_clients *= 2) {
        in_step(&setup, n_clients, 20, SCHED_RENDEZVOUS);
        setup.clients[0].prefill_share = 1;
        setup.clients[0].prefill_rows = 4096;
        sim_run(&setup, &result);
        assert_true(result.pass_p50 < 1.3);
        assert_true(result.n_done[0] > 0);
        assert_true(result.stats.n_holds[SCHED_HOLD_PREFILL] > 0);
    }
}

/* Sessions whose launches take four times as long get a quarter as many. */
static void device_time_is_shared(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result result;
    in_step(&setup, 8, 1, SCHED_NATURAL);
    for (uint32_t i = 0; i < 8; i++) {
        setup.clients[i].model = i; /* nothing to share */
    }
    setup.clients[0].priority = SCHED_HIGH;
    setup.clients[7].priority = SCHED_LOW;
    sim_run(&setup, &result);
    for (uint32_t i = 2; i < 7; i++) {
        assert_true(result.n_done[i] > 9 * result.n_done[1] / 10);
        assert_true(result.n_done[i] < 11 * result.n_done[1] / 10);
    }
    assert_true(result.n_done[0] > 2 * result.n_done[1]);
    assert_true(result.n_done[7] < result.n_done[1] / 2);
    assert_true(result.n_done[7] > 0);
}

/* Sessions with nothing to share. */
static void each_its_own(struct sim_setup *setup, uint32_t n_clients)
{
    in_step(setup, n_clients, 1, SCHED_NATURAL);
    for (uint32_t i = 0; i < n_clients; i++) {
        setup->clients[i].model = i;
    }
}

/* Whose every request is urgent chooses when to be served, and gains what others leave at most:
 * they get what they would get beside one without deadlines. */
static void short_deadlines_gain_nothing(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result honest;
    struct sim_result result;
    for (uint32_t n_clients = 3; n_clients <= 9; n_clients += 3) {
        each_its_own(&setup, n_clients);
        sim_run(&setup, &honest);
        for (uint32_t timeout_usec = 10; timeout_usec <= 250; timeout_usec += 30) {
            setup.clients[0].timeout_usec = timeout_usec;
            sim_run(&setup, &result);
            for (uint32_t i = 1; i < n_clients; i++) {
                assert_true(result.n_done[i] >= 9 * honest.n_done[i] / 10);
            }
        }
    }
}

/* Those whose every request is urgent have always the nearest deadline, and are in debt as often as
 * not: whoever seldom asks, and is owed, is in time all the same. */
static void short_deadlines_hide_nobody(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result honest;
    struct sim_result result;
    for (uint32_t n_hasty = 1; n_hasty <= 4; n_hasty++) {
        each_its_own(&setup, 8);
        setup.run_usec = 10;
        setup.clients[7].think_usec = 300;
        setup.clients[7].timeout_usec = 60;
        sim_run(&setup, &honest);
        for (uint32_t i = 0; i < n_hasty; i++) {
            setup.clients[i].timeout_usec = 25;
        }
        sim_run(&setup, &result);
        assert_true(result.n_done[7] >= 97 * honest.n_done[7] / 100);
    }
}

/* A session gets a session's share of the chunks, however many prefills it asks for at once, and
 * how soon it wants them. */
static void many_prefills_gain_nothing(void **state)
{
    (void)state;
    static struct sim_setup setup;
    struct sim_result result;
    for (uint32_t n_clients = 2; n_clients <= 4; n_clients++) {
        for (uint32_t timeout_usec = 0; timeout_usec <= 600; timeout_usec += 150) {
            each_its_own(&setup, n_clients);
            setup.seconds = 0.4;
            for (uint32_t i = 0; i < 2; i++) {
                setup.clients[i].prefill_share = 1;
                setup.clients[i].prefill_rows = 100;
            }
            setup.clients[0].n_burst = 4;
            setup.clients[0].timeout_usec = timeout_usec;
            sim_run(&setup, &result);
            assert_true(result.n_done[1] > 0);
            assert_true((double)result.n_done[0] < 1.15 * (double)result.n_done[1] + 4);
        }
    }
}

/* What clients of a daemon on an H200 did: eight that decode, whose thoughts take 5 to 40 us. */
static void recorded_clients_come_into_step(void **state)
{
    (void)state;
    static struct sched_trace trace;
    static struct sim_setup setup;
    struct sim_result results[SCHED_RENDEZVOUS + 1];
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/tests/data/decode.trace", getenv("GEMMD_SOURCE_DIR"));
    assert_true(sched_trace_read(path, &trace));
    sim_setup_trace(&trace, &setup);
    setup.n_ahead = 2;
    setup.seconds = 0.1;
    for (uint32_t mode = SCHED_OFF; mode <= SCHED_RENDEZVOUS; mode++) {
        setup.mode = (enum sched_mode)mode;
        sim_run(&setup, &results[mode]);
        assert_int_equal(results[mode].n_refused, 0);
    }
    assert_true(results[SCHED_NATURAL].per_run > 0.97 * results[SCHED_OFF].per_run);
    assert_true(results[SCHED_RENDEZVOUS].per_run > 1.1 * results[SCHED_NATURAL].per_run);
    assert_int_equal(results[SCHED_RENDEZVOUS].stats.n_in_step, trace.n_clients);
}

/* Whatever is no trace is said to be none. */
static void damaged_traces_are_refused(void **state)
{
    (void)state;
    static const char *const damaged[] = {
        "",                         /* nobody */
        "weight 10\nclient\n",      /* nothing to do */
        "weight 10\nclient\n1 5\n", /* no such weight */
        "weight 10\n0 5\n",         /* nobody's */
        "weight 0\nclient\n0 5\n",  /* no time */
        "weight 10\nclient\n0 -5\n",
        "weight 10\nclient\n0 nan\n",
        "weight 10\nclient\n0 1e300\n",
        "weight 10\nclient\n0\n",
        "weight 10\nclient\nweight 1\n0 5\n",
        "weight 10\nclient\n0 5\nclient\n",
    };
    static struct sched_trace trace;
    char path[] = "/tmp/gemmd-trace-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (uint32_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, damaged[i], strlen(damaged[i]), 0), strlen(damaged[i]));
        assert_false(sched_trace_read(path, &trace));
    }
    (void)close(fd);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_share_every_launch),
        cmocka_unit_test(launches_ahead_save_their_way),
        cmocka_unit_test(launches_ahead_end_where_they_cost),
        cmocka_unit_test(asking_ahead_changes_nothing),
        cmocka_unit_test(slow_one_throttles_nobody),
        cmocka_unit_test(who_may_not_be_held_is_not),
        cmocka_unit_test(no_gain_no_hold),
        cmocka_unit_test(prefill_stays_in_its_share),
        cmocka_unit_test(device_time_is_shared),
        cmocka_unit_test(short_deadlines_gain_nothing),
        cmocka_unit_test(short_deadlines_hide_nobody),
        cmocka_unit_test(many_prefills_gain_nothing),
        cmocka_unit_test(recorded_clients_come_into_step),
        cmocka_unit_test(damaged_traces_are_refused),
        cmocka_unit_test(random_scenarios),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
