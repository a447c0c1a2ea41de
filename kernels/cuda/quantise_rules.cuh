/* quantise_rules.cuh - x to codes and scales by the rules of kernels/quant/quant.c, bit for bit.
 *
 * Magnitudes are compared as integers, where every NaN is above infinity. */
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/cuda/quantise_rule.h"

#define INFINITY_BITS  0x7f800000
#define MAGNITUDE_MASK 0x7fffffff

/* enum gk_act; gk.h is C. any_gemm_simple_row.c holds them equal. */
enum { FP8_TENSOR = 1, FP8_TOKEN, FP8_GROUP, INT8_TENSOR, INT8_TOKEN, INT8_TOKEN_ZERO };

/* Of elements that share a scale: the largest magnitude, and the smallest and largest of them and
 * 0, as ordered integers. */
struct extent {
    int magnitude;
    int low;
    int high;
};

/* A scale and a zero point. */
struct grid {
    float scale;
    float zero;
};

static __device__ float nan_value(void)
{
    return __int_as_float(0x7fc00000);
}

/* Integers in the order of the floats whose bits they are, and back. */
static __device__ int ordered(int bits)
{
    return bits < 0 ? bits ^ MAGNITUDE_MASK : bits;
}

static __device__ void extend(struct extent &extent, float value)
{
    int bits = __float_as_int(value);
    extent.magnitude = max(extent.magnitude, bits & MAGNITUDE_MASK);
    extent.low = min(extent.low, ordered(bits));
    extent.high = max(extent.high, ordered(bits));
}

static __device__ float fp8_scale(float largest, bool is_pow2)
{
    if (__float_as_int(largest) >= INFINITY_BITS) {
        return nan_value();
    }
    float scale = fmaxf(__fdiv_rn(largest, 448.0f), 1.0f / (448.0f * 512.0f));
    return is_pow2 ? __int_as_float((__float_as_int(scale) + 0x7fffff) & INFINITY_BITS) : scale;
}

static __device__ float int8_scale(float range, float n_steps)
{
    bool is_finite = (__float_as_int(range) & MAGNITUDE_MASK) < INFINITY_BITS;
    return is_finite ? fmaxf(__fdiv_rn(range, n_steps), 0x1p-40f) : nan_value();
}

static __device__ struct grid int8_zero_grid(const struct extent &extent)
{
    float low = __int_as_float(ordered(extent.low));
    float high = __int_as_float(ordered(extent.high));
    float scale = int8_scale(__fsub_rn(high, low), 255.0f);
    float zero = __fsub_rn(-128.0f, __fdiv_rn(low, scale));
    return {scale, rintf(fminf(fmaxf(zero, -128.0f), 127.0f))};
}

static __device__ struct grid grid_of(const struct quantise_rule &rule, const struct extent &extent)
{
    float largest = __int_as_float(extent.magnitude);
    switch (rule.act) {
    case FP8_TENSOR:
        return {rule.act_scale, 0.0f};
    case FP8_TOKEN:
    case FP8_GROUP:
        return {fp8_scale(largest, rule.is_pow2 != 0), 0.0f};
    case INT8_TENSOR:
        return {largest != largest ? nan_value() : rule.act_scale, (float)rule.act_zero};
    case INT8_TOKEN:
        return {int8_scale(largest, 127.0f), 0.0f};
    default:
        return int8_zero_grid(extent);
    }
}

/* What elements are divided by: a scale, 1 / scale, rounded, and the signs of four codes, none
 * where the scale is NaN. */
struct divisor {
    float scale;
    float inverse;
    uint32_t signs;
};

static __device__ struct divisor divisor_of(float scale)
{
    return {scale, __frcp_rn(scale), scale == scale ? 0x80808080u : 0u};
}

/* x / scale but for the sign of 0, where e4m3 or int8 is made of it: a quotient that is corrected
 * once is the rounded one, but for those so small that both have them as 0. For rows that have
 * their scale by their largest element: it is normal, and no quotient is over 448, or it is NaN. */
static __device__ float unsigned_quotient(float x, const struct divisor &by)
{
    float quotient = __fmul_rn(x, by.inverse);
    return __fmaf_rn(__fmaf_rn(-quotient, by.scale, x), by.inverse, quotient);
}

static __device__ uint8_t e4m3_code(const struct grid &grid, float x)
{
    return __nv_cvt_float_to_fp8(__fdiv_rn(x, grid.scale), __NV_SATFINITE, __NV_E4M3);
}

/* The code of x less the zero point. */
static __device__ float int8_value(const struct grid &grid, float x)
{
    float value = __fdiv_rn(x, grid.scale);
    value = value == value ? value : 0.0f;
    value = fminf(fmaxf(value, __fsub_rn(-128.0f, grid.zero)), __fsub_rn(127.0f, grid.zero));
    return rintf(value);
}
