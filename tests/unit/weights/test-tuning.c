/* test-tuning.c - which kernel a measurement chooses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/weights/tuning.h"

static int can(const struct gk_problem *problem, struct reason *why)
{
    (void)problem;
    (void)why;
    return 0;
}

static int can_from_17(const struct gk_problem *problem, struct reason *why)
{
    (void)why;
    return problem->m >= 17 ? 0 : STATUS_UNSUPPORTED;
}

static const struct gk_kernel first = {.name = "first", .can_implement = can};
static const struct gk_kernel second = {.name = "second", .can_implement = can_from_17};

static const struct gk_kernel *chosen(const struct tuning *tuning, uint32_t m, enum dtype y_dtype)
{
    struct gk_problem problem = {.m = m, .x_dtype = DTYPE_BF16, .y_dtype = y_dtype};
    return tuning_choice(tuning, &problem);
}

static void check_buckets(uint32_t i_first, uint32_t n, uint32_t rows_max, bool is_large)
{
    for (uint32_t m = 1; m <= rows_max; m++) {
        uint32_t i = tuning_bucket_of(m, is_large);
        assert_in_range(i, i_first, i_first + n - 1);
        assert_true(tuning_rows(i) >= m);
        assert_true(i == i_first || tuning_rows(i - 1) < m);
    }
    assert_int_equal(tuning_rows(i_first + n - 1), rows_max);
    assert_int_equal(tuning_bucket_of(rows_max + 1, is_large), i_first + n - 1);
}

static void test_buckets(void **state)
{
    (void)state;
    check_buckets(0, TUNING_BATCH_BUCKETS, GK_BATCH_ROWS_MAX, false);
    check_buckets(TUNING_BATCH_BUCKETS, TUNING_BUCKETS - TUNING_BATCH_BUCKETS, 1024, true);
}

/* Times of prefill stand apart: those of a batch say nothing about it. */
static void test_prefill_is_measured_apart(void **state)
{
    (void)state;
    struct tuning *tuning;
    assert_int_equal(tuning_new(DTYPE_BF16, &tuning), 0);
    tuning_add(tuning, tuning_bucket_of(64, false), &first, 10.0);
    tuning_add(tuning, tuning_bucket_of(64, true), &second, 70.0);
    assert_true(tuning_usec(tuning, &first, 64) == 10.0);
    assert_true(tuning_usec(tuning, &second, 128) == 70.0);
    assert_true(tuning_usec(tuning, &first, 128) == 0);
    assert_true(tuning_usec(tuning, &second, 127) == 0);
    assert_true(tuning_usec(tuning, &second, 1024) == 0);
    assert_ptr_equal(chosen(tuning, 64, DTYPE_BF16), &first);
    tuning_unref(tuning);
}

static void test_faster_kernel_is_chosen(void **state)
{
    (void)state;
    struct tuning *tuning;
    assert_int_equal(tuning_new(DTYPE_BF16, &tuning), 0);
    tuning_add(tuning, tuning_bucket_of(16, false), &first, 10.0);
    tuning_add(tuning, tuning_bucket_of(16, false), &second, 9.9); /* noise */
    tuning_add(tuning, tuning_bucket_of(32, false), &first, 20.0);
    tuning_add(tuning, tuning_bucket_of(32, false), &second, 15.0);
    assert_ptr_equal(chosen(tuning, 16, DTYPE_BF16), &first);
    assert_ptr_equal(chosen(tuning, 17, DTYPE_BF16), &second);
    assert_ptr_equal(chosen(tuning, 32, DTYPE_BF16), &second);
    assert_null(chosen(tuning, 33, DTYPE_BF16)); /* nobody measured */
    assert_null(chosen(tuning, 32, DTYPE_F32));  /* nor this */
    assert_null(chosen(NULL, 32, DTYPE_BF16));
    assert_true(tuning_usec(tuning, &second, 32) == 15.0);
    assert_true(tuning_usec(tuning, &second, 31) == 0);
    tuning_unref(tuning);
}

/* A bucket's kernel may be unable to do fewer rows than were measured. */
static void test_chosen_kernel_must_be_able(void **state)
{
    (void)state;
    struct tuning *tuning;
    assert_int_equal(tuning_new(DTYPE_BF16, &tuning), 0);
    tuning_add(tuning, tuning_bucket_of(16, false), &first, 10.0);
    tuning_add(tuning, tuning_bucket_of(16, false), &second, 5.0);
    assert_null(chosen(tuning, 9, DTYPE_BF16));
    struct tuning *again = tuning_ref(tuning);
    assert_null(tuning_unref(tuning));
    assert_true(tuning_usec(again, &first, 16) == 10.0);
    tuning_unref(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_prefill_is_measured_apart),
        cmocka_unit_test(test_faster_kernel_is_chosen),
        cmocka_unit_test(test_chosen_kernel_must_be_able),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
