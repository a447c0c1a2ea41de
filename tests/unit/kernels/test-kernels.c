/* test-kernels.c - every row of the registry, for every format: within tolerance of the double
 * reference, and the same bits as the portable kernel, over shapes, types, rows and parts; rows
 * that come quantised; infinities and NaN (cases T20, T30, T32). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "kernel_case.h"
#include "kernels/quant/quant.h"
#include "reference_case.h"

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

/* Every eligible kernel against the portable one, which is checked against the reference first. */
static void check(const struct gk_desc *desc, uint32_t m, enum dtype x_dtype, enum dtype y_dtype,
                  struct random *random)
{
    struct gk_canonical canonical;
    canonical_random(&canonical, desc, random);
    struct weight_case weight;
    weight_case_init(&weight, &canonical);
    struct rows_case x, y, y_portable;
    rows_init(&x, m, desc->k, x_dtype);
    rows_init(&y, m, desc->n, y_dtype);
    rows_init(&y_portable, m, desc->n, y_dtype);
    rows_random(&x, random);
    kernel_run(portable_of(&weight), &weight, &x, &y_portable, 1);
    if ((uint64_t)desc->n * desc->k * m < 600000) {
        assert_near_reference(&canonical, &x, &y_portable);
    }
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (kernel_fits(kernels[i], &weight, &x, &y)) {
            kernel_run(kernels[i], &weight, &x, &y, 2);
            rows_assert_equal(&y, &y_portable);
        }
    }
    rows_finish(&x);
    rows_finish(&y);
    rows_finish(&y_portable);
    weight_case_finish(&weight);
}

static const uint32_t extents[] = {1, 16, 63, 65, 200, 300};

static void test_shapes(void **state)
{
    (void)state;
    struct random random = {1};
    uint32_t i_case = 0;
    for (uint32_t i_format = 0; i_format < n_format_cases; i_format++) {
        for (uint32_t i = 0; i < ARRAY_LENGTH(extents); i++) {
            for (uint32_t j = 0; j < ARRAY_LENGTH(extents); j++, i_case++) {
                enum dtype bias_dtype = i_case % 4 == 0 ? DTYPE_NONE : dtypes[i_case / 4 % 3];
                struct gk_desc desc =
                    format_desc(&format_cases[i_format], extents[i], extents[j], bias_dtype);
                check(&desc, 1 + i_case % 3, dtypes[i_case / 3 % 3], dtypes[i_case / 9 % 3],
                      &random);
            }
        }
    }
}

/* All numbers of rows that tiles treat differently, all pairs of types of x and y. */
static void test_rows_and_types(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 17, 33, 64};
    struct random random = {3};
    uint32_t i_case = 0;
    for (uint32_t i_format = 0; i_format < n_format_cases; i_format++) {
        for (uint32_t i = 0; i < ARRAY_LENGTH(rows); i++, i_case++) {
            struct gk_desc desc = format_desc(&format_cases[i_format], 70, 200, dtypes[i_case % 3]);
            check(&desc, rows[i], dtypes[i_case % 3], dtypes[i_case / 3 % 3], &random);
        }
    }
}

static void test_large(void **state)
{
    (void)state;
    struct random random = {4};
    for (uint32_t i = 0; i < n_format_cases; i++) {
        struct gk_desc wide = format_desc(&format_cases[i], 384, 1536, DTYPE_F16);
        struct gk_desc tall = format_desc(&format_cases[i], 1536, 384, DTYPE_NONE);
        check(&wide, 1, DTYPE_F16, DTYPE_F32, &random);
        check(&tall, 17, DTYPE_BF16, DTYPE_BF16, &random);
    }
}

/* ---- rows that come quantised ---- */

/* Quantise rows as a client would, by the same rule. */
static void quantise_rows(const struct gk_desc *desc, const struct rows_case *x,
                          struct rows_case *quantised, float *scales)
{
    float *values = calloc(desc->k, sizeof(*values));
    uint8_t *codes = calloc(desc->k, 1);
    quantised->has_scales = true;
    for (uint32_t i_m = 0; i_m < x->m; i_m++, scales += quant_scales(desc)) {
        for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
            values[i_k] = (float)elem_load(x->rows[i_m], x->dtype, i_k);
        }
        (void)quant_row(&quant_portable, desc, values, codes, scales);
        memcpy(quantised->rows[i_m], codes, desc->k);
        bool is_static = desc->act == GK_ACT_FP8_TENSOR || desc->act == GK_ACT_INT8_TENSOR;
        quantised->scales[i_m] = is_static ? NULL : scales;
    }
    free(values);
    free(codes);
}

