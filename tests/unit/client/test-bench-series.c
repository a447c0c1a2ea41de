/* test-bench-series.c - what is read from measurements: figures, ridges, crossovers. */
#include "tests/unit/client/bench_case.h"

static struct bench_sweep sweep;

static int set_up(void **state)
{
    (void)state;
    sweep_init(&sweep);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    bench_sweep_finish(&sweep);
    return 0;
}

static void test_rows_become_series(void **state)
{
    (void)state;
    uint32_t m[MSG_BENCH_M_MAX];
    assert_int_equal(sweep.n_series, 3);
    assert_string_equal(sweep.series[1].format, "int4");
    assert_string_equal(sweep.series[1].kernel, "decode");
    assert_int_equal(sweep.series[1].n_points, 3);
    assert_int_equal(bench_sweep_rows(&sweep, m), 3);
    assert_int_equal(m[0], 1);
    assert_int_equal(m[2], 64);
    assert_near(bench_series_usec(&sweep.series[2], 16), 25, 0);
    assert_near(bench_series_usec(&sweep.series[2], 17), 0, 0);
    assert_near(bench_best_usec(&sweep, "int4", 1), 20, 0);
    assert_near(bench_best_usec(&sweep, "int4", 64), 25, 0);
    assert_near(bench_best_usec(&sweep, "fp8", 64), 0, 0);
    assert_near(bench_best_usec(&sweep, NULL, 1), 20, 0);
}

/* Rows that make no sense are not believed: out of order, twice, no time. */
static void test_odd_rows_are_dropped(void **state)
{
    (void)state;
    const struct bench_case_row rows[] = {{4, "k", 1, false},        {4, "k", 2, false},
                                          {2, "k", 3, false},        {8, "k", 0, false},
                                          {16, "k", nan(""), false}, {32, "k", 5, false}};
    add_format(&sweep, "odd", rows, 6);
    const struct bench_series *series = &sweep.series[3];
    assert_int_equal(series->n_points, 2);
    assert_int_equal(series->points[1].m, 32);
}

static void test_figures(void **state)
{
    (void)state;
    const struct bench_series *series = &sweep.series[1];
    struct bench_figures figures = bench_figures(&sweep, series, &series->points[0]);
    assert_near(figures.floor_ratio, 2, 1e-12);
    assert_near(figures.gbps, 50, 1e-9);    /* 1 MB in 20 us */
    assert_near(figures.tflops, 0.1, 1e-9); /* 2 MFLOP in 20 us */
    assert_near(figures.speedup, 2, 1e-12); /* 40 us */
    assert_true(figures.is_fastest);
    figures = bench_figures(&sweep, series, &series->points[1]);
    assert_false(figures.is_fastest);
    assert_near(figures.tflops, 0.2, 1e-9); /* 32 MFLOP in 160 us */
    sweep.baseline = "none";
    assert_near(bench_figures(&sweep, series, &series->points[1]).speedup, 0, 0);
}

static void test_ridge(void **state)
{
    (void)state;
    /* 40 us meet the line through 160 us at 64 rows, 2.5 us a row, at 16 rows. */
    assert_near(bench_ridge(&sweep.series[0]), 16, 1e-9);
    assert_near(bench_ridge(&sweep.series[1]), 2, 1e-9);
    assert_near(bench_ridge(&sweep.series[2]), 0, 0); /* never grows */
    struct bench_series one = sweep.series[0];
    one.n_points = 1;
    assert_near(bench_ridge(&one), 0, 0);
}

static void test_crossover(void **state)
{
    (void)state;
    struct bench_crossover crossovers[4];
    assert_int_equal(bench_crossovers(&sweep.series[1], &sweep.series[2], crossovers, 4), 1);
    /* log2 of the ratio goes from -0.32 at 1 row to 2.68 at 16: it is 0 at 2^(4 * 0.107). */
    assert_near(crossovers[0].m, exp2(4 * log2(25.0 / 20) / (log2(8) + 0)), 1e-9);
    assert_false(crossovers[0].is_first_faster);
    assert_int_equal(bench_crossovers(&sweep.series[2], &sweep.series[1], crossovers, 4), 1);
    assert_true(crossovers[0].is_first_faster);
    assert_int_equal(bench_crossovers(&sweep.series[0], &sweep.series[2], crossovers, 4), 0);
}

/* Ties are no crossovers, and there are no more than asked for. */
static void test_crossovers_of_near_twins(void **state)
{
    (void)state;
    static const struct bench_case_row a[] = {
        {1, "a", 10, false}, {2, "a", 10.05, false}, {4, "a", 10, false}, {8, "a", 20, false}};
    static const struct bench_case_row b[] = {
        {1, "b", 11, false}, {2, "b", 10, false}, {4, "b", 10.05, false}, {8, "b", 10, false}};
    struct bench_crossover crossovers[2];
    add_format(&sweep, "a", a, 4);
    add_format(&sweep, "b", b, 4);
    assert_int_equal(bench_crossovers(&sweep.series[3], &sweep.series[4], crossovers, 2), 1);
    assert_true(crossovers[0].m > 1 && crossovers[0].m < 8);
    assert_int_equal(bench_crossovers(&sweep.series[3], &sweep.series[4], crossovers, 0), 0);
}

static void test_notable_series(void **state)
{
    (void)state;
    static const struct bench_case_row rows[] = {{1, "slow", 900, false}, {1, "quick", 9, false}};
    assert_true(bench_is_notable(&sweep, &sweep.series[0]));
    add_format(&sweep, "fp8", rows, 2);
    assert_false(bench_is_notable(&sweep, &sweep.series[3]));
    assert_true(bench_is_notable(&sweep, &sweep.series[4]));
}

static void test_padded_shapes(void **state)
{
    (void)state;
    struct bench_shape padded;
    assert_true(bench_padded_shape(&sweep.shape, &padded));
    assert_int_equal(padded.n, 1024);
    assert_int_equal(padded.k, 1024);
    assert_false(bench_padded_shape(&padded, &padded));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(rows_become_series),
        TEST(odd_rows_are_dropped),
        TEST(figures),
        TEST(ridge),
        TEST(crossover),
        TEST(crossovers_of_near_twins),
        TEST(notable_series),
        TEST(padded_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
