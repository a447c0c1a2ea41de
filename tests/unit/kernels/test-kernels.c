/* test-kernels.c - every row of the registry: within tolerance of the double reference, and the
 * same bits as the portable kernel, over shapes, types, rows and parts (cases T01, T11, T20, T30 to
 * T32). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "kernel_case.h"

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

/* Half a unit in the last place of the output type, relative. */
static double rounding(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 0x1p-24 : dtype == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
}

/* What fp32 sums of blocks may be off by: fma and block errors, relative to the sum of magnitudes.
 */
static double sum_bound(uint32_t k)
{
    return (128.0 + k / 32.0 + 4.0) * 0x1p-24;
}

/* sum_k |x w| + |bias|, the yardstick of the bound per element. */
static double magnitude(const struct gk_canonical *canonical, const struct rows_case *x,
                        uint32_t i_m, uint32_t i_n)
{
    double sum = fabs(gk_canonical_bias(canonical, i_n));
    for (uint32_t i_k = 0; i_k < canonical->desc.k; i_k++) {
        sum +=
            fabs(elem_load(x->rows[i_m], x->dtype, i_k) * gk_canonical_value(canonical, i_n, i_k));
    }
    return sum;
}

static void assert_near_reference(const struct gk_canonical *canonical, const struct rows_case *x,
                                  const struct rows_case *y)
{
    uint32_t n = canonical->desc.n;
    double *expected = calloc(n, sizeof(*expected));
    double error = 0, norm = 0;
    for (uint32_t i_m = 0; i_m < x->m; i_m++) {
        gk_reference_gemm(canonical, x->rows[i_m], x->dtype, canonical->desc.k, 1, expected);
        for (uint32_t i_n = 0; i_n < n; i_n++) {
            double off = elem_load(y->rows[i_m], y->dtype, i_n) - expected[i_n];
            double bound = sum_bound(canonical->desc.k) * magnitude(canonical, x, i_m, i_n) +
                           rounding(y->dtype) * (1 + 0x1p-10) * fabs(expected[i_n]) + 0x1p-25;
            assert_true(fabs(off) <= bound);
            error += off * off;
            norm += expected[i_n] * expected[i_n];
        }
    }
    free(expected);
    double tolerance = y->dtype == DTYPE_F32 ? 1e-5 : 2 * rounding(y->dtype);
    assert_true(sqrt(error) <= tolerance * sqrt(norm) + 0x1p-25);
}

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

static const uint32_t extents[] = {1, 3, 8, 31, 63, 64, 65, 127, 128, 129, 192, 384};

static void test_int4_shapes(void **state)
{
    (void)state;
    static const uint32_t group_sizes[] = {32, 64, 128, UINT32_MAX};
    struct random random = {1};
    uint32_t i_case = 0;
    for (uint32_t i = 0; i < ARRAY_LENGTH(extents); i++) {
        for (uint32_t j = 0; j < ARRAY_LENGTH(extents); j++) {
            for (uint32_t i_group = 0; i_group < ARRAY_LENGTH(group_sizes); i_group++, i_case++) {
                uint32_t group_size = group_sizes[i_group];
                struct gk_desc desc =
                    desc_int4(extents[i], extents[j], group_size, dtypes[i_case % 3],
                              i_case % 4 == 0 ? DTYPE_NONE : dtypes[i_case % 3]);
                check(&desc, 1 + i_case % 3, dtypes[i_case / 3 % 3], dtypes[i_case / 9 % 3],
                      &random);
            }
        }
    }
}

