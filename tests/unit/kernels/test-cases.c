/* test-cases.c - products whose exact value is known: small integers, and the published cases of
 * other projects (T01 to T03, T07, T11 to T14, T31, T32), on every kernel that takes them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/f8.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "kernel_case.h"
#include "reference_case.h"

/* A weight and rows of x, all rows alike unless a test says otherwise. */
struct known {
    struct weight_case weight;
    struct rows_case x;
};

/* Takes over canonical. */
static void known_init(struct known *known, const struct gk_canonical *canonical, uint32_t m,
                       enum dtype x_dtype)
{
    weight_case_init(&known->weight, canonical);
    rows_init(&known->x, m, canonical->desc.k, x_dtype);
}

static void known_finish(struct known *known)
{
    rows_finish(&known->x);
    weight_case_finish(&known->weight);
}

/* Elements first to end of every row. */
static void known_set(struct known *known, uint32_t first, uint32_t end, double value)
{
    for (uint32_t i_m = 0; i_m < known->x.m; i_m++) {
        for (uint32_t i_k = first; i_k < end; i_k++) {
            elem_store(known->x.rows[i_m], known->x.dtype, i_k, value);
        }
    }
}

typedef void (*product_check)(const struct known *known, const struct rows_case *y, void *arg);

/* Every kernel that can. */
static void for_each_product(const struct known *known, enum dtype y_dtype, product_check check,
                             void *arg)
{
    struct rows_case y;
    uint32_t n_kernels, n_checked = 0;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    rows_init(&y, known->x.m, known->weight.canonical.desc.n, y_dtype);
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (kernel_fits(kernels[i], &known->weight, &known->x, &y)) {
            kernel_run(kernels[i], &known->weight, &known->x, &y, 2);
            check(known, &y, arg);
            n_checked++;
        }
    }
    assert_true(n_checked > 0);
    rows_finish(&y);
}

static void check_equal(const struct known *known, const struct rows_case *y, void *arg)
{
    const double *expected = arg;
    for (uint32_t i_m = 0; i_m < y->m; i_m++) {
        for (uint32_t i_n = 0; i_n < known->weight.canonical.desc.n; i_n++) {
            double got = elem_load(y->rows[i_m], y->dtype, i_n);
            if (got != *expected) {
                fail_msg("y[%u, %u] is %.9g, not %.9g", i_m, i_n, got, *expected);
            }
        }
    }
}

static void assert_all_equal(const struct known *known, enum dtype y_dtype, double expected)
{
    for_each_product(known, y_dtype, check_equal, &expected);
}

/* ---- small integers ---- */

static void check_integers(const struct known *known, const struct rows_case *y, void *arg)
{
    (void)arg;
    const struct gk_desc *desc = &known->weight.canonical.desc;
    const uint8_t *codes = known->weight.canonical.codes;
    for (uint32_t i_m = 0; i_m < y->m; i_m++) {
        for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
            int64_t sum = 0;
            for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
                int zero = desc->has_zeros ? known->weight.canonical.zeros[i_n]
                                           : 1 << (gk_code_bits(desc->code) - 1);
                sum += (int64_t)elem_load(known->x.rows[i_m], known->x.dtype, i_k) *
                       (codes[i_n * desc->k + i_k] - zero);
            }
            assert_true(elem_load(y->rows[i_m], y->dtype, i_n) == (double)sum);
        }
    }
}

/* Every partial sum is exact, so the result is exactly that of integer arithmetic. */
static void test_integers(void **state)
{
    (void)state;
    struct gk_desc descs[4];
    struct random random = {10};
    for (uint32_t i = 0; i < ARRAY_LENGTH(descs); i++) {
        descs[i] = desc_int4(130, 517, 517, DTYPE_F32, DTYPE_NONE);
        descs[i].code = i % 2 == 0 ? GK_CODE_U4 : GK_CODE_U8;
        descs[i].has_zeros = i / 2 == 1;
        struct gk_canonical canonical;
        canonical_random(&canonical, &descs[i], &random);
        for (uint32_t j = 0; j < descs[i].n; j++) {
            elem_store(canonical.scales, DTYPE_F32, j, 1.0);
        }
        struct known known;
        known_init(&known, &canonical, 5, DTYPE_BF16);
        for (uint32_t j = 0; j < 5 * descs[i].k; j++) {
            elem_store(known.x.rows[j / descs[i].k], DTYPE_BF16, j % descs[i].k,
                       (int)(random_next(&random) % 65) - 32);
        }
        for_each_product(&known, DTYPE_F32, check_integers, NULL);
        known_finish(&known);
    }
}

