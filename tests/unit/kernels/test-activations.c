/* test-activations.c - weights that quantise their activations, through every host kernel: the
 * daemon's own codes and those that a client brings give the same bits; saturation, zeros, NaN and
 * infinities come out as kernels/NUMERICS.md says; nothing is read that was not written. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/f8.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "kernel_case.h"
#include "kernels/quant/quant.h"

#define ONE_E4M3 0x38

static const enum gk_act acts[] = {GK_ACT_FP8_TENSOR,  GK_ACT_FP8_TOKEN,  GK_ACT_FP8_GROUP,
                                   GK_ACT_INT8_TENSOR, GK_ACT_INT8_TOKEN, GK_ACT_INT8_TOKEN_ZERO};

static struct gk_desc desc_act(enum gk_act act, uint32_t n, uint32_t k)
{
    bool is_group = act == GK_ACT_FP8_GROUP;
    bool is_static = act == GK_ACT_FP8_TENSOR || act == GK_ACT_INT8_TENSOR;
    return (struct gk_desc){.n = n,
                            .k = k,
                            .code = gk_act_is_int8(act) ? GK_CODE_U8 : GK_CODE_E4M3,
                            .group_n = is_group ? (uint32_t)num_min(n, 128) : 1,
                            .group_k = is_group ? (uint32_t)num_min(k, 128) : k,
                            .scale_dtype = DTYPE_F32,
                            .act = act,
                            .act_scale = is_static ? 0x1p-7f : 0.0f};
}

/* Every code the same, every scale the same. */
static void weight_fill(struct weight_case *weight, const struct gk_desc *desc, uint8_t code,
                        double scale)
{
    struct gk_canonical canonical;
    assert_int_equal(gk_canonical_alloc(&canonical, desc), 0);
    memset(canonical.codes, code, (uint64_t)desc->n * desc->k);
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    for (uint64_t i = 0; i < n_scales; i++) {
        elem_store(canonical.scales, desc->scale_dtype, i, scale);
    }
    weight_case_init(weight, &canonical);
}

/* Any codes but NaN, small scales. */
static void weight_random(struct weight_case *weight, const struct gk_desc *desc,
                          struct random *random)
{
    struct gk_canonical canonical;
    assert_int_equal(gk_canonical_alloc(&canonical, desc), 0);
    uint8_t *codes = canonical.codes;
    for (uint64_t i = 0; i < (uint64_t)desc->n * desc->k; i++) {
        codes[i] = (uint8_t)random_next(random);
        if (desc->code == GK_CODE_E4M3 && (codes[i] & 0x7f) == 0x7f) {
            codes[i] ^= 0x40;
        }
    }
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    for (uint64_t i = 0; i < n_scales; i++) {
        elem_store(canonical.scales, desc->scale_dtype, i, 0.02 + 0.01 * random_unit(random));
    }
    weight_case_init(weight, &canonical);
}

/* ---- one launch --------------------------------------------------------------------------------
 */

/* Rows of x as they are launched, m of them; scales NULL but for rows that come with some. */
struct rows {
    uint32_t m;
    enum dtype dtype;
    const void *x[GK_BATCH_ROWS_MAX];
    const float *scales[GK_BATCH_ROWS_MAX];
};

/* y (m, n) float. The workspace holds `garbage` before. False when the kernel does not do that. */
static bool run(const struct gk_kernel *kernel, const struct weight_case *weight,
                const struct rows *rows, uint8_t garbage, float *y)
{
    const struct gk_desc *desc = &weight->canonical.desc;
    void *y_rows[GK_BATCH_ROWS_MAX];
    for (uint32_t i = 0; i < rows->m; i++) {
        y_rows[i] = y + (uint64_t)i * desc->n;
    }
    struct gk_launch launch = {.problem = {.desc = *desc,
                                           .layout = weight->layout,
                                           .m = rows->m,
                                           .x_dtype = rows->dtype,
                                           .y_dtype = DTYPE_F32},
                               .packed = weight->packed,
                               .x_rows = rows->x,
                               .x_scale_rows = rows->scales[0] != NULL ? rows->scales : NULL,
                               .y_rows = y_rows};
    if (kernel->can_implement(&launch.problem, NULL) != 0) {
        return false;
    }
    uint64_t n_bytes = num_align_up(kernel->workspace_bytes(&launch.problem) + 1, 64);
    launch.workspace = aligned_alloc(64, n_bytes);
    assert_non_null(launch.workspace);
    memset(launch.workspace, garbage, n_bytes);
    for (uint32_t i = 0; i < 3; i++) {
        kernel->prepare(&launch, i, 3);
    }
    for (uint32_t i = 0; i < 3; i++) {
        kernel->run(&launch, i, 3);
    }
    free(launch.workspace);
    return true;
}