static void test_plain_shapes(void **state)
{
    (void)state;
    struct random random = {2};
    uint32_t i_case = 0;
    for (uint32_t i = 0; i < ARRAY_LENGTH(extents); i++) {
        for (uint32_t j = 0; j < ARRAY_LENGTH(extents); j++) {
            for (uint32_t i_type = 0; i_type < 3; i_type++, i_case++) {
                struct gk_desc desc =
                    desc_plain(extents[i], extents[j], dtypes[i_type],
                               i_case % 4 == 0 ? DTYPE_NONE : dtypes[i_case / 4 % 3]);
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
    static const uint32_t rows[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64};
    struct random random = {3};
    struct gk_desc descs[] = {desc_int4(70, 200, 64, DTYPE_F16, DTYPE_F16),
                              desc_plain(70, 200, DTYPE_BF16, DTYPE_F32),
                              desc_plain(70, 200, DTYPE_F16, DTYPE_NONE)};
    for (uint32_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        for (uint32_t i_pair = 0; i_pair < 9; i_pair++) {
            for (uint32_t i_desc = 0; i_desc < ARRAY_LENGTH(descs); i_desc++) {
                check(&descs[i_desc], rows[i], dtypes[i_pair % 3], dtypes[i_pair / 3], &random);
            }
        }
    }
}

static void test_large(void **state)
{
    (void)state;
    struct random random = {4};
    struct gk_desc descs[] = {desc_int4(384, 1536, 128, DTYPE_F16, DTYPE_F16),
                              desc_int4(1536, 384, 128, DTYPE_F16, DTYPE_F16),
                              desc_int4(1536, 384, 384, DTYPE_BF16, DTYPE_NONE),
                              desc_plain(384, 1536, DTYPE_F16, DTYPE_F32)};
    for (uint32_t i = 0; i < ARRAY_LENGTH(descs); i++) {
        check(&descs[i], 1, DTYPE_F16, DTYPE_F32, &random);
        check(&descs[i], 17, DTYPE_BF16, DTYPE_BF16, &random);
    }
}

/* ---- properties that hold for each kernel by itself -------------------------------------------
 */

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

static void for_each_kernel_and_kind(kernel_check run)
{
    struct gk_desc int4 = desc_int4(200, 300, 32, DTYPE_F16, DTYPE_BF16);
    struct gk_desc plain = desc_plain(200, 300, DTYPE_BF16, DTYPE_F16);
    for_each_kernel(&int4, run);
    for_each_kernel(&plain, run);
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
    for_each_kernel_and_kind(check_anchor);
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
    for_each_kernel_and_kind(check_parts);
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
        gk_reference_gemm(&weight->canonical, x.rows[1], x.dtype, desc->k, 1, expected);
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
    for_each_kernel_and_kind(check_specials);
}

/* Small integers: every partial sum is exact, so the result is exactly that of integer arithmetic.
 */
static void check_integers(const struct gk_kernel *kernel, const struct weight_case *weight)
{
    const struct gk_desc *desc = &weight->canonical.desc;
    const uint8_t *codes = weight->canonical.codes;
    struct random random = {9};
    struct rows_case x, y;
    rows_init(&x, 5, desc->k, DTYPE_BF16);
    rows_init(&y, 5, desc->n, DTYPE_F32);
    for (uint32_t i = 0; i < x.m * desc->k; i++) {
        elem_store(x.rows[i / desc->k], x.dtype, i % desc->k,
                   (int)(random_next(&random) % 65) - 32);
    }
    kernel_run(kernel, weight, &x, &y, 2);
    for (uint32_t i_m = 0; i_m < x.m; i_m++) {
        for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
            int64_t sum = 0;
            for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
                sum += (int64_t)elem_load(x.rows[i_m], x.dtype, i_k) *
                       (codes[i_n * desc->k + i_k] - 8);
            }
            assert_true(elem_load(y.rows[i_m], y.dtype, i_n) == (double)sum);
        }
    }
    rows_finish(&x);
    rows_finish(&y);
}

static void test_integers(void **state)
{
    (void)state;
    struct gk_desc desc = desc_int4(130, 517, 128, DTYPE_F16, DTYPE_NONE);
    struct random random = {10};
    struct gk_canonical canonical;
    canonical_random(&canonical, &desc, &random);
    for (uint32_t i = 0; i < gk_desc_groups(&desc) * desc.n; i++) {
        elem_store(canonical.scales, DTYPE_F16, i, 1.0);
    }
    struct weight_case weight;
    weight_case_init(&weight, &canonical);
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    struct gk_problem problem = {
        .desc = desc, .layout = weight.layout, .m = 5, .x_dtype = DTYPE_BF16, .y_dtype = DTYPE_F32};
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (kernels[i]->can_implement(&problem, NULL) == 0) {
            check_integers(kernels[i], &weight);
        }
    }
    weight_case_finish(&weight);
}

