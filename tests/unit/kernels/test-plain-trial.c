/* test-plain-trial.c - which of a library's algorithms are taken: only such as give a row the bits
 * of the first good one at every m, and of those the fastest, range by range. */
#include <cuda_runtime_api.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "kernels/cuda/plain_trial.h"
#include "tests/unit/kernels/fake_cublaslt.h"

#define M 256u
#define N 64u
#define K 16u

static uint16_t w[K * N];

static int fill_w(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < K * N; i++) {
        w[i] = bf16_from_f32(0.37f + 0.011f * (float)(i % 61));
    }
    return 0;
}

static struct cublaslt_gemm gemm_of(enum dtype y_dtype)
{
    return (struct cublaslt_gemm){.m = M,
                                  .n = N,
                                  .k = K,
                                  .dtype = DTYPE_BF16,
                                  .y_dtype = y_dtype,
                                  .bias_dtype = y_dtype == DTYPE_F32 ? DTYPE_NONE : DTYPE_BF16,
                                  .w_stride = N,
                                  .x_stride = K,
                                  .y_stride = N};
}

static void try_all(const struct fake_algorithm *algorithms, uint32_t n,
                    struct plain_plan *ret_plan, struct reason *ret_note)
{
    const struct cublaslt_gemm sums = gemm_of(DTYPE_F32), rounded = gemm_of(DTYPE_BF16);
    fake_algorithms = algorithms;
    fake_n_algorithms = n;
    *ret_note = REASON_NULL;
    assert_int_equal(plain_trial(&sums, &rounded, w, ret_plan, ret_note), cudaSuccess);
    assert_int_equal(fake_n_held, 0);
}

#define assert_chosen(choice, m, index)                                                            \
    assert_int_equal(fake_index_of(plain_algorithm((choice), (m))), (index))

static void assert_all_chosen(const struct plain_plan *plan, uint32_t index)
{
    for (uint32_t m = 1; m <= M; m++) {
        assert_chosen(&plan->sums, m, index);
        assert_chosen(&plan->rounded, m, index);
    }
}

/* The first says what the bits are; a faster one that has others of its own is no choice. */
static void test_time_decides_no_bit(void **state)
{
    (void)state;
    static const struct fake_algorithm algorithms[] = {{.order = FAKE_ORDER_A, .msec = 2},
                                                       {.order = FAKE_ORDER_B, .msec = 1},
                                                       {.order = FAKE_ORDER_A, .msec = 1.5f}};
    struct plain_plan plan;
    struct reason note = REASON_NULL;
    try_all(algorithms, ARRAY_LENGTH(algorithms), &plan, &note);
    assert_int_equal(note.status, 0);
    assert_all_chosen(&plan, 2);
}

static void test_bits_that_change_with_m(void **state)
{
    (void)state;
    static const struct fake_algorithm algorithms[] = {{.order = FAKE_ORDER_BY_M, .msec = 1},
                                                       {.order = FAKE_ORDER_B, .msec = 3},
                                                       {.order = FAKE_ORDER_A, .msec = 2}};
    struct plain_plan plan;
    struct reason note = REASON_NULL;
    try_all(algorithms, ARRAY_LENGTH(algorithms), &plan, &note);
    assert_int_equal(note.status, 0);
    assert_all_chosen(&plan, 1);
    try_all(algorithms, 1, &plan, &note);
    assert_string_equal(note.text, "no algorithm of cuBLASLt gives a row the same bits at every m: "
                                   "of 1 trials 1 gave other bits, 0 were declined");
    assert_int_equal(plan.sums.rows_max, 0);
    try_all(algorithms, 0, &plan, &note);
    assert_string_equal(note.text, "cuBLASLt names no algorithm for it");
}

/* What fails is not taken, is told from what has other bits, and told also where others serve. */
static void test_what_fails(void **state)
{
    (void)state;
    static const struct fake_algorithm algorithms[] = {{.order = FAKE_ORDER_A, .fails = true},
                                                       {.order = FAKE_ORDER_BY_M, .msec = 1},
                                                       {.order = FAKE_ORDER_A, .msec = 2}};
    struct plain_plan plan;
    struct reason note = REASON_NULL;
    try_all(algorithms, ARRAY_LENGTH(algorithms), &plan, &note);
    assert_all_chosen(&plan, 2);
    assert_int_equal(note.status, STATUS_DEVICE_ERROR);
    try_all(algorithms, 2, &plan, &note);
    assert_int_equal(plan.sums.rows_max, 0);
    assert_string_equal(
        note.text, "cuBLASLt failed with CUBLAS_STATUS_EXECUTION_FAILED at 256 rows: of 2 "
                   "trials of an algorithm 1 failed, 1 gave a row other bits, 0 were declined");
}