/* y by every kernel that does it, at least one; all have the same bits (T15: whatever the workspace
 * held before). */
static void run_all(const struct weight_case *weight, const struct rows *rows, float *y)
{
    uint64_t n_bytes = (uint64_t)rows->m * weight->canonical.desc.n * sizeof(float);
    float *other = malloc(n_bytes);
    assert_non_null(other);
    uint32_t n_kernels;
    uint32_t n_run = 0;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    for (uint32_t i = 0; i < 2 * n_kernels; i++) {
        float *target = n_run == 0 ? y : other;
        if (run(kernels[i / 2], weight, rows, i % 2 == 0 ? 0xff : 0x00, target)) {
            assert_memory_equal(y, target, n_bytes);
            n_run++;
        }
    }
    assert_true(n_run >= 2);
    free(other);
}

/* One row of floats. */
static void run_row(const struct weight_case *weight, const float *x, float *y)
{
    const struct rows rows = {.m = 1, .dtype = DTYPE_F32, .x = {x}};
    run_all(weight, &rows, y);
}

/* ---- rows that come quantised ------------------------------------------------------------------
 */

/* Random rows as floats of a type, and what the rules make of them. */
struct both {
    struct rows floats;
    struct rows codes;
    void *values;
    uint8_t *code_bytes;
    float *scales;
};

static void both_init(struct both *both, const struct gk_desc *desc, uint32_t m, enum dtype dtype,
                      struct random *random)
{
    uint32_t elem_bytes = dtype_bytes(dtype);
    uint32_t n_scales = quant_scales(desc);
    bool has_scales = gk_desc_x_scales(desc) != 0;
    float *row = malloc(desc->k * sizeof(float));
    *both = (struct both){.floats = {.m = m, .dtype = dtype},
                          .codes = {.m = m, .dtype = gk_act_dtype(desc->act)},
                          .values = malloc((uint64_t)m * desc->k * elem_bytes),
                          .code_bytes = malloc((uint64_t)m * desc->k),
                          .scales = malloc((uint64_t)m * n_scales * sizeof(float))};
    assert_true(row && both->values && both->code_bytes && both->scales);
    for (uint32_t i = 0; i < m; i++) {
        char *values = (char *)both->values + (uint64_t)i * desc->k * elem_bytes;
        uint8_t *codes = both->code_bytes + (uint64_t)i * desc->k;
        float *scales = both->scales + (uint64_t)i * n_scales;
        for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
            elem_store(values, dtype, i_k, random_unit(random) * (i + 1));
            row[i_k] = (float)elem_load(values, dtype, i_k);
        }
        (void)quant_row(&quant_portable, desc, row, codes, scales);
        both->floats.x[i] = values;
        both->codes.x[i] = codes;
        both->codes.scales[i] = has_scales ? scales : NULL;
    }
    free(row);
}

static void both_finish(struct both *both)
{
    free(both->values);
    free(both->code_bytes);
    free(both->scales);
}

static void check_same_bits(const struct gk_desc *desc, uint32_t m, enum dtype dtype,
                            struct random *random)
{
    struct weight_case weight;
    struct both both;
    weight_random(&weight, desc, random);
    both_init(&both, desc, m, dtype, random);
    uint64_t n_bytes = (uint64_t)m * desc->n * sizeof(float);
    float *y = malloc(n_bytes);
    float *y_of_codes = malloc(n_bytes);
    assert_true(y && y_of_codes);
    run_all(&weight, &both.floats, y);
    run_all(&weight, &both.codes, y_of_codes);
    assert_memory_equal(y, y_of_codes, n_bytes);
    free(y);
    free(y_of_codes);
    both_finish(&both);
    weight_case_finish(&weight);
}

/* INT8_TOKEN_ZERO is left out: what a client brings is symmetric there. */
static void test_codes_give_the_bits_of_floats(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    static const uint32_t counts[] = {1, 3, 5, 64};
    struct random random = {3};
    for (uint32_t i = 0; i < ARRAY_LENGTH(acts) * ARRAY_LENGTH(dtypes); i++) {
        enum gk_act act = acts[i / ARRAY_LENGTH(dtypes)];
        if (act == GK_ACT_INT8_TOKEN_ZERO) {
            continue;
        }
        struct gk_desc desc = desc_act(act, 72, i % 2 == 0 ? 320 : 512);
        desc.act_zero = act == GK_ACT_INT8_TENSOR ? 11 : 0;
        desc.is_act_scale_pow2 = act == GK_ACT_FP8_GROUP && i % 2 != 0;
        check_same_bits(&desc, counts[i % ARRAY_LENGTH(counts)], dtypes[i % 3], &random);
    }
}