/* ---- the published cases ----------------------------------------------------------------------
 */

/* All codes +1; scale `scale`, or that of group i times i + 1; x is 1 from first_one on. Every
 * output of every kernel is exactly `expected`. */
static void check_constant(const struct gk_desc *desc, double scale, bool is_growing, uint32_t m,
                           uint32_t first_one, double expected)
{
    struct gk_canonical canonical;
    canonical_fill(&canonical, desc, 9, scale);
    for (uint32_t i = 0; is_growing && i < gk_desc_groups(desc) * desc->n; i++) {
        elem_store(canonical.scales, desc->scale_dtype, i, scale * (1 + i / desc->n));
    }
    struct weight_case weight;
    weight_case_init(&weight, &canonical);
    struct rows_case x, y;
    rows_init(&x, m, desc->k, DTYPE_F16);
    rows_init(&y, m, desc->n, DTYPE_F32);
    for (uint32_t i = 0; i < m * desc->k; i++) {
        elem_store(x.rows[i / desc->k], x.dtype, i % desc->k, i % desc->k < first_one ? 0.0 : 1.0);
    }
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (kernel_fits(kernels[i], &weight, &x, &y)) {
            kernel_run(kernels[i], &weight, &x, &y, 2);
            for (uint32_t j = 0; j < m * desc->n; j++) {
                assert_true(elem_load(y.rows[j / desc->n], y.dtype, j % desc->n) == expected);
            }
        }
    }
    rows_finish(&x);
    rows_finish(&y);
    weight_case_finish(&weight);
}

static void test_t01_more_groups_than_group_size(void **state)
{
    (void)state;
    static const uint32_t cases[][2] = {{32, 1088}, {64, 4224}, {128, 16512}};
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint32_t group_size = cases[i][0], k = cases[i][1];
        struct gk_desc desc = desc_int4(128, k, group_size, DTYPE_F16, DTYPE_NONE);
        check_constant(&desc, 1.0, false, 1, k - group_size, group_size);
        check_constant(&desc, 1.0, false, 17, k - group_size, group_size);
    }
}

static void test_t11_group_geometry(void **state)
{
    (void)state;
    struct gk_desc ragged = desc_int4(64, 192, 128, DTYPE_F16, DTYPE_NONE);
    check_constant(&ragged, 1.0, true, 1, 0, 256.0);
    struct gk_desc whole = desc_int4(64, 4096, 4096, DTYPE_F16, DTYPE_NONE);
    check_constant(&whole, 0.5, false, 1, 0, 2048.0);
    struct gk_desc over = desc_int4(64, 128, 256, DTYPE_F16, DTYPE_NONE);
    check_constant(&over, 1.0, false, 1, 0, 128.0);
}

int main(void)
{
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        struct gk_desc desc = strstr(kernels[i]->name, "int4") != NULL
                                  ? desc_int4(64, 64, 64, DTYPE_F16, DTYPE_NONE)
                                  : desc_plain(64, 64, DTYPE_F32, DTYPE_NONE);
        struct gk_problem problem = {.desc = desc,
                                     .layout = gk_layout_for(&desc, GK_DEVICE_HOST),
                                     .m = 1,
                                     .x_dtype = DTYPE_F32,
                                     .y_dtype = DTYPE_F32};
        struct reason why = REASON_NULL;
        int r = kernels[i]->can_implement(&problem, &why);
        printf("%s: %s\n", kernels[i]->name, r == 0 ? "tested" : why.text);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int4_shapes),
        cmocka_unit_test(test_plain_shapes),
        cmocka_unit_test(test_rows_and_types),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_anchor_row),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_specials),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_t01_more_groups_than_group_size),
        cmocka_unit_test(test_t11_group_geometry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
