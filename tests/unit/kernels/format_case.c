/* format_case.c - see format_case.h. */
#include "format_case.h"

#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/f8.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"
#include "kernels/scalar.h"

uint32_t random_next(struct random *random)
{
    random->state = random->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random->state >> 32);
}

double random_unit(struct random *random)
{
    return (double)random_next(random) / 2147483648.0 - 1.0;
}

static void store_16bits(void *array, uint64_t index, uint16_t bits)
{
    memcpy((char *)array + index * sizeof(bits), &bits, sizeof(bits));
}

void elem_store(void *array, enum dtype dtype, uint64_t index, double value)
{
    float f32 = (float)value;
    switch (dtype) {
    case DTYPE_F8_E4M3:
        ((uint8_t *)array)[index] = e4m3_from_f32(f32);
        return;
    case DTYPE_F8_E8M0:
        ((uint8_t *)array)[index] = e8m0_from_f32(f32);
        return;
    case DTYPE_F16:
        store_16bits(array, index, half_from_f32(f32));
        return;
    case DTYPE_BF16:
        store_16bits(array, index, bf16_from_f32(f32));
        return;
    default:
        memcpy((char *)array + index * sizeof(f32), &f32, sizeof(f32));
    }
}

double elem_load(const void *array, enum dtype dtype, uint64_t index)
{
    return (double)scalar_load(array, dtype, index);
}

struct gk_desc desc_int4(uint32_t n, uint32_t k, uint32_t group_k, enum dtype scale_dtype,
                         enum dtype bias_dtype)
{
    return (struct gk_desc){.n = n,
                            .k = k,
                            .code = GK_CODE_U4,
                            .group_n = 1,
                            .group_k = (uint32_t)num_min(group_k, k),
                            .scale_dtype = scale_dtype,
                            .bias_dtype = bias_dtype};
}

struct gk_desc desc_plain(uint32_t n, uint32_t k, enum dtype dtype, enum dtype bias_dtype)
{
    return (struct gk_desc){
        .n = n, .k = k, .code = gk_code_of_dtype(dtype), .bias_dtype = bias_dtype};
}

#define FORMAT(code_, group_n_, group_k_, scale_dtype_, ...)                                       \
    {                                                                                              \
        .code = GK_CODE_##code_, .group_n = (group_n_), .group_k = (group_k_),                     \
        .scale_dtype = DTYPE_##scale_dtype_, __VA_ARGS__                                           \
    }
#define ACT(act_) .act = GK_ACT_##act_

const struct format_case format_cases[] = {
    {"plain f32", {.code = GK_CODE_F32}},
    {"plain f16", {.code = GK_CODE_F16}},
    {"plain bf16", {.code = GK_CODE_BF16}},
    {"int4 g128", FORMAT(U4, 1, 128, F16, )},
    {"int4 g32", FORMAT(U4, 1, 32, BF16, )},
    {"int4 channel", FORMAT(U4, 1, 0, F32, )},
    {"int4 g64 zeros", FORMAT(U4, 1, 64, F16, .has_zeros = true)},
    {"int4 channel zeros", FORMAT(U4, 1, 0, F16, .has_zeros = true)},
    {"int4 g128 act-order", FORMAT(U4, 1, 128, F16, .has_perm = true)},
    {"int4 g32 zeros act-order", FORMAT(U4, 1, 32, BF16, .has_zeros = true, .has_perm = true)},
    {"int8 g128", FORMAT(U8, 1, 128, F16, )},
    {"int8 channel", FORMAT(U8, 1, 0, BF16, )},
    {"int8 g32 zeros", FORMAT(U8, 1, 32, F16, .has_zeros = true)},
    {"int8 g64 zeros act-order", FORMAT(U8, 1, 64, F32, .has_zeros = true, .has_perm = true)},
    {"fp8 tensor", FORMAT(E4M3, 0, 0, F32, )},
    {"fp8 channel", FORMAT(E4M3, 1, 0, F32, )},
    {"fp8 128x128", FORMAT(E4M3, 128, 128, F32, )},
    {"mxfp8", FORMAT(E4M3, 1, 32, F8_E8M0, )},
    {"mxfp4", FORMAT(E2M1, 1, 32, F8_E8M0, )},
    {"nvfp4", FORMAT(E2M1, 1, 16, F8_E4M3, .column_scale = GK_COLUMN_SCALE_MULTIPLIES)},
    {"nvfp4 divisor", FORMAT(E2M1, 1, 16, F8_E4M3, .column_scale = GK_COLUMN_SCALE_DIVIDES)},
    {"fp8 w8a8 static", FORMAT(E4M3, 0, 0, F32, ACT(FP8_TENSOR), .act_scale = 0.0125f)},
    {"fp8 w8a8 token", FORMAT(E4M3, 1, 0, F32, ACT(FP8_TOKEN))},
    {"fp8 w8a8 token 2^n", FORMAT(E4M3, 1, 0, BF16, ACT(FP8_TOKEN), .is_act_scale_pow2 = true)},
    {"fp8 w8a8 128x128", FORMAT(E4M3, 128, 128, F32, ACT(FP8_GROUP))},
    {"fp8 w8a8 128x128 2^n",
     FORMAT(E4M3, 128, 128, F32, ACT(FP8_GROUP), .is_act_scale_pow2 = true)},
    {"int4 w4a8 token", FORMAT(U4, 1, 128, BF16, ACT(FP8_TOKEN))},
    {"int4 w4a8 channel zeros", FORMAT(U4, 1, 0, F16, ACT(FP8_TOKEN), .has_zeros = true)},
    {"int4 w4a8 static zeros",
     FORMAT(U4, 1, 128, F16, ACT(FP8_TENSOR), .act_scale = 0.0125f, .has_zeros = true)},
    {"int4 w4a8 act-order", FORMAT(U4, 1, 64, F16, ACT(FP8_TOKEN), .has_perm = true)},
    {"int8 w8a8 static", FORMAT(U8, 1, 0, F32, ACT(INT8_TENSOR), .act_scale = 0.011f)},
    {"int8 w8a8 static zero",
     FORMAT(U8, 0, 0, F32, ACT(INT8_TENSOR), .act_scale = 0.009f, .act_zero = -17)},
    {"int8 w8a8 token", FORMAT(U8, 1, 0, F32, ACT(INT8_TOKEN))},
    {"int8 w8a8 token zero", FORMAT(U8, 1, 0, F32, ACT(INT8_TOKEN_ZERO))},
    {"int8 w8a8 token zeros", FORMAT(U8, 1, 0, F16, ACT(INT8_TOKEN_ZERO), .has_zeros = true)},
};