/* Symmetric codes for a weight whose own codes are not. */
static void test_symmetric_codes_for_token_zero(void **state)
{
    (void)state;
    struct gk_desc desc = desc_act(GK_ACT_INT8_TOKEN_ZERO, 2, 3);
    struct weight_case weight;
    weight_fill(&weight, &desc, 129, 2.0);
    static const int8_t codes[] = {-128, 127, 5};
    static const float scale = 0.25f;
    const struct rows rows = {.m = 1, .dtype = DTYPE_I8, .x = {codes}, .scales = {&scale}};
    float y[2];
    run_all(&weight, &rows, y);
    assert_true(y[0] == 4 * 2.0f * 0.25f && y[1] == y[0]);
    weight_case_finish(&weight);
}

/* ---- against double ----------------------------------------------------------------------------
 */

/* sum of (code - zero) * scale * w, and of its terms' magnitudes. */
static double reference(const struct weight_case *weight, const float *x, uint32_t i_n,
                        double *ret_magnitude)
{
    const struct gk_desc *desc = &weight->canonical.desc;
    uint8_t codes[1024];
    float scales[16];
    int32_t zero = quant_row(&quant_portable, desc, x, codes, scales);
    double sum = 0;
    *ret_magnitude = 0;
    for (uint32_t i = 0; i < desc->k; i++) {
        double scale = (double)scales[desc->act == GK_ACT_FP8_GROUP ? i / GK_ACT_GROUP_K : 0];
        double value = gk_act_is_int8(desc->act) ? (double)((int8_t)codes[i] - zero)
                                                 : (double)e4m3_to_f32(codes[i]);
        double term = value * scale * gk_canonical_value(&weight->canonical, i_n, i);
        sum += term;
        *ret_magnitude += fabs(term);
    }
    return sum;
}

static void assert_is_reference(const struct weight_case *weight, const float *x, const float *y)
{
    for (uint32_t i_n = 0; i_n < weight->canonical.desc.n; i_n++) {
        double magnitude;
        double expected = reference(weight, x, i_n, &magnitude);
        assert_true(fabs((double)y[i_n] - expected) <= 200 * 0x1p-24 * magnitude);
    }
}

/* T04: zeros of both signs, one denormal of binary16, a row whose first half is 0. */
static void test_rows_of_zeros(void **state)
{
    (void)state;
    struct random random = {4};
    for (size_t i = 0; i < ARRAY_LENGTH(acts); i++) {
        enum { K = 256, N = 40 };
        struct gk_desc desc = desc_act(acts[i], N, K);
        struct weight_case weight;
        weight_random(&weight, &desc, &random);
        static float x[5][K];
        float y[5][N];
        for (uint32_t i_k = 0; i_k < K; i_k++) {
            x[1][i_k] = x[2][i_k] = -0.0f;
            x[3][i_k] = (float)random_unit(&random);
            x[4][i_k] = i_k < K / 2 ? 0 : (float)random_unit(&random);
        }
        x[2][99] = 0x1p-24f;
        const struct rows rows = {.m = 5, .dtype = DTYPE_F32, .x = {x[0], x[1], x[2], x[3], x[4]}};
        run_all(&weight, &rows, y[0]);
        for (uint32_t i_n = 0; i_n < N; i_n++) {
            assert_true(y[0][i_n] == 0 && y[1][i_n] == 0);
        }
        for (uint32_t i_row = 2; i_row < 5; i_row++) {
            assert_is_reference(&weight, x[i_row], y[i_row]);
        }
        weight_case_finish(&weight);
    }
}

/* ---- saturation, NaN and infinities ------------------------------------------------------------
 */

enum { IDENTITY_N = 128 };

