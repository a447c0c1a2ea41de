/* test-cost.c - what launches take, learned from launches. */
#include "tests/unit/engine/cmocka_all.h"

#include "daemon/engine/cost.h"

static void nothing_is_known_at_first(void **state)
{
    (void)state;
    struct cost cost = {{0}};
    assert_int_equal(cost_nsec(&cost, 1), 0);
    assert_int_equal(cost_nsec(&cost, 64), 0);
}

/* A size that has not run takes what the nearest smaller one did, else the nearest larger one. */
static void sizes_stand_in_for_others(void **state)
{
    (void)state;
    struct cost cost = {{0}};
    cost_learn(&cost, 4, 4000);
    cost_learn(&cost, 64, 64000);
    assert_int_equal(cost_nsec(&cost, 1), 4000);
    assert_int_equal(cost_nsec(&cost, 3), 4000);
    assert_int_equal(cost_nsec(&cost, 32), 4000);
    assert_int_equal(cost_nsec(&cost, 33), 64000);
    assert_int_equal(cost_nsec(&cost, 4096), 64000);
}

static void the_mean_follows(void **state)
{
    (void)state;
    struct cost cost = {{0}};
    cost_learn(&cost, 1, 1000);
    for (uint32_t i = 0; i < 50; i++) {
        cost_learn(&cost, 1, 3000);
    }
    assert_in_range(cost_nsec(&cost, 1), 2950, 3000);
    cost_learn(&cost, 1, 3000000); /* something else held it up */
    assert_in_range(cost_nsec(&cost, 1), 3000, 4200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_at_first),
        cmocka_unit_test(sizes_stand_in_for_others),
        cmocka_unit_test(the_mean_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
