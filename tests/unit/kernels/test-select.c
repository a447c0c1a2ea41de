/* test-select.c - which kernel is chosen, why others decline, and the rounding of every kernel's
 * output over all codes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "kernel_case.h"

static struct gk_problem good_problem(void)
{
    struct gk_desc desc = desc_int4(384, 384, 128, DTYPE_F16, DTYPE_NONE);
    return (struct gk_problem){.desc = desc,
                               .layout = gk_layout_for(&desc, GK_DEVICE_HOST),
                               .m = 1,
                               .x_dtype = DTYPE_BF16,
                               .y_dtype = DTYPE_BF16};
}

static int lift_limit(void **state)
{
    (void)state;
    return gk_host_isa_limit(NULL, NULL);
}

static void test_first_eligible_row_is_chosen(void **state)
{
    (void)state;
    struct gk_problem problem = good_problem();
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    const struct gk_kernel *first = NULL, *chosen = NULL;
    for (uint32_t i = n_kernels; i-- > 0;) {
        if (kernels[i]->can_implement(&problem, NULL) == 0) {
            first = kernels[i];
        }
    }
    assert_non_null(first);
    assert_int_equal(gk_select(&problem, &chosen, NULL), 0);
    assert_ptr_equal(chosen, first);
}

static void test_limit(void **state)
{
    (void)state;
    struct gk_problem problem = good_problem();
    const struct gk_kernel *chosen = NULL;
    struct reason why = REASON_NULL;
    assert_int_equal(gk_host_isa_limit("portable", &why), 0);
    assert_int_equal(gk_select(&problem, &chosen, &why), 0);
    assert_string_equal(chosen->name, "portable_int4_gemm_group");
    const struct gk_kernel *avx2 = kernel_find("avx2_int4_gemm_group");
    if (avx2 != NULL) {
        assert_int_equal(avx2->can_implement(&problem, &why), STATUS_UNSUPPORTED);
        assert_true(strstr(why.text, "forbidden") != NULL || strstr(why.text, "this CPU") != NULL);
    }
    assert_int_equal(gk_host_isa_limit("sse9", &why), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, "sse9"));
}

static void expect_refused(const struct gk_problem *problem, const char *words)
{
    const struct gk_kernel *chosen = NULL;
    struct reason why = REASON_NULL;
    assert_int_equal(gk_select(problem, &chosen, &why), STATUS_UNSUPPORTED);
    assert_null(chosen);
    assert_non_null(strstr(why.text, words));
}

static void test_refusals(void **state)
{
    (void)state;
    struct gk_problem problem = good_problem();
    problem.m = 0;
    expect_refused(&problem, "1 to 64 rows, not 0");
    problem.m = GK_BATCH_ROWS_MAX + 1;
    expect_refused(&problem, "1 to 64 rows, not 65");
    problem = good_problem();
    problem.x_dtype = DTYPE_I8;
    expect_refused(&problem, "x of type");
    problem = good_problem();
    problem.layout = NULL;
    expect_refused(&problem, "layout");
    problem = good_problem();
    problem.desc.group_k = 0;
    expect_refused(&problem, "group_k is 0");
    problem = good_problem();
    problem.desc.code = 99;
    expect_refused(&problem, "it is for int4 weights");
}

static int clear_wishes(void **state)
{
    (void)state;
    gk_wishes_clear();
    return 0;
}

static void test_disabled_kernel_is_not_chosen(void **state)
{
    (void)state;
    struct gk_problem problem = good_problem();
    const struct gk_kernel *first = NULL, *chosen = NULL;
    struct reason why = REASON_NULL;
    assert_int_equal(gk_select(&problem, &first, NULL), 0);
    assert_int_equal(gk_judge(&problem, first, &why), 0);
    assert_int_equal(gk_disable(first->name, &why), 0);
    assert_int_equal(gk_judge(&problem, first, &why), STATUS_UNSUPPORTED);
    assert_non_null(strstr(why.text, "disabled"));
    if (strcmp(first->name, "portable_int4_gemm_group") != 0) {
        assert_int_equal(gk_select(&problem, &chosen, NULL), 0);
        assert_ptr_not_equal(chosen, first);
    }
    assert_int_equal(gk_disable("portable_int4_gemm_group", &why), 0);
    assert_int_equal(gk_disable("avx2_int4_gemm_fast", &why), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, "no kernel 'avx2_int4_gemm_fast'"));
}

/* What is an operator's own doing is told as that, without the kernels that could not anyway. */
static void test_all_are_disabled(void **state)
{
    (void)state;
    struct gk_problem problem = good_problem();
    const struct gk_kernel *candidates[GK_KERNELS_MAX], *chosen = NULL;
    struct reason why = REASON_NULL;
    uint32_t n = gk_candidates(&problem, candidates);
    for (uint32_t i = 0; i < n; i++) {
        assert_false(gk_is_all_disabled(&problem));
        assert_int_equal(gk_disable(candidates[i]->name, &why), 0);
    }
    assert_true(gk_is_all_disabled(&problem));
    assert_int_equal(gk_select(&problem, &chosen, &why), STATUS_UNSUPPORTED);
    assert_non_null(strstr(why.text, "each kernel that could is disabled in the configuration: "));
    assert_non_null(strstr(why.text, "portable_int4_gemm_group"));
    assert_null(strstr(why.text, "int8"));
    problem.layout = NULL; /* no kernel could, disabled or not */
    assert_false(gk_is_all_disabled(&problem));
}