/* W = 1 with act_scale 2^-7 or none. */
static void weight_identity(struct weight_case *weight, enum gk_act act)
{
    struct gk_desc desc = desc_act(act, IDENTITY_N, IDENTITY_N);
    struct gk_canonical canonical;
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    bool is_int8 = gk_act_is_int8(act);
    memset(canonical.codes, is_int8 ? 128 : 0, IDENTITY_N * IDENTITY_N);
    for (uint32_t i = 0; i < IDENTITY_N; i++) {
        ((uint8_t *)canonical.codes)[i * IDENTITY_N + i] = is_int8 ? 129 : ONE_E4M3;
    }
    for (uint64_t i = 0; i < (uint64_t)gk_desc_scale_columns(&desc); i++) {
        ((float *)canonical.scales)[i] = 1.0f;
    }
    weight_case_init(weight, &canonical);
}

/* Two rows: x[0][0] of the first is `poison`, the second is 0.5 throughout. */
static void run_poisoned(const struct weight_case *weight, float poison, float y[2][IDENTITY_N])
{
    float x[2][IDENTITY_N] = {{poison}};
    for (uint32_t i = 0; i < IDENTITY_N; i++) {
        x[1][i] = 0.5f;
    }
    const struct rows rows = {.m = 2, .dtype = DTYPE_F32, .x = {x[0], x[1]}};
    run_all(weight, &rows, y[0]);
}

/* T05. */
static void test_static_scales_saturate(void **state)
{
    (void)state;
    static const struct {
        float x, fp8, int8;
    } cases[] = {{10.0f, 3.5f, 127 * 0x1p-7f},    {-10.0f, -3.5f, -1.0f},
                 {3.5f, 3.5f, 127 * 0x1p-7f},     {3.625f, 3.5f, 127 * 0x1p-7f},
                 {INFINITY, 3.5f, 127 * 0x1p-7f}, {-INFINITY, -3.5f, -1.0f}};
    static const enum gk_act statics[] = {GK_ACT_FP8_TENSOR, GK_ACT_INT8_TENSOR};
    for (size_t i = 0; i < 2 * ARRAY_LENGTH(cases); i++) {
        struct weight_case weight;
        float y[2][IDENTITY_N];
        weight_identity(&weight, statics[i % 2]);
        run_poisoned(&weight, cases[i / 2].x, y);
        assert_true(y[0][0] == (i % 2 == 0 ? cases[i / 2].fp8 : cases[i / 2].int8));
        for (uint32_t i_n = 0; i_n < IDENTITY_N; i_n++) {
            assert_true(i_n == 0 || y[0][i_n] == 0);
            assert_true(y[1][i_n] == 0.5f);
        }
        weight_case_finish(&weight);
    }
}

static void check_row_is_nan(enum gk_act act, float poison)
{
    struct weight_case weight;
    float y[2][IDENTITY_N];
    weight_identity(&weight, act);
    run_poisoned(&weight, poison, y);
    for (uint32_t i_n = 0; i_n < IDENTITY_N; i_n++) {
        assert_int_equal(f8_bits_of(y[0][i_n]), 0x7fc00000);
        assert_false(isnan(y[1][i_n]));
    }
    weight_case_finish(&weight);
}

static void test_nan_and_infinities_spoil_their_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(acts); i++) {
        check_row_is_nan(acts[i], NAN);
        check_row_is_nan(acts[i], -NAN);
        if (acts[i] != GK_ACT_FP8_TENSOR && acts[i] != GK_ACT_INT8_TENSOR) {
            check_row_is_nan(acts[i], INFINITY);
            check_row_is_nan(acts[i], -INFINITY);
        }
    }
}

/* ---- exact sums --------------------------------------------------------------------------------
 */

/* T03: 4096 times 127 * 127 is beyond binary16 before the scales, and 63.00390625 after them. */
static void test_scales_come_before_rounding(void **state)
{
    (void)state;
    enum { K = 4096 };
    struct gk_desc desc = desc_act(GK_ACT_INT8_TENSOR, 8, K);
    desc.act_scale = 0x1p-10f;
    struct weight_case weight;
    weight_fill(&weight, &desc, 128 + 127, 0x1p-10);
    static float x[K];
    for (uint32_t i = 0; i < K; i++) {
        x[i] = 127 * 0x1p-10f;
    }
    float y[8];
    run_row(&weight, x, y);
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(y[i] == 63.00390625f);
        assert_true(half_to_f32(half_from_f32(y[i])) == 63.0f);
    }
    weight_case_finish(&weight);
}

