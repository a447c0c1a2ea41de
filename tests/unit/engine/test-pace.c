/* test-pace.c - rates of a device shared by sessions, against ones that can be told by hand, and
 * who should move together. */
#include "tests/unit/engine/cmocka_all.h"

#include <stdbool.h>

#include "daemon/engine/pace.h"

#define N 16u

static const struct pace_runs flat = {{30, 30, 30, 30, 30, 30, 30, 30}};

static bool is_near(double value, double expected)
{
    return value > 0.97 * expected && value < 1.03 * expected;
}

static void alone(void **state)
{
    (void)state;
    assert_true(is_near(pace_rate(&(struct pace_group){30, 20, 1}, 1), 1 / 50.0));
    assert_true(is_near(pace_rate(&(struct pace_group){30, 20, 8}, 1), 8 / 50.0));
}

/* Always asked for more than it can, a device is always busy. */
static void a_busy_device_has_its_own_rate(void **state)
{
    (void)state;
    struct pace_group groups[N];
    for (uint32_t i = 0; i < N; i++) {
        groups[i] = (struct pace_group){30, 5, 1};
    }
    assert_true(is_near(pace_rate(groups, N), 1 / 30.0));
    assert_true(is_near(pace_rate(groups, 2), 1 / 30.0));
}

static void think(struct pace_session *sessions, uint32_t n, double think_nsec)
{
    for (uint32_t i = 0; i < n; i++) {
        sessions[i] = (struct pace_session){think_nsec, 0};
    }
}

static void equals_move_together(void **state)
{
    (void)state;
    struct pace_session sessions[N];
    think(sessions, N, 5);
    assert_int_equal(pace_cohort(sessions, N, &flat), N);
    assert_int_equal(pace_cohort(sessions, 2, &flat), 2);
}

static void the_slow_one_does_not(void **state)
{
    (void)state;
    struct pace_session sessions[N];
    think(sessions, N, 5);
    sessions[N - 1].think_nsec = 500;
    assert_int_equal(pace_cohort(sessions, N, &flat), N - 1);
}

/* Nobody does where the device has time for everybody, or where rows cost in full. */
static void no_gain(void **state)
{
    (void)state;
    static const struct pace_runs full = {{30, 60, 120, 240, 480, 960, 1920, 1920}};
    struct pace_session sessions[N];
    think(sessions, N, 5000);
    assert_int_equal(pace_cohort(sessions, 2, &flat), 0);
    think(sessions, N, 20);
    assert_int_equal(pace_cohort(sessions, 2, &full), 0);
    assert_int_equal(pace_cohort(sessions, 4, &full), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),
        cmocka_unit_test(a_busy_device_has_its_own_rate),
        cmocka_unit_test(equals_move_together),
        cmocka_unit_test(the_slow_one_does_not),
        cmocka_unit_test(no_gain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
