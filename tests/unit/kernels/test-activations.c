/* test-activations.c - weights that quantise their activations, through every host kernel:
 * saturation, zeros, NaN and infinities come out as kernels/NUMERICS.md says, and nothing is read
 * that was not written. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/f8.h"
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

/* ---- one launch ---- */

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

/* ---- against double ---- */

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

/* ---- saturation, NaN and infinities ---- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_symmetric_codes_for_token_zero),
        cmocka_unit_test(test_rows_of_zeros),
        cmocka_unit_test(test_static_scales_saturate),
        cmocka_unit_test(test_nan_and_infinities_spoil_their_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