static void test_preferred_kernel_comes_first(void **state)
{
    (void)state;
    struct gk_problem problem = good_problem();
    const struct gk_kernel *candidates[GK_KERNELS_MAX], *chosen = NULL;
    struct reason why = REASON_NULL;
    uint32_t n_before = gk_candidates(&problem, candidates);
    assert_int_equal(gk_prefer("portable_int8_gemm_group", &why), 0); /* cannot do it */
    assert_int_equal(gk_prefer("portable_int4_gemm_group", &why), 0);
    assert_int_equal(gk_select(&problem, &chosen, NULL), 0);
    assert_string_equal(chosen->name, "portable_int4_gemm_group");
    assert_int_equal(gk_candidates(&problem, candidates), n_before);
    assert_ptr_equal(candidates[0], chosen);
}

/* Rows that are batched get no kernel that would give them other bits than they have alone. */
static void test_order_of_sums_is_that_of_one_row(void **state)
{
    (void)state;
    struct gk_desc desc = desc_int4(384, 512, 128, DTYPE_F16, DTYPE_NONE);
    struct gk_problem problem = {.desc = desc,
                                 .layout = gk_layout_for(&desc, GK_DEVICE_CUDA),
                                 .m = 33,
                                 .x_dtype = DTYPE_BF16,
                                 .y_dtype = DTYPE_BF16,
                                 .cuda_arch = 90};
    const struct gk_kernel *candidates[GK_KERNELS_MAX];
    const struct gk_kernel *any = gk_kernel_named("cuda_any_gemm_simple");
    struct reason why = REASON_NULL;
    if (any == NULL) {
        skip(); /* a build without CUDA */
    }
    assert_int_equal(any->can_implement(&problem, NULL), 0);
    assert_int_equal(gk_judge(&problem, any, &why), STATUS_UNSUPPORTED);
    assert_non_null(strstr(why.text, "adds up in another order"));
    uint32_t n = gk_candidates(&problem, candidates);
    assert_true(n >= 2);
    for (uint32_t i = 0; i < n; i++) {
        assert_string_equal(candidates[i]->numerics, candidates[0]->numerics);
    }
}

static void test_workspace_and_prediction(void **state)
{
    (void)state;
    struct gk_problem problem = good_problem();
    uint64_t most = gk_workspace_max(&problem);
    const struct gk_kernel *chosen = NULL;
    double previous = 0;
    for (uint32_t m = 1; m <= GK_BATCH_ROWS_MAX; m++) {
        problem.m = m;
        assert_int_equal(gk_select(&problem, &chosen, NULL), 0);
        assert_true(chosen->workspace_bytes(&problem) <= most);
        double usec = chosen->predicted_usec(&problem, 2);
        assert_true(usec >= previous && usec > 0);
        assert_true(chosen->predicted_usec(&problem, 1) >= usec);
        previous = usec;
    }
    assert_int_equal(chosen->workspace_bytes(&problem), most);
}

/* ---- conversions, exhaustively ---- */

#define CODES 65536u