/* ---- the published cases ---- */

/* All codes +1; scale `scale`, or that of group i times i + 1; x is 1 from first_one on. */
static void check_constant(const struct gk_desc *desc, double scale, bool is_growing, uint32_t m,
                           uint32_t first_one, double expected)
{
    struct gk_canonical canonical;
    canonical_fill(&canonical, desc, 9, scale);
    for (uint32_t i = 0; is_growing && i < gk_desc_groups(desc) * desc->n; i++) {
        elem_store(canonical.scales, desc->scale_dtype, i, scale * (1 + i / desc->n));
    }
    struct known known;
    known_init(&known, &canonical, m, DTYPE_F16);
    known_set(&known, 0, first_one, 0.0);
    known_set(&known, first_one, desc->k, 1.0);
    assert_all_equal(&known, DTYPE_F32, expected);
    known_finish(&known);
}

static void test_t01_more_groups_than_group_size(void **state)
{
    (void)state;
    static const uint32_t cases[][2] = {{32, 1088}, {64, 4224}, {128, 16512}};
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint32_t group_k = cases[i][0], k = cases[i][1];
        struct gk_desc desc = desc_int4(128, k, group_k, DTYPE_F16, DTYPE_NONE);
        check_constant(&desc, 1.0, false, 1, k - group_k, group_k);
        check_constant(&desc, 1.0, false, 17, k - group_k, group_k);
    }
}

/* Runs again give the same bits; rows_assert_equal() against the first. */
static void test_t02_row_tails(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64};
    static const char *const names[] = {"int4 g128", "fp8 128x128", "fp8 w8a8 128x128"};
    struct random random = {11};
    for (uint32_t i = 0; i < n_format_cases; i++) {
        bool is_wanted = false;
        for (uint32_t j = 0; j < ARRAY_LENGTH(names); j++) {
            is_wanted = is_wanted || strcmp(format_cases[i].name, names[j]) == 0;
        }
        for (uint32_t j = 0; is_wanted && j < ARRAY_LENGTH(rows); j++) {
            struct gk_desc desc = format_desc(&format_cases[i], 256, 512, DTYPE_NONE);
            struct gk_canonical canonical;
            canonical_random(&canonical, &desc, &random);
            struct known known;
            known_init(&known, &canonical, rows[j], DTYPE_BF16);
            rows_random(&known.x, &random);
            struct rows_case y, again;
            rows_init(&y, rows[j], desc.n, DTYPE_BF16);
            rows_init(&again, rows[j], desc.n, DTYPE_BF16);
            const struct gk_kernel *kernel = kernel_best(&known.weight, &known.x, &y);
            kernel_run(kernel, &known.weight, &known.x, &y, 1);
            assert_near_reference(&known.weight.canonical, &known.x, &y);
            for (uint32_t n_runs = 1; n_runs < 20; n_runs++) {
                kernel_run(kernel, &known.weight, &known.x, &again, 1 + n_runs % 4);
                rows_assert_equal(&y, &again);
            }
            rows_finish(&y);
            rows_finish(&again);
            known_finish(&known);
        }
    }
}