/* The bits are those of rows that the kernel quantises itself. */
static void check_quantised_rows(const struct gk_desc *desc, uint32_t m, struct random *random)
{
    struct gk_canonical canonical;
    canonical_random(&canonical, desc, random);
    struct weight_case weight;
    weight_case_init(&weight, &canonical);
    struct rows_case x, quantised, y, y_quantised;
    rows_init(&x, m, desc->k, DTYPE_BF16);
    rows_init(&quantised, m, desc->k, gk_act_dtype(desc->act));
    rows_init(&y, m, desc->n, DTYPE_F32);
    rows_init(&y_quantised, m, desc->n, DTYPE_F32);
    rows_random(&x, random);
    float *scales = calloc((uint64_t)m * quant_scales(desc), sizeof(*scales));
    quantise_rows(desc, &x, &quantised, scales);
    kernel_run(portable_of(&weight), &weight, &x, &y, 1);
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (kernel_fits(kernels[i], &weight, &quantised, &y_quantised)) {
            kernel_run(kernels[i], &weight, &quantised, &y_quantised, 2);
            rows_assert_equal(&y, &y_quantised);
        }
    }
    free(scales);
    rows_finish(&x);
    rows_finish(&quantised);
    rows_finish(&y);
    rows_finish(&y_quantised);
    weight_case_finish(&weight);
}

static void test_quantised_rows(void **state)
{
    (void)state;
    struct random random = {5};
    for (uint32_t i = 0; i < n_format_cases; i++) {
        enum gk_act act = format_cases[i].desc.act;
        if (act == GK_ACT_FLOAT || act == GK_ACT_INT8_TOKEN_ZERO) {
            continue; /* what comes to the latter has no zero point */
        }
        static const uint32_t rows[] = {1, 2, 9};
        for (uint32_t j = 0; j < ARRAY_LENGTH(rows); j++) {
            struct gk_desc desc = format_desc(&format_cases[i], 100, 300, DTYPE_F16);
            check_quantised_rows(&desc, rows[j], &random);
        }
    }
}

/* ---- properties that hold for each kernel by itself ---- */

typedef void (*kernel_check)(const struct gk_kernel *kernel, const struct weight_case *weight);

static void for_each_kernel(const struct gk_desc *desc, kernel_check run)
{
    struct random random = {5};
    struct gk_canonical canonical;
    canonical_random(&canonical, desc, &random);
    struct weight_case weight;
    weight_case_init(&weight, &canonical);
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    struct gk_problem problem = {
        .desc = *desc, .layout = weight.layout, .m = 1, .x_dtype = DTYPE_F32, .y_dtype = DTYPE_F32};
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (kernels[i]->can_implement(&problem, NULL) == 0) {
            run(kernels[i], &weight);
        }
    }
    weight_case_finish(&weight);
}

static void for_each_kernel_and_format(kernel_check run)
{
    for (uint32_t i = 0; i < n_format_cases; i++) {
        struct gk_desc desc = format_desc(&format_cases[i], 70, 200, DTYPE_BF16);
        for_each_kernel(&desc, run);
    }
}

/* T30, T32: the anchor row has the bits it has alone, wherever and among however many it is. */
static void check_anchor(const struct gk_kernel *kernel, const struct weight_case *weight)
{
    const struct gk_desc *desc = &weight->canonical.desc;
    struct random random = {6};
    struct rows_case anchor, y_alone;
    rows_init(&anchor, 1, desc->k, DTYPE_F16);
    rows_init(&y_alone, 1, desc->n, DTYPE_F32);
    rows_random(&anchor, &random);
    kernel_run(kernel, weight, &anchor, &y_alone, 1);
    for (uint32_t m = 1; m <= GK_BATCH_ROWS_MAX; m += m < 9 ? 1 : 11) {
        struct rows_case x, y;
        rows_init(&x, m, desc->k, DTYPE_F16);
        rows_init(&y, m, desc->n, DTYPE_F32);
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t position = i * (m - 1) / 2;
            rows_random(&x, &random);
            memcpy(x.rows[position], anchor.rows[0], x.row_bytes);
            kernel_run(kernel, weight, &x, &y, 2);
            assert_memory_equal(y.rows[position], y_alone.rows[0], y.row_bytes);
        }
        rows_finish(&x);
        rows_finish(&y);
    }
    rows_finish(&anchor);
    rows_finish(&y_alone);
}

