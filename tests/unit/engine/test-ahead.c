/* test-ahead.c - whether launches ahead pay, as laps with and without them tell. */
#include "tests/unit/engine/cmocka_all.h"

#include <string.h>

#include "daemon/engine/ahead.h"
#include "ipc/base/clock.h"

#define N_NODES 16u
#define USEC    (uint64_t) CLOCK_NSEC_PER_USEC

/* What a step takes, by way. */
struct machine {
    uint64_t usec[AHEAD_WAYS];
};

/* So many launches; counts those in each way. */
static void go_round(struct ahead *ahead, uint64_t *now_nsec, uint32_t n_launches,
                     const struct machine *machine, uint32_t ret_n[AHEAD_WAYS])
{
    memset(ret_n, 0, AHEAD_WAYS * sizeof(ret_n[0]));
    for (uint32_t i = 0; i < n_launches; i++) {
        ahead_launched(ahead, N_NODES, *now_nsec);
        ret_n[ahead_now(ahead)]++;
        *now_nsec += machine->usec[ahead_now(ahead)] * USEC;
    }
}

/* The way in which most launches of 10000 are, after some others. */
static enum ahead_way settles_in(struct ahead *ahead, uint64_t *now_nsec,
                                 const struct machine *machine)
{
    uint32_t n[AHEAD_WAYS];
    go_round(ahead, now_nsec, 20000, machine, n);
    go_round(ahead, now_nsec, 10000, machine, n);
    enum ahead_way most = AHEAD_NOT;
    for (uint32_t way = 0; way < AHEAD_WAYS; way++) {
        assert_true(n[way] > 0); /* all are tried now and then */
        most = n[way] > n[most] ? (enum ahead_way)way : most;
    }
    assert_true(n[most] > 9000);
    return most;
}

static const struct machine gains = {{53, 45, 40}};
static const struct machine gains_in_line = {{53, 45, 70}};
static const struct machine gains_nothing = {{50, 50, 60}};

static void the_best_way_is_gone_on_with(void **state)
{
    (void)state;
    struct ahead ahead = {.n_laps = 0};
    uint64_t now_nsec = 1;
    assert_int_equal(settles_in(&ahead, &now_nsec, &gains), AHEAD_IN_PLACE);
}

/* More sessions come, or other processes: what was true is not any more. */
static void it_changes_its_mind(void **state)
{
    (void)state;
    struct ahead ahead = {.n_laps = 0};
    uint64_t now_nsec = 1;
    assert_int_equal(settles_in(&ahead, &now_nsec, &gains_in_line), AHEAD_IN_LINE);
    assert_int_equal(settles_in(&ahead, &now_nsec, &gains_nothing), AHEAD_NOT);
    assert_int_equal(settles_in(&ahead, &now_nsec, &gains), AHEAD_IN_PLACE);
    assert_int_equal(settles_in(&ahead, &now_nsec, &gains_in_line), AHEAD_IN_LINE);
}

static void misses_end_a_lap(void **state)
{
    (void)state;
    struct ahead ahead = {.n_laps = 0};
    uint64_t now_nsec = 1;
    uint32_t n[AHEAD_WAYS];
    uint32_t n_missed = 0;
    while (ahead_now(&ahead) == AHEAD_NOT) {
        go_round(&ahead, &now_nsec, 1, &gains, n);
    }
    for (; ahead_now(&ahead) != AHEAD_NOT; n_missed++) {
        ahead_missed(&ahead);
    }
    assert_in_range(n_missed, 2, 8);
}

/* A pass that is thought about for long afterwards, longer by chance without launches ahead. */
static void pauses_are_no_reason(void **state)
{
    (void)state;
    struct ahead ahead = {.n_laps = 0};
    uint64_t now_nsec = 1;
    uint32_t n[AHEAD_WAYS];
    for (uint32_t i = 0; i < 100; i++) {
        go_round(&ahead, &now_nsec, N_NODES, &gains_nothing, n);
        now_nsec += (ahead_now(&ahead) == AHEAD_NOT ? 9000 : 2000) * USEC;
    }
    go_round(&ahead, &now_nsec, 1000, &gains_nothing, n);
    assert_true(n[AHEAD_NOT] > 900);
}

/* Longer than any step: a stall counts all the same. */
static const struct machine stalls_in_place = {{40, 38, 1200}};

static void stalls_are_a_reason(void **state)
{
    (void)state;
    struct ahead ahead = {.n_laps = 0};
    uint64_t now_nsec = 1;
    assert_int_equal(settles_in(&ahead, &now_nsec, &stalls_in_place), AHEAD_IN_LINE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_way_is_gone_on_with),
        cmocka_unit_test(it_changes_its_mind),
        cmocka_unit_test(misses_end_a_lap),
        cmocka_unit_test(pauses_are_no_reason),
        cmocka_unit_test(stalls_are_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