/* Sums over the largest fp16 number before scales make them small. */
static void test_t03_sums_beyond_f16(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 16, 64};
    struct gk_desc int8 = desc_int4(64, 4096, 4096, DTYPE_F32, DTYPE_NONE);
    int8.code = GK_CODE_U8;
    int8.act = GK_ACT_INT8_TENSOR;
    int8.act_scale = 0x1p-10f;
    struct gk_desc int4 = desc_int4(64, 4096, 128, DTYPE_F16, DTYPE_NONE);
    for (uint32_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct gk_canonical canonical;
        struct known known;
        canonical_fill(&canonical, &int8, 128 + 127, 0x1p-10);
        known_init(&known, &canonical, rows[i], DTYPE_F16);
        known_set(&known, 0, int8.k, 127 * 0x1p-10);
        assert_all_equal(&known, DTYPE_F16, 63.0);
        assert_all_equal(&known, DTYPE_F32, 63.00390625);
        known_finish(&known);
        canonical_fill(&canonical, &int4, 8 + 7, 0x1p-8);
        known_init(&known, &canonical, rows[i], DTYPE_F16);
        known_set(&known, 0, int4.k, 256.0);
        assert_all_equal(&known, DTYPE_F16, 28672.0);
        known_finish(&known);
    }
}

/* 16 * 16 for 8192 of k, then 128 ones, then -16 * 16: the ones must not drown. */
static void check_promoted(enum gk_act act, uint32_t m)
{
    bool is_group = act == GK_ACT_FP8_GROUP;
    struct gk_desc desc = {.n = 64,
                           .k = 16512,
                           .code = GK_CODE_E4M3,
                           .group_n = 64,
                           .group_k = is_group ? 128 : 16512,
                           .scale_dtype = DTYPE_F32,
                           .act = act,
                           .act_scale = is_group ? 0.0f : 1.0f};
    static const float ones[129] = {[0] = 1, [1 ... 128] = 1};
    struct gk_canonical canonical;
    canonical_fill(&canonical, &desc, e4m3_from_f32(16.0f), 1.0);
    for (uint32_t i_n = 0; i_n < desc.n; i_n++) {
        uint8_t *codes = (uint8_t *)canonical.codes + i_n * desc.k;
        memset(codes + 8192, e4m3_from_f32(1.0f), 128);
        memset(codes + 8320, e4m3_from_f32(-16.0f), 8192);
    }
    struct known known;
    known_init(&known, &canonical, m, DTYPE_F8_E4M3);
    known_set(&known, 0, desc.k, 16.0);
    known_set(&known, 8192, 8320, 1.0);
    known.x.has_scales = true;
    for (uint32_t i_m = 0; i_m < m; i_m++) {
        known.x.scales[i_m] = ones;
    }
    assert_all_equal(&known, DTYPE_F32, 128.0);
    known_finish(&known);
}

static void test_t07_sums_are_f32(void **state)
{
    (void)state;
    check_promoted(GK_ACT_FP8_TENSOR, 1);
    check_promoted(GK_ACT_FP8_TENSOR, 64);
    check_promoted(GK_ACT_FP8_GROUP, 1);
    check_promoted(GK_ACT_FP8_GROUP, 64);
}

static void test_t11_group_geometry(void **state)
{
    (void)state;
    struct gk_desc ragged = desc_int4(64, 192, 128, DTYPE_F16, DTYPE_NONE);
    check_constant(&ragged, 1.0, true, 1, 0, 256.0);
    struct gk_desc whole = desc_int4(64, 4096, 4096, DTYPE_F16, DTYPE_NONE);
    check_constant(&whole, 0.5, false, 1, 0, 2048.0);
}

/* The same numbers in scales of any type give the same bits. */
static void check_scale_types(const struct format_case *format, enum dtype x_dtype)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    struct rows_case first, y;
    rows_init(&first, 3, 70, x_dtype);
    rows_init(&y, 3, 70, x_dtype);
    for (uint32_t i = 0; i < ARRAY_LENGTH(types); i++) {
        struct gk_desc desc = format_desc(format, 70, 256, DTYPE_NONE);
        struct random random = {12};
        struct gk_canonical canonical;
        struct known known;
        desc.scale_dtype = types[i];
        canonical_random(&canonical, &desc, &random);
        for (uint32_t j = 0; j < gk_desc_groups(&desc) * gk_desc_scale_columns(&desc); j++) {
            elem_store(canonical.scales, types[i], j, 0.15625);
        }
        random.state = 13;
        known_init(&known, &canonical, 3, x_dtype);
        rows_random(&known.x, &random);
        struct rows_case *target = i == 0 ? &first : &y;
        kernel_run(kernel_best(&known.weight, &known.x, target), &known.weight, &known.x, target,
                   1);
        rows_assert_equal(&first, target);
        known_finish(&known);
    }
    rows_finish(&first);
    rows_finish(&y);
}

