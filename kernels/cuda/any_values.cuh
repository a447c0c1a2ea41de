/* any_values.cuh - elements of every type, exactly, for kernels that need no speed. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "ipc/base/dtype.h"

static __device__ float e4m3_value(uint32_t bits)
{
    uint32_t exponent = bits >> 3 & 15u;
    uint32_t mantissa = bits & 7u;
    float magnitude = exponent == 0 ? (float)mantissa * 0x1p-9f
                                    : ldexpf((float)(8u + mantissa), (int)exponent - 10);
    if ((bits & 0x7fu) == 0x7fu) {
        magnitude = __int_as_float(0x7fc00000);
    }
    return (bits & 0x80u) != 0 ? -magnitude : magnitude;
}

static __device__ float e8m0_value(uint32_t bits)
{
    return bits == 0xffu ? __int_as_float(0x7fc00000) : ldexpf(1.0f, (int)bits - 127);
}

static __device__ float e2m1_value(uint32_t bits)
{
    const uint32_t halves = 0xc8643210u; /* 0, 1, 2, 3, 4, 6, 8, 12 in units of a half */
    float magnitude = 0.5f * (float)(halves >> (bits & 7u) * 4 & 15u);
    return (bits & 8u) != 0 ? -magnitude : magnitude;
}

/* Element i of an array of F32, F16, BF16, F8_E4M3 or F8_E8M0, exactly. */
static __device__ float load(const void *array, enum dtype dtype, uint64_t i)
{
    switch (dtype) {
    case DTYPE_F32:
        return ((const float *)array)[i];
    case DTYPE_F16:
        return __half2float(((const __half *)array)[i]);
    case DTYPE_BF16:
        return __bfloat162float(((const __nv_bfloat16 *)array)[i]);
    case DTYPE_F8_E4M3:
        return e4m3_value(((const uint8_t *)array)[i]);
    default:
        return e8m0_value(((const uint8_t *)array)[i]);
    }
}

/* To nearest, ties to even; every NaN becomes the canonical one of its type. */
static __device__ void store(void *array, enum dtype dtype, uint64_t i, float value)
{
    bool is_nan = value != value;
    if (dtype == DTYPE_F32) {
        ((float *)array)[i] = is_nan ? __int_as_float(0x7fc00000) : value;
    } else if (dtype == DTYPE_F16) {
        ((uint16_t *)array)[i] = is_nan ? 0x7e00 : __half_as_ushort(__float2half_rn(value));
    } else {
        ((uint16_t *)array)[i] = is_nan ? 0x7fc0 : __bfloat16_as_ushort(__float2bfloat16_rn(value));
    }
}
