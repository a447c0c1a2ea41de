/* quant.c - see quant.h: the scale of a row. The loops over its elements are in quant_loops.h. */
#include "kernels/quant/quant.h"

#include <math.h>

#include "ipc/base/f8.h"
#include "ipc/base/num.h"

#define E4M3_MAX       448.0f
#define FP8_SCALE_MIN  (1.0f / (448.0f * 512.0f))
#define INT8_SCALE_MIN 0x1p-40f

uint32_t quant_scales(const struct gk_desc *desc)
{
    return desc->act == GK_ACT_FLOAT ? 0 : (uint32_t)num_max(gk_desc_x_scales(desc), 1);
}

/* The smallest power of two that is not below value: positive, normal, finite. */
static float power_of_two_above(float value)
{
    return f8_float_of((f8_bits_of(value) + 0x7fffffu) & F8_INF_BITS);
}

static float fp8_scale(float amax, bool is_pow2)
{
    if (!isfinite(amax)) {
        return NAN;
    }
    float scale = fmaxf(amax / E4M3_MAX, FP8_SCALE_MIN);
    return is_pow2 ? power_of_two_above(scale) : scale;
}

static void fp8_row(const struct quant_ops *ops, const struct gk_desc *desc, const float *x,
                    uint8_t *codes, float *scales)
{
    uint32_t group_k = desc->act == GK_ACT_FP8_GROUP ? GK_ACT_GROUP_K : desc->k;
    for (uint32_t i_k = 0; i_k < desc->k; i_k += group_k) {
        uint32_t n = (uint32_t)num_min(group_k, desc->k - i_k);
        float scale = desc->act_scale;
        if (desc->act != GK_ACT_FP8_TENSOR) {
            scale = fp8_scale(ops->largest(x + i_k, n), desc->is_act_scale_pow2);
        }
        ops->fp8_codes(x + i_k, n, scale, codes + i_k);
        scales[i_k / group_k] = scale;
    }
}

static float int8_scale(float range, float n_steps)
{
    return isfinite(range) ? fmaxf(range / n_steps, INT8_SCALE_MIN) : NAN;
}

static float int8_zero_scale(const struct quant_ops *ops, const float *x, uint32_t k,
                             int32_t *ret_zero)
{
    float low;
    float high;
    ops->range(x, k, &low, &high);
    float scale = int8_scale(high - low, 255.0f);
    float zero = fminf(fmaxf(-128.0f - low / scale, -128.0f), 127.0f); /* of a NaN: -128 */
    *ret_zero = (int32_t)rintf(zero);
    return scale;
}

static int32_t int8_row(const struct quant_ops *ops, const struct gk_desc *desc, const float *x,
                        uint8_t *codes, float *ret_scale)
{
    float scale = desc->act_scale;
    int32_t zero = 0;
    if (desc->act == GK_ACT_INT8_TOKEN_ZERO) {
        scale = int8_zero_scale(ops, x, desc->k, &zero);
    } else {
        float amax = ops->largest(x, desc->k);
        if (desc->act == GK_ACT_INT8_TOKEN) {
            scale = int8_scale(amax, 127.0f);
        } else {
            zero = desc->act_zero;
            scale = isnan(amax) ? NAN : scale;
        }
    }
    ops->int8_codes(x, desc->k, scale, zero, codes);
    *ret_scale = scale;
    return zero;
}

int32_t quant_row(const struct quant_ops *ops, const struct gk_desc *desc, const float *x,
                  uint8_t *codes, float *scales)
{
    if (gk_act_is_int8(desc->act)) {
        return int8_row(ops, desc, x, codes, scales);
    }
    GD_ASSERT(gk_act_is_fp8(desc->act));
    fp8_row(ops, desc, x, codes, scales);
    return 0;
}