static void test_the_fastest_of_each_range(void **state)
{
    (void)state;
    static const struct fake_algorithm algorithms[] = {
        {.order = FAKE_ORDER_A, .msec = 2},
        {.order = FAKE_ORDER_A, .msec = 1, .few_rows = 96, .many_msec = 4},
        {.order = FAKE_ORDER_A, .msec = 5, .few_rows = 192, .many_msec = 1.5f}};
    struct plain_plan plan;
    struct reason note = REASON_NULL;
    try_all(algorithms, ARRAY_LENGTH(algorithms), &plan, &note);
    for (uint32_t m = 1; m <= M; m++) {
        uint32_t index = m <= 96 ? 1 : m <= 192 ? 0 : 2;
        assert_chosen(&plan.sums, m, index);
        assert_chosen(&plan.rounded, m, index);
    }
}

/* What the library names for many rows only is tried for fewer as well. */
static void test_a_range_that_has_none_of_its_own(void **state)
{
    (void)state;
    static const struct fake_algorithm algorithms[] = {
        {.order = FAKE_ORDER_B, .msec = 1, .ranked_max = 64}, {.order = FAKE_ORDER_A, .msec = 2}};
    struct plain_plan plan;
    struct reason note = REASON_NULL;
    try_all(algorithms, ARRAY_LENGTH(algorithms), &plan, &note);
    assert_int_equal(note.status, 0);
    assert_all_chosen(&plan, 1);
}

/* One that declines a single m, or rows with gaps, is not taken where these may come. */
static void test_what_cannot_all(void **state)
{
    (void)state;
    static const struct fake_algorithm algorithms[] = {
        {.order = FAKE_ORDER_A, .msec = 3},
        {.order = FAKE_ORDER_A, .msec = 1, .is_dense_only = true},
        {.order = FAKE_ORDER_A, .msec = 2, .refused_m = 150}};
    struct plain_plan plan;
    struct reason note = REASON_NULL;
    try_all(algorithms, ARRAY_LENGTH(algorithms), &plan, &note);
    for (uint32_t m = 1; m <= M; m++) {
        assert_chosen(&plan.rounded, m, m > 128 && m <= 192 ? 0 : 2);
    }
}

/* What the library finishes has to be what finished sums are. */
static void test_rounding_of_its_own(void **state)
{
    (void)state;
    static const struct fake_algorithm algorithms[] = {
        {.order = FAKE_ORDER_A, .msec = 1, .truncates = true}, {.order = FAKE_ORDER_A, .msec = 2}};
    struct plain_plan plan;
    struct reason note = REASON_NULL;
    try_all(algorithms, ARRAY_LENGTH(algorithms), &plan, &note);
    assert_chosen(&plan.sums, M, 0);
    assert_chosen(&plan.rounded, M, 1);
    try_all(algorithms, 1, &plan, &note);
    assert_int_equal(note.status, 0);
    assert_int_equal(plan.sums.rows_max, M);
    assert_int_equal(plan.rounded.rows_max, 0);
}

/* Zeros are the same in any order, and yet the plan is for all weights of their shape. */
static void test_a_weight_of_zeros(void **state)
{
    static const struct fake_algorithm algorithms[] = {{.order = FAKE_ORDER_BY_M, .msec = 1},
                                                       {.order = FAKE_ORDER_A, .msec = 2},
                                                       {.order = FAKE_ORDER_B, .msec = 1}};
    struct plain_plan plan;
    struct reason note = REASON_NULL;
    memset(w, 0, sizeof(w));
    try_all(algorithms, ARRAY_LENGTH(algorithms), &plan, &note);
    assert_int_equal(note.status, 0);
    assert_all_chosen(&plan, 1);
    (void)fill_w(state);
}

/* A device that is lost must not look as if it had no algorithm. */
static void test_a_device_that_is_lost(void **state)
{
    (void)state;
    static const struct fake_algorithm algorithms[] = {{.order = FAKE_ORDER_A, .msec = 1}};
    const struct cublaslt_gemm sums = gemm_of(DTYPE_F32), rounded = gemm_of(DTYPE_BF16);
    struct plain_plan plan;
    struct reason note = REASON_NULL;
    fake_algorithms = algorithms;
    fake_n_algorithms = ARRAY_LENGTH(algorithms);
    fake_is_lost_at_product = true;
    assert_int_equal(plain_trial(&sums, &rounded, w, &plan, &note), cudaErrorLaunchFailure);
    fake_is_lost_at_product = false;
    assert_int_equal(fake_n_held, 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    const struct cublaslt_gemm sums = gemm_of(DTYPE_F32), rounded = gemm_of(DTYPE_BF16);
    struct plain_plan plan;
    struct reason note = REASON_NULL;
    fake_has_no_memory = true;
    assert_int_equal(plain_trial(&sums, &rounded, w, &plan, &note), cudaErrorMemoryAllocation);
    fake_has_no_memory = false;
    assert_int_equal(fake_n_held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_decides_no_bit),
        cmocka_unit_test(test_bits_that_change_with_m),
        cmocka_unit_test(test_what_fails),
        cmocka_unit_test(test_the_fastest_of_each_range),
        cmocka_unit_test(test_a_range_that_has_none_of_its_own),
        cmocka_unit_test(test_what_cannot_all),
        cmocka_unit_test(test_rounding_of_its_own),
        cmocka_unit_test(test_a_weight_of_zeros),
        cmocka_unit_test(test_a_device_that_is_lost),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, fill_w, NULL);
}
