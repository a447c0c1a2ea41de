/* test-quant.c - every scheme by a slow rule written from kernels/NUMERICS.md, with every
 * instruction set; then the rows in which a mistake hides: zeros, denormals, saturation, infinities
 * and NaN. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/f8.h"
#include "ipc/base/num.h"
#include "kernel_case.h"
#include "kernels/isa.h"
#include "kernels/quant/quant.h"

#define K_MAX          1000u
#define GUARD          0x5a
#define ORDINARY_SCALE 0x1p-7f

static const enum gk_act acts[] = {GK_ACT_FP8_TENSOR,  GK_ACT_FP8_TOKEN,  GK_ACT_FP8_GROUP,
                                   GK_ACT_INT8_TENSOR, GK_ACT_INT8_TOKEN, GK_ACT_INT8_TOKEN_ZERO};

struct row {
    uint8_t codes[K_MAX + 1];
    float scales[K_MAX / GK_ACT_GROUP_K + 2];
    int32_t zero;
};

static struct gk_desc desc_of(enum gk_act act, uint32_t k)
{
    bool is_static = act == GK_ACT_FP8_TENSOR || act == GK_ACT_INT8_TENSOR;
    return (struct gk_desc){.n = 1,
                            .k = k,
                            .code = gk_act_is_int8(act) ? GK_CODE_U8 : GK_CODE_E4M3,
                            .act = act,
                            .act_scale = is_static ? ORDINARY_SCALE : 0.0f,
                            .act_zero = act == GK_ACT_INT8_TENSOR ? -5 : 0};
}

static const struct quant_ops *const *ops_here(uint32_t *ret_n)
{
    static const struct quant_ops *ops[] = {&quant_portable, NULL};
    *ret_n = 1;
#if defined(__x86_64__)
    if (isa_check(ISA_AVX2, NULL) == 0) {
        ops[(*ret_n)++] = &quant_avx2;
    }
#endif
    return ops;
}

/* By one instruction set; nothing is written behind the codes and the scales. */
static void quantise_with(const struct quant_ops *ops, const struct gk_desc *desc, const float *x,
                          struct row *row)
{
    memset(row, GUARD, sizeof(*row));
    float guard = row->scales[0];
    row->zero = quant_row(ops, desc, x, row->codes, row->scales);
    assert_int_equal(row->codes[desc->k], GUARD);
    assert_memory_equal(&row->scales[quant_scales(desc)], &guard, sizeof(guard));
}

/* By all instruction sets, which must agree; NaN scales by being NaN. */
static void quantise(const struct gk_desc *desc, const float *x, struct row *row)
{
    uint32_t n_ops;
    const struct quant_ops *const *ops = ops_here(&n_ops);
    quantise_with(ops[0], desc, x, row);
    for (uint32_t i = 1; i < n_ops; i++) {
        struct row other;
        quantise_with(ops[i], desc, x, &other);
        assert_int_equal(row->zero, other.zero);
        assert_memory_equal(row->codes, other.codes, desc->k);
        assert_memory_equal(row->scales, other.scales, quant_scales(desc) * sizeof(float));
    }
}

/* What a code stands for, with the scale of its place; NaN if that is. */
static double value_at(const struct gk_desc *desc, const struct row *row, uint32_t i)
{
    uint32_t i_scale = desc->act == GK_ACT_FP8_GROUP ? i / GK_ACT_GROUP_K : 0;
    double scale = (double)row->scales[i_scale];
    if (gk_act_is_fp8(desc->act)) {
        return scale * (double)e4m3_to_f32(row->codes[i]);
    }
    return scale * (double)((int8_t)row->codes[i] - row->zero);
}

/* ---- the slow rule ----------------------------------------------------------------------------
 * In double: the quotient of two floats, rounded to double and then to float, is the one that is
 * rounded to float at once. */

static float divided(float a, float b)
{
    return (float)((double)a / (double)b);
}