/* A kernel seen as a conversion: k = 1, w = 1, so y is x widened and rounded, x = 0 .. n at a time.
 */
static void check_x_codes(const struct gk_kernel *kernel, enum dtype x_dtype, enum dtype y_dtype)
{
    struct gk_desc desc = desc_plain(1, 1, DTYPE_F32, DTYPE_NONE);
    struct gk_canonical canonical;
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    *(float *)canonical.codes = 1.0f;
    struct weight_case weight;
    weight_case_init(&weight, &canonical);
    struct rows_case x, y;
    rows_init(&x, GK_BATCH_ROWS_MAX, 1, x_dtype);
    rows_init(&y, GK_BATCH_ROWS_MAX, 1, y_dtype);
    for (uint32_t first = 0; first < CODES; first += GK_BATCH_ROWS_MAX) {
        for (uint32_t i = 0; i < GK_BATCH_ROWS_MAX; i++) {
            uint16_t code = (uint16_t)(first + i);
            memcpy(x.rows[i], &code, sizeof(code));
        }
        kernel_run(kernel, &weight, &x, &y, 1);
        for (uint32_t i = 0; i < GK_BATCH_ROWS_MAX; i++) {
            uint16_t code = (uint16_t)(first + i), got;
            float value = x_dtype == DTYPE_F16 ? half_to_f32(code) : bf16_to_f32(code);
            /* 0 + x * 1: the sum starts at +0, so -0 comes out as +0. */
            uint16_t expected =
                y_dtype == DTYPE_F16 ? half_from_f32(value + 0.0f) : bf16_from_f32(value + 0.0f);
            memcpy(&got, y.rows[i], sizeof(got));
            assert_int_equal(got, expected);
        }
    }
    rows_finish(&x);
    rows_finish(&y);
    weight_case_finish(&weight);
}

/* Plain weights hold every code, a row of x is 1: the vector paths of widening and narrowing. */
static void check_w_codes(const struct gk_kernel *kernel, enum dtype w_dtype, enum dtype y_dtype)
{
    struct gk_desc desc = desc_plain(CODES, 1, w_dtype, DTYPE_NONE);
    struct gk_canonical canonical;
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    for (uint32_t i = 0; i < CODES; i++) {
        ((uint16_t *)canonical.codes)[i] = (uint16_t)i;
    }
    struct weight_case weight;
    weight_case_init(&weight, &canonical);
    struct rows_case x, y;
    rows_init(&x, 1, 1, DTYPE_F32);
    rows_init(&y, 1, CODES, y_dtype);
    elem_store(x.rows[0], DTYPE_F32, 0, 1.0);
    kernel_run(kernel, &weight, &x, &y, 3);
    for (uint32_t i = 0; i < CODES; i++) {
        uint16_t code = (uint16_t)i, got;
        float value = w_dtype == DTYPE_F16 ? half_to_f32(code) : bf16_to_f32(code);
        uint16_t expected =
            y_dtype == DTYPE_F16 ? half_from_f32(value + 0.0f) : bf16_from_f32(value + 0.0f);
        memcpy(&got, (const char *)y.rows[0] + i * sizeof(got), sizeof(got));
        assert_int_equal(got, expected);
    }
    rows_finish(&x);
    rows_finish(&y);
    weight_case_finish(&weight);
}

static void test_every_code(void **state)
{
    (void)state;
    static const enum dtype halves[] = {DTYPE_F16, DTYPE_BF16};
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    struct gk_desc desc = desc_plain(1, 1, DTYPE_F32, DTYPE_NONE);
    struct gk_problem problem = {.desc = desc,
                                 .layout = gk_layout_for(&desc, GK_DEVICE_HOST),
                                 .m = 1,
                                 .x_dtype = DTYPE_F16,
                                 .y_dtype = DTYPE_F16};
    for (uint32_t i = 0; i < n_kernels; i++) {
        for (uint32_t j = 0; j < 4 && kernels[i]->can_implement(&problem, NULL) == 0; j++) {
            check_x_codes(kernels[i], halves[j / 2], halves[j % 2]);
            check_w_codes(kernels[i], halves[j / 2], halves[j % 2]);
        }
    }
}