static void test_t12_scale_types(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_format_cases; i++) {
        enum dtype dtype = format_cases[i].desc.scale_dtype;
        if (dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16) {
            check_scale_types(&format_cases[i], DTYPE_F16);
            check_scale_types(&format_cases[i], DTYPE_BF16);
        }
    }
}

/* Three shards of 64 columns with scales of their own: 128, 1.28 (within a unit of the last place)
 * and 12800. */
static void check_shards(const struct known *known, const struct rows_case *y, void *arg)
{
    (void)known;
    (void)arg;
    static const double expected[] = {128.0, 1.28, 12800.0};
    for (uint32_t i_n = 0; i_n < 192; i_n++) {
        double value = expected[i_n / 64];
        assert_true(fabs(elem_load(y->rows[0], y->dtype, i_n) - value) <= value * 0x1p-10);
    }
}

static void test_t13_fused_scales(void **state)
{
    (void)state;
    static const double scales[] = {1.0, 0.01, 100.0};
    struct gk_desc desc = {.n = 192,
                           .k = 128,
                           .code = GK_CODE_E4M3,
                           .group_k = 128,
                           .scale_dtype = DTYPE_F32,
                           .act = GK_ACT_FP8_TENSOR,
                           .act_scale = 1.0f};
    static const uint32_t group_ns[] = {1, 64}; /* a scale a channel, or a shard */
    for (uint32_t i = 0; i < ARRAY_LENGTH(group_ns); i++) {
        struct gk_canonical canonical;
        struct known known;
        desc.group_n = group_ns[i];
        canonical_fill(&canonical, &desc, e4m3_from_f32(1.0f), 1.0);
        for (uint32_t j = 0; j < gk_desc_scale_columns(&desc); j++) {
            elem_store(canonical.scales, DTYPE_F32, j, scales[j * group_ns[i] / 64]);
        }
        known_init(&known, &canonical, 1, DTYPE_F16);
        known_set(&known, 0, desc.k, 1.0);
        for_each_product(&known, DTYPE_F16, check_shards, NULL);
        known_finish(&known);
    }
    struct gk_canonical canonical;
    struct known known;
    desc.group_n = 192;
    canonical_fill(&canonical, &desc, e4m3_from_f32(1.0f), 2.0);
    known_init(&known, &canonical, 1, DTYPE_F16);
    known_set(&known, 0, desc.k, 1.0);
    assert_all_equal(&known, DTYPE_F16, 256.0);
    known_finish(&known);
}

/* The last block along k is half as long and has its own scale. */
static void test_t14_last_block(void **state)
{
    (void)state;
    static const enum gk_act acts[] = {GK_ACT_FLOAT, GK_ACT_FP8_GROUP};
    static const float ones[2] = {1, 1};
    for (uint32_t i = 0; i < ARRAY_LENGTH(acts); i++) {
        struct gk_desc desc = {.n = 128,
                               .k = 192,
                               .code = GK_CODE_E4M3,
                               .group_n = 128,
                               .group_k = 128,
                               .scale_dtype = DTYPE_F32,
                               .act = acts[i]};
        struct gk_canonical canonical;
        struct known known;
        canonical_fill(&canonical, &desc, e4m3_from_f32(1.0f), 1.0);
        elem_store(canonical.scales, DTYPE_F32, 1, 100.0);
        known_init(&known, &canonical, 2, acts[i] == GK_ACT_FLOAT ? DTYPE_BF16 : DTYPE_F8_E4M3);
        known_set(&known, 0, desc.k, 1.0);
        known.x.has_scales = true;
        known.x.scales[0] = known.x.scales[1] = ones;
        assert_all_equal(&known, DTYPE_F32, 128.0 + 6400.0);
        known_finish(&known);
    }
}