/* T07: partial sums of 2^21 on the way to 128; every one is a whole number below 2^24. */
static void check_long_sum(enum gk_act act)
{
    enum { K = 16512, N = 64, HALF = 8192 };
    struct gk_desc desc = desc_act(act, N, K);
    desc.act_scale = act == GK_ACT_FP8_TENSOR ? 1.0f : 0.0f;
    struct gk_canonical canonical;
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    static uint8_t x[K];
    static float scales[K / GK_ACT_GROUP_K];
    for (uint32_t i = 0; i < K; i++) {
        bool is_middle = i >= HALF && i < K - HALF;
        x[i] = e4m3_from_f32(is_middle ? 1.0f : 16.0f);
        float w = is_middle ? 1.0f : i < HALF ? 16.0f : -16.0f;
        for (uint32_t i_n = 0; i_n < N; i_n++) {
            ((uint8_t *)canonical.codes)[(uint64_t)i_n * K + i] = e4m3_from_f32(w);
        }
    }
    uint64_t n_scales = (uint64_t)gk_desc_groups(&desc) * gk_desc_scale_columns(&desc);
    for (uint64_t i = 0; i < n_scales; i++) {
        ((float *)canonical.scales)[i] = 1.0f;
    }
    for (uint32_t i = 0; i < ARRAY_LENGTH(scales); i++) {
        scales[i] = 1.0f;
    }
    struct weight_case weight;
    weight_case_init(&weight, &canonical);
    struct rows rows = {.m = GK_BATCH_ROWS_MAX, .dtype = DTYPE_F8_E4M3};
    for (uint32_t i = 0; i < rows.m; i++) {
        rows.x[i] = x;
        rows.scales[i] = gk_desc_x_scales(&desc) != 0 ? scales : NULL;
    }
    static float y[GK_BATCH_ROWS_MAX * N];
    run_all(&weight, &rows, y);
    for (uint32_t i = 0; i < ARRAY_LENGTH(y); i++) {
        assert_true(y[i] == 128.0f);
    }
    weight_case_finish(&weight);
}

static void test_long_sums_are_exact(void **state)
{
    (void)state;
    check_long_sum(GK_ACT_FP8_TENSOR);
    check_long_sum(GK_ACT_FP8_TOKEN);
    check_long_sum(GK_ACT_FP8_GROUP);
}

/* T14: a last block of k that is short has its own scale: 128 * 1 + 64 * 100. */
static void test_short_last_block(void **state)
{
    (void)state;
    enum { N = 128, K = 192 };
    struct gk_desc desc = desc_act(GK_ACT_FP8_GROUP, N, K);
    struct gk_canonical canonical;
    assert_int_equal(gk_canonical_alloc(&canonical, &desc), 0);
    memset(canonical.codes, ONE_E4M3, N * K);
    memcpy(canonical.scales, (const float[]){1, 100}, 2 * sizeof(float));
    struct weight_case weight;
    weight_case_init(&weight, &canonical);
    uint8_t x[K];
    memset(x, ONE_E4M3, sizeof(x));
    static const float scales[] = {1, 1};
    const struct rows rows = {.m = 1, .dtype = DTYPE_F8_E4M3, .x = {x}, .scales = {scales}};
    float y[N];
    run_all(&weight, &rows, y);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(y[i] == 6528.0f);
    }
    weight_case_finish(&weight);
}

/* T12: a scale that all types have exactly gives the same bits in all of them. */
static void test_scale_types_agree(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t i_act = 0; i_act < ARRAY_LENGTH(acts); i_act++) {
        enum { N = 130, K = 256 };
        float y[ARRAY_LENGTH(dtypes)][N];
        for (size_t i = 0; i < ARRAY_LENGTH(dtypes); i++) {
            struct random random = {12};
            struct gk_desc desc = desc_act(acts[i_act], N, K);
            desc.scale_dtype = dtypes[i];
            struct weight_case weight;
            weight_fill(&weight, &desc, 0x91, 0.15625);
            float x[K];
            for (uint32_t i_k = 0; i_k < K; i_k++) {
                x[i_k] = (float)random_unit(&random);
            }
            run_row(&weight, x, y[i]);
            assert_memory_equal(y[i], y[0], sizeof(y[0]));
            weight_case_finish(&weight);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_give_the_bits_of_floats),
        cmocka_unit_test(test_symmetric_codes_for_token_zero),
        cmocka_unit_test(test_rows_of_zeros),
        cmocka_unit_test(test_static_scales_saturate),
        cmocka_unit_test(test_nan_and_infinities_spoil_their_row),
        cmocka_unit_test(test_scales_come_before_rounding),
        cmocka_unit_test(test_long_sums_are_exact),
        cmocka_unit_test(test_short_last_block),
        cmocka_unit_test(test_scale_types_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
