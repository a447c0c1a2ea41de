/* test-ahead.c - whether launches ahead pay, as laps with and without them tell. */
#include "tests/unit/engine/cmocka_all.h"

#include "daemon/engine/ahead.h"
#include "ipc/base/clock.h"

#define N_NODES 16u
#define USEC    (uint64_t) CLOCK_NSEC_PER_USEC

/* So many launches; how many of them were in laps with launches ahead. */
static uint32_t go_round(struct ahead *ahead, uint64_t *now_nsec, uint32_t n_launches,
                         uint64_t with_usec, uint64_t without_usec)
{
    uint32_t n_on = 0;
    for (uint32_t i = 0; i < n_launches; i++) {
        ahead_launched(ahead, N_NODES, *now_nsec);
        n_on += ahead_is_on(ahead);
        *now_nsec += (ahead_is_on(ahead) ? with_usec : without_usec) * USEC;
    }
    return n_on;
}

static void it_goes_on_where_it_pays(void **state)
{
    (void)state;
    struct ahead ahead = {.n_laps = 0};
    uint64_t now_nsec = 1;
    (void)go_round(&ahead, &now_nsec, 400, 28, 53);
    assert_true(go_round(&ahead, &now_nsec, 10000, 28, 53) > 9000);
    assert_true(go_round(&ahead, &now_nsec, 10000, 28, 53) < 10000); /* without, now and then */
}

static void it_stops_where_it_does_not(void **state)
{
    (void)state;
    struct ahead ahead = {.n_laps = 0};
    uint64_t now_nsec = 1;
    (void)go_round(&ahead, &now_nsec, 400, 30, 29);
    assert_true(go_round(&ahead, &now_nsec, 10000, 30, 29) < 1000);
    assert_true(go_round(&ahead, &now_nsec, 10000, 30, 29) > 0); /* tried now and then */
}

/* More sessions come, or other processes: what was true is not any more. */
static void it_changes_its_mind(void **state)
{
    (void)state;
    struct ahead ahead = {.n_laps = 0};
    uint64_t now_nsec = 1;
    (void)go_round(&ahead, &now_nsec, 4000, 20, 25);
    (void)go_round(&ahead, &now_nsec, 4000, 60, 50);
    assert_true(go_round(&ahead, &now_nsec, 10000, 60, 50) < 1000);
    (void)go_round(&ahead, &now_nsec, 4000, 20, 25);
    assert_true(go_round(&ahead, &now_nsec, 10000, 20, 25) > 9000);
}

static void misses_end_a_lap(void **state)
{
    (void)state;
    struct ahead ahead = {.n_laps = 0};
    uint64_t now_nsec = 1;
    uint32_t n_missed = 0;
    while (!ahead_is_on(&ahead)) {
        (void)go_round(&ahead, &now_nsec, 1, 20, 20);
    }
    for (; ahead_is_on(&ahead); n_missed++) {
        ahead_missed(&ahead);
    }
    assert_in_range(n_missed, 2, 8);
}

/* A pass that is thought about for long afterwards, without launches ahead by chance. */
static void pauses_measure_nothing(void **state)
{
    (void)state;
    struct ahead ahead = {.n_laps = 0};
    uint64_t now_nsec = 1;
    for (uint32_t i = 0; i < 100; i++) {
        (void)go_round(&ahead, &now_nsec, N_NODES, 29, 28);
        now_nsec += (ahead_is_on(&ahead) ? 2000 : 9000) * USEC;
    }
    assert_true(go_round(&ahead, &now_nsec, 10000, 29, 28) < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_goes_on_where_it_pays), cmocka_unit_test(it_stops_where_it_does_not),
        cmocka_unit_test(it_changes_its_mind),      cmocka_unit_test(misses_end_a_lap),
        cmocka_unit_test(pauses_measure_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