const uint32_t n_format_cases = ARRAY_LENGTH(format_cases);

static uint32_t cut(uint32_t group, uint32_t extent)
{
    return group == 0 || group > extent ? extent : group;
}

struct gk_desc format_desc(const struct format_case *format, uint32_t n, uint32_t k,
                           enum dtype bias_dtype)
{
    struct gk_desc desc = format->desc;
    desc.n = n;
    desc.k = k;
    desc.bias_dtype = bias_dtype;
    if (!gk_code_is_plain(desc.code)) {
        desc.group_n = cut(desc.group_n, n);
        desc.group_k = cut(desc.group_k, k);
    }
    return desc;
}

/* ---- weights ---- */

static uint8_t random_code(enum gk_code code, struct random *random)
{
    uint8_t bits = (uint8_t)random_next(random);
    if (gk_code_bits(code) == 4) {
        return bits & 15;
    }
    bool is_nan = code == GK_CODE_E4M3 && (bits & 0x7f) == 0x7f;
    return is_nan ? (uint8_t)(bits ^ 1) : bits;
}

static void random_codes(struct gk_canonical *canonical, struct random *random)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_elems = (uint64_t)desc->n * desc->k;
    for (uint64_t i = 0; i < n_elems; i++) {
        if (gk_code_is_plain(desc->code)) {
            elem_store(canonical->codes, gk_code_dtype(desc->code), i, random_unit(random));
        } else {
            ((uint8_t *)canonical->codes)[i] = random_code(desc->code, random);
        }
    }
}

static void random_perm(struct gk_canonical *canonical, struct random *random)
{
    for (uint32_t i = 0; i < canonical->desc.k; i++) {
        uint32_t j = random_next(random) % (i + 1);
        canonical->perm[i] = canonical->perm[j];
        canonical->perm[j] = i;
    }
}

void canonical_random(struct gk_canonical *canonical, const struct gk_desc *desc,
                      struct random *random)
{
    assert_int_equal(gk_canonical_alloc(canonical, desc), 0);
    random_codes(canonical, random);
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    for (uint64_t i = 0; i < n_scales; i++) {
        elem_store(canonical->scales, desc->scale_dtype, i, 0.02 + 0.015 * random_unit(random));
        if (desc->has_zeros) {
            canonical->zeros[i] = random_code(desc->code, random);
        }
    }
    if (desc->has_perm) {
        random_perm(canonical, random);
    }
    for (uint32_t i = 0; i < desc->n; i++) {
        if (desc->column_scale != GK_COLUMN_SCALE_NONE) {
            canonical->column_scales[i] = (float)(1.0 + 0.5 * random_unit(random));
        }
        if (desc->bias_dtype != DTYPE_NONE) {
            elem_store(canonical->bias, desc->bias_dtype, i, random_unit(random));
        }
    }
}

void canonical_fill(struct gk_canonical *canonical, const struct gk_desc *desc, uint8_t code,
                    double scale)
{
    assert_int_equal(gk_canonical_alloc(canonical, desc), 0);
    memset(canonical->codes, code, (uint64_t)desc->n * desc->k);
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    for (uint64_t i = 0; i < n_scales; i++) {
        elem_store(canonical->scales, desc->scale_dtype, i, scale);
        if (desc->has_zeros) {
            canonical->zeros[i] = (uint8_t)(1u << (gk_code_bits(desc->code) - 1));
        }
    }
    for (uint32_t i = 0; desc->has_perm && i < desc->k; i++) {
        canonical->perm[i] = i;
    }
    for (uint32_t i = 0; desc->column_scale != GK_COLUMN_SCALE_NONE && i < desc->n; i++) {
        canonical->column_scales[i] = 1.0f;
    }
}