/* Only prefill has larger launches, and only where a kernel takes them. */
static void test_rows_of_a_launch(void **state)
{
    (void)state;
    struct gk_problem problem = good_problem();
    problem.is_prefill = true;
    assert_int_equal(gk_rows_max(&problem), GK_BATCH_ROWS_MAX);
    problem.layout = gk_layout_for(&problem.desc, GK_DEVICE_CUDA);
    problem.cuda_arch = 80;
    assert_int_equal(gk_rows_max(&problem), GK_BATCH_ROWS_MAX);
    if (gk_kernel_named("cuda_strip_prefill") == NULL) {
        return; /* a build without CUDA */
    }
    problem.cuda_arch = 90;
    assert_int_equal(gk_rows_max(&problem), GK_PREFILL_ROWS_MAX);
    problem.is_prefill = false;
    assert_int_equal(gk_rows_max(&problem), GK_BATCH_ROWS_MAX);
    problem.is_prefill = true;
    problem.x_dtype = DTYPE_F32;
    assert_int_equal(gk_rows_max(&problem), GK_BATCH_ROWS_MAX);
}

/* The last few rows of a prefill add up as its other chunks do, not as a small request does. */
static void test_prefill_has_its_own_order_of_sums(void **state)
{
    (void)state;
    struct gk_problem problem = good_problem();
    problem.layout = gk_layout_for(&problem.desc, GK_DEVICE_CUDA);
    problem.cuda_arch = 90;
    const struct gk_kernel *small = NULL, *last = NULL, *chunk = NULL;
    if (gk_select(&problem, &small, NULL) != 0) {
        return; /* a build without CUDA */
    }
    problem.is_prefill = true;
    assert_int_equal(gk_select(&problem, &last, NULL), 0);
    problem.m = GK_PREFILL_ROWS_MAX;
    assert_int_equal(gk_select(&problem, &chunk, NULL), 0);
    assert_string_equal(last->numerics, chunk->numerics);
    assert_string_not_equal(last->numerics, small->numerics);
}

static const char *chosen_for(const struct gk_problem *problem)
{
    const struct gk_kernel *kernel = NULL;
    assert_int_equal(gk_select(problem, &kernel, NULL), 0);
    return kernel->name;
}

/* On Hopper more rows than 16 are one launch, whatever the weight's groups; elsewhere they are
 * several of 16. */
static void test_more_than_16_rows_read_a_weight_once(void **state)
{
    (void)state;
    if (gk_kernel_named("cuda_strip_batch") == NULL) {
        return; /* a build without CUDA */
    }
    static const uint32_t groups[] = {32, 64, 100, 128};
    static const char *const kernels[] = {"cuda_strip_batch", "cuda_strip_batch", "cuda_strip_gemm",
                                          "cuda_u4_strip_wide"};
    for (uint32_t i = 0; i < ARRAY_LENGTH(groups); i++) {
        uint32_t k = groups[i] == 100 ? 100 : 512; /* one group over all of k, which 128 holds */
        struct gk_problem problem = {
            .desc = desc_int4(64, k, groups[i], DTYPE_F16, DTYPE_NONE),
            .m = 17,
            .x_dtype = DTYPE_F16,
            .y_dtype = DTYPE_F16,
            .cuda_arch = 90,
        };
        problem.layout = gk_layout_for(&problem.desc, GK_DEVICE_CUDA);
        assert_string_equal(chosen_for(&problem), kernels[i]);
        problem.m = 16;
        assert_string_equal(chosen_for(&problem), "cuda_strip_gemm");
        problem.m = 64;
        problem.cuda_arch = 80;
        assert_string_equal(chosen_for(&problem), "cuda_strip_gemm");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_than_16_rows_read_a_weight_once),
        cmocka_unit_test(test_rows_of_a_launch),
        cmocka_unit_test(test_prefill_has_its_own_order_of_sums),
        cmocka_unit_test(test_first_eligible_row_is_chosen),
        cmocka_unit_test_teardown(test_limit, lift_limit),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test_teardown(test_disabled_kernel_is_not_chosen, clear_wishes),
        cmocka_unit_test_teardown(test_all_are_disabled, clear_wishes),
        cmocka_unit_test_teardown(test_preferred_kernel_comes_first, clear_wishes),
        cmocka_unit_test(test_order_of_sums_is_that_of_one_row),
        cmocka_unit_test(test_workspace_and_prediction),
        cmocka_unit_test(test_every_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