static void test_anchor_row(void **state)
{
    (void)state;
    for_each_kernel_and_format(check_anchor);
}

static void check_parts(const struct gk_kernel *kernel, const struct weight_case *weight)
{
    const struct gk_desc *desc = &weight->canonical.desc;
    struct random random = {7};
    struct rows_case x, y, y_whole;
    rows_init(&x, 5, desc->k, DTYPE_BF16);
    rows_init(&y, 5, desc->n, DTYPE_F16);
    rows_init(&y_whole, 5, desc->n, DTYPE_F16);
    rows_random(&x, &random);
    kernel_run(kernel, weight, &x, &y_whole, 1);
    for (uint32_t n_parts = 2; n_parts < 30; n_parts += 1 + n_parts / 3) {
        kernel_run(kernel, weight, &x, &y, n_parts);
        rows_assert_equal(&y, &y_whole);
    }
    rows_finish(&x);
    rows_finish(&y);
    rows_finish(&y_whole);
}

static void test_parts(void **state)
{
    (void)state;
    for_each_kernel_and_format(check_parts);
}

/* Inf, NaN, zeros and the smallest numbers: equal bits to the portable kernel, NaN where the
 * reference has NaN, and nothing leaks into rows beside. */
static void check_specials(const struct gk_kernel *kernel, const struct weight_case *weight)
{
    static const double specials[] = {HUGE_VAL, -HUGE_VAL, (double)NAN, -0.0,    0x1p-149,
                                      0x1p-126, 65504.0,   -0x1p127,    0x1p-24, 3e38};
    const struct gk_desc *desc = &weight->canonical.desc;
    struct random random = {8};
    double *expected = calloc(desc->n, sizeof(*expected));
    for (uint32_t i_case = 0; i_case < 9 * ARRAY_LENGTH(specials); i_case++) {
        struct rows_case x, y, y_portable;
        rows_init(&x, 3, desc->k, dtypes[i_case % 3]);
        rows_init(&y, 3, desc->n, dtypes[i_case / 3 % 3]);
        rows_init(&y_portable, 3, desc->n, y.dtype);
        rows_random(&x, &random);
        elem_store(x.rows[1], x.dtype, random_next(&random) % desc->k, specials[i_case / 9]);
        elem_store(x.rows[1], x.dtype, random_next(&random) % desc->k, specials[i_case / 9]);
        kernel_run(kernel, weight, &x, &y, 1);
        kernel_run(portable_of(weight), weight, &x, &y_portable, 1);
        rows_assert_equal(&y, &y_portable);
        assert_int_equal(
            gk_reference_gemm(&weight->canonical, x.rows[1], x.dtype, desc->k, 1, expected), 0);
        for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
            if (isnan(expected[i_n])) {
                assert_true(isnan(elem_load(y.rows[1], y.dtype, i_n)));
            }
            assert_true(isfinite(elem_load(y.rows[0], y.dtype, i_n)));
            assert_true(isfinite(elem_load(y.rows[2], y.dtype, i_n)));
        }
        rows_finish(&x);
        rows_finish(&y);
        rows_finish(&y_portable);
    }
    free(expected);
}

static void test_specials(void **state)
{
    (void)state;
    for_each_kernel_and_format(check_specials);
}

int main(void)
{
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        const char *verdict = "declines every format";
        for (uint32_t j = 0; j < n_format_cases; j++) {
            struct gk_desc desc = format_desc(&format_cases[j], 64, 64, DTYPE_NONE);
            struct gk_problem problem = {.desc = desc,
                                         .layout = gk_layout_for(&desc, GK_DEVICE_HOST),
                                         .m = 1,
                                         .x_dtype = DTYPE_F32,
                                         .y_dtype = DTYPE_F32};
            verdict = kernels[i]->can_implement(&problem, NULL) == 0 ? "tested" : verdict;
        }
        printf("%s: %s\n", kernels[i]->name, verdict);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),     cmocka_unit_test(test_rows_and_types),
        cmocka_unit_test(test_large),      cmocka_unit_test(test_quantised_rows),
        cmocka_unit_test(test_anchor_row), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_specials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