static float slow_scale(const struct gk_desc *desc, const float *x, uint32_t n)
{
    float low = 0;
    float high = 0;
    for (uint32_t i = 0; i < n; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    float amax = fmaxf(high, -low);
    switch (desc->act) {
    case GK_ACT_INT8_TOKEN:
        return fmaxf(divided(amax, 127.0f), 0x1p-40f);
    case GK_ACT_INT8_TOKEN_ZERO:
        return fmaxf(divided(high - low, 255.0f), 0x1p-40f);
    case GK_ACT_FP8_TOKEN:
    case GK_ACT_FP8_GROUP:
        break;
    default:
        return desc->act_scale;
    }
    float scale = fmaxf(divided(amax, 448.0f), 1.0f / 229376.0f);
    return desc->is_act_scale_pow2 ? exp2f(ceilf((float)log2((double)scale))) : scale;
}

static int32_t slow_zero(const struct gk_desc *desc, const float *x, float scale)
{
    float low = 0;
    for (uint32_t i = 0; i < desc->k; i++) {
        low = fminf(low, x[i]);
    }
    return desc->act == GK_ACT_INT8_TOKEN_ZERO
               ? (int32_t)fmaxf(-128.0f, fminf(127.0f, rintf(-128.0f - divided(low, scale))))
               : desc->act_zero;
}

static uint8_t slow_code(const struct gk_desc *desc, float x, float scale, int32_t zero)
{
    float quotient = divided(x, scale);
    if (gk_act_is_fp8(desc->act)) {
        return e4m3_from_f32(quotient);
    }
    return (uint8_t)(int32_t)fmax(-128.0, fmin(127.0, rint((double)quotient) + zero));
}

static void check_by_slow_rule(const struct gk_desc *desc, const float *x)
{
    struct row row;
    quantise(desc, x, &row);
    uint32_t group_k = desc->act == GK_ACT_FP8_GROUP ? GK_ACT_GROUP_K : desc->k;
    assert_int_equal(quant_scales(desc), num_div_up(desc->k, group_k));
    for (uint32_t first = 0; first < desc->k; first += group_k) {
        uint32_t n = (uint32_t)num_min(group_k, desc->k - first);
        float scale = slow_scale(desc, x + first, n);
        assert_true(row.scales[first / group_k] == scale);
        assert_int_equal(row.zero, slow_zero(desc, x, scale));
        for (uint32_t i = first; i < first + n; i++) {
            assert_int_equal(row.codes[i], slow_code(desc, x[i], scale, row.zero));
        }
    }
}

static const uint32_t lengths[] = {1, 2, 7, 8, 31, 32, 33, 64, 127, 128, 129, 192, 256, 257, 1000};

static void test_random_rows(void **state)
{
    (void)state;
    struct random random = {1};
    float x[K_MAX];
    for (size_t i = 0; i < ARRAY_LENGTH(acts) * ARRAY_LENGTH(lengths) * 8; i++) {
        struct gk_desc desc = desc_of(acts[i % ARRAY_LENGTH(acts)],
                                      lengths[i / ARRAY_LENGTH(acts) % ARRAY_LENGTH(lengths)]);
        bool is_dynamic_fp8 = desc.act == GK_ACT_FP8_TOKEN || desc.act == GK_ACT_FP8_GROUP;
        desc.is_act_scale_pow2 = is_dynamic_fp8 && random_next(&random) % 2 != 0;
        double offset = random_unit(&random);
        double magnitude = ldexp(1.0, (int)(random_next(&random) % 40) - 30);
        for (uint32_t i_k = 0; i_k < desc.k; i_k++) {
            x[i_k] = (float)((random_unit(&random) + offset) * magnitude);
        }
        check_by_slow_rule(&desc, x);
    }
}

/* ---- rows in which a mistake hides ---- */

static void assert_scales_positive(const struct gk_desc *desc, const struct row *row)
{
    for (uint32_t i = 0; i < quant_scales(desc); i++) {
        assert_true(row->scales[i] >= FLT_MIN && row->scales[i] <= FLT_MAX);
    }
}

/* T04: rows of +0 and of -0, one with the smallest binary16, one whose first half is 0. */
static void test_zeros(void **state)
{
    (void)state;
    for (size_t i_act = 0; i_act < ARRAY_LENGTH(acts); i_act++) {
        struct gk_desc desc = desc_of(acts[i_act], 256);
        float x[256] = {0};
        struct row row;
        for (int sign = 0; sign < 2; sign++) {
            quantise(&desc, x, &row);
            assert_scales_positive(&desc, &row);
            for (uint32_t i = 0; i < desc.k; i++) {
                assert_true(value_at(&desc, &row, i) == 0.0);
                x[i] = -0.0f;
            }
        }
        x[77] = 0x1p-24f;
        check_by_slow_rule(&desc, x);
        for (uint32_t i = 128; i < 256; i++) {
            x[i] = (float)i - 190.5f;
        }
        quantise(&desc, x, &row);
        assert_scales_positive(&desc, &row);
        assert_true(value_at(&desc, &row, 0) == 0.0);
        check_by_slow_rule(&desc, x);
    }
}

/* Rows so small that the floor decides, down to one denormal. */
static void test_floors(void **state)
{
    (void)state;
    static const float small[] = {0x1p-149f, FLT_MIN, 0x1p-60f, 0x1p-30f};
    for (size_t i = 0; i < ARRAY_LENGTH(acts) * ARRAY_LENGTH(small); i++) {
        struct gk_desc desc = desc_of(acts[i % ARRAY_LENGTH(acts)], 3);
        float x[3] = {-small[i / ARRAY_LENGTH(acts)], small[i / ARRAY_LENGTH(acts)], 0};
        check_by_slow_rule(&desc, x);
    }
    struct gk_desc desc = desc_of(GK_ACT_FP8_TOKEN, 1);
    desc.is_act_scale_pow2 = true;
    struct row row;
    quantise(&desc, &(float){0x1p-149f}, &row);
    assert_true(row.scales[0] == 0x1p-17f); /* the floor is rounded up like any scale */
}

/* T05, as far as the codes. */
static void test_saturation(void **state)
{
    (void)state;
    struct gk_desc desc = desc_of(GK_ACT_FP8_TENSOR, 8);
    const float x[] = {10.0f, -10.0f, 3.5f, 3.625f, INFINITY, -INFINITY, FLT_MAX, 0.5f};
    static const double fp8[] = {3.5, -3.5, 3.5, 3.5, 3.5, -3.5, 3.5, 0.5};
    struct row row;
    quantise(&desc, x, &row);
    for (uint32_t i = 0; i < desc.k; i++) {
        assert_true(value_at(&desc, &row, i) == fp8[i]);
    }
    desc = desc_of(GK_ACT_INT8_TENSOR, 8);
    static const int8_t int8[] = {127, -128, 127, 127, 127, -128, 127, 59};
    quantise(&desc, x, &row);
    assert_memory_equal(row.codes, int8, sizeof(int8));
    assert_int_equal(row.zero, desc.act_zero);
    assert_true(row.scales[0] == desc.act_scale);
}

/* One element at any place, among them the last of an odd tail: is the row of y NaN? */
static void check_poison(enum gk_act act, float poison, bool is_nan)
{
    float x[129];
    for (uint32_t at = 0; at < ARRAY_LENGTH(x); at += 16) {
        for (uint32_t i = 0; i < ARRAY_LENGTH(x); i++) {
            x[i] = (float)(i % 5) - 1.0f;
        }
        x[at] = poison;
        struct gk_desc desc = desc_of(act, ARRAY_LENGTH(x));
        struct row row;
        quantise(&desc, x, &row);
        double sum = 0;
        for (uint32_t i = 0; i < desc.k; i++) {
            sum += value_at(&desc, &row, i);
        }
        assert_int_equal(isnan(sum) != 0, is_nan);
    }
}

static void test_infinities_and_nan(void **state)
{
    (void)state;
    const float nans[] = {NAN, -NAN, f8_float_of(0x7f800001), f8_float_of(0xff800001)};
    for (size_t i = 0; i < ARRAY_LENGTH(acts); i++) {
        bool is_static = acts[i] == GK_ACT_FP8_TENSOR || acts[i] == GK_ACT_INT8_TENSOR;
        check_poison(acts[i], INFINITY, !is_static);
        check_poison(acts[i], -INFINITY, !is_static);
        check_poison(acts[i], 3.0f, false);
        for (size_t j = 0; j < ARRAY_LENGTH(nans); j++) {
            check_poison(acts[i], nans[j], true);
        }
    }
}

/* The largest finite values have scales, but for a range that does not fit binary32. */
static void test_largest_values(void **state)
{
    (void)state;
    const float x[] = {FLT_MAX, 0, -FLT_MAX};
    for (size_t i = 0; i < ARRAY_LENGTH(acts); i++) {
        struct gk_desc desc = desc_of(acts[i], 3);
        struct row row;
        quantise(&desc, x, &row);
        assert_int_equal(isnan(row.scales[0]) != 0, acts[i] == GK_ACT_INT8_TOKEN_ZERO);
        if (acts[i] != GK_ACT_INT8_TOKEN_ZERO) {
            check_by_slow_rule(&desc, x);
        }
    }
}

/* A zero point puts 0, and both ends of the range, within half a step. */
static void test_zero_points(void **state)
{
    (void)state;
    static const float ranges[][2] = {{0, 4}, {-4, 0}, {-1, 3}, {2, 3}, {-3, -2}, {-1e-3f, 1e3f}};
    for (size_t i = 0; i < ARRAY_LENGTH(ranges); i++) {
        struct gk_desc desc = desc_of(GK_ACT_INT8_TOKEN_ZERO, 3);
        const float x[] = {ranges[i][0], 0, ranges[i][1]};
        struct row row;
        quantise(&desc, x, &row);
        assert_true(value_at(&desc, &row, 1) == 0.0);
        for (uint32_t i_k = 0; i_k < desc.k; i_k++) {
            double error = fabs(value_at(&desc, &row, i_k) - (double)x[i_k]);
            assert_true(error <= 0.501 * (double)row.scales[0]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_rows),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_floors),
        cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_infinities_and_nan),
        cmocka_unit_test(test_largest_values),
        cmocka_unit_test(test_zero_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