/* Launches of other sizes in between leave nothing behind; every row is as it is alone. */
static void test_t31_large_small_large(void **state)
{
    (void)state;
    static const uint32_t rows[] = {10, 2, 10, 64, 1, 64, 17, 17};
    struct random random = {14};
    for (uint32_t i = 0; i < n_format_cases; i++) {
        struct gk_desc desc = format_desc(&format_cases[i], 80, 256, DTYPE_NONE);
        struct gk_canonical canonical;
        struct known known;
        canonical_random(&canonical, &desc, &random);
        known_init(&known, &canonical, GK_BATCH_ROWS_MAX, DTYPE_BF16);
        rows_random(&known.x, &random);
        struct rows_case all, y;
        rows_init(&all, GK_BATCH_ROWS_MAX, desc.n, DTYPE_BF16);
        const struct gk_kernel *kernel = kernel_best(&known.weight, &known.x, &all);
        kernel_run(kernel, &known.weight, &known.x, &all, 2);
        for (uint32_t j = 0; j < ARRAY_LENGTH(rows); j++) {
            rows_init(&y, rows[j], desc.n, DTYPE_BF16);
            known.x.m = rows[j];
            kernel_run(kernel, &known.weight, &known.x, &y, 2);
            for (uint32_t i_m = 0; i_m < rows[j]; i_m++) {
                assert_memory_equal(y.rows[i_m], all.rows[i_m], y.row_bytes);
            }
            rows_finish(&y);
        }
        rows_finish(&all);
        known_finish(&known);
    }
}

/* Zero points n mod 16; row 0 is the same alone and among others. */
static void check_asymmetric(uint32_t n, uint32_t group_k)
{
    struct gk_desc desc = desc_int4(n, 256, group_k, DTYPE_F16, DTYPE_NONE);
    desc.has_zeros = true;
    struct random random = {15};
    struct gk_canonical canonical;
    struct known known;
    canonical_random(&canonical, &desc, &random);
    for (uint32_t i = 0; i < gk_desc_groups(&desc) * n; i++) {
        canonical.zeros[i] = (uint8_t)(i % n % 16);
    }
    known_init(&known, &canonical, 16, DTYPE_F16);
    rows_random(&known.x, &random);
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    struct rows_case y, alone;
    rows_init(&y, 16, n, DTYPE_F32);
    rows_init(&alone, 1, n, DTYPE_F32);
    for (uint32_t i = 0; i < n_kernels; i++) {
        for (uint32_t m = 1; m <= 16 && kernel_fits(kernels[i], &known.weight, &known.x, &y);
             m *= 2) {
            known.x.m = y.m = m;
            kernel_run(kernels[i], &known.weight, &known.x, m == 1 ? &alone : &y, 1);
            assert_memory_equal(m == 1 ? alone.rows[0] : y.rows[0], alone.rows[0], y.row_bytes);
            assert_near_reference(&known.weight.canonical, &known.x, m == 1 ? &alone : &y);
        }
    }
    rows_finish(&y);
    rows_finish(&alone);
    known_finish(&known);
}

static void test_t32_asymmetric_rows(void **state)
{
    (void)state;
    for (uint32_t group_k = 16; group_k <= 128; group_k *= 2) {
        check_asymmetric(96, group_k);
        check_asymmetric(128, group_k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_t01_more_groups_than_group_size),
        cmocka_unit_test(test_t02_row_tails),
        cmocka_unit_test(test_t03_sums_beyond_f16),
        cmocka_unit_test(test_t07_sums_are_f32),
        cmocka_unit_test(test_t11_group_geometry),
        cmocka_unit_test(test_t12_scale_types),
        cmocka_unit_test(test_t13_fused_scales),
        cmocka_unit_test(test_t14_last_block),
        cmocka_unit_test(test_t31_large_small_large),
        cmocka_unit_test(test_t32_asymmetric_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
