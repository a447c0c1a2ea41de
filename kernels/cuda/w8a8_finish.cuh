/* w8a8_finish.cuh - from the finished sums of the 8-bit kernels to elements of y. */
#pragma once

#include "kernels/cuda/any_values.cuh"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/w8a8_args.h"
#include "kernels/cuda/wgmma8.cuh"

namespace {

template <w8a8_kind kind> struct traits {
    using element = wgmma_e4m3;
};
template <> struct traits<W8A8_INT8> {
    using element = wgmma_s8;
};

__device__ __forceinline__ void *y_row(const w8a8_gemm_args &args, uint32_t i_m)
{
    return args.prefill_y == nullptr ? args.y[i_m] : args.prefill_y + i_m * args.y_stride_bytes;
}

/* What a row of W (a column of y) adds to its finished sums. */
struct column {
    float scale;
    float column_scale;
    float bias;
    int32_t zero;
    int32_t code_sum;
};

template <w8a8_kind kind>
__device__ __forceinline__ column column_of(const w8a8_gemm_args &args, uint32_t i_n)
{
    column one = {1.0f, 1.0f, 0.0f, 0, 0};
    uint32_t i_scale = i_n / args.group_n;
    if constexpr (kind != W8A8_FP8_GROUP) {
        one.scale = load(args.scales, static_cast<dtype>(args.scale_dtype), i_scale);
    }
    if (args.column_scales != nullptr) {
        one.column_scale = args.column_scales[i_n];
    }
    if (args.bias != nullptr) {
        one.bias = load(args.bias, static_cast<dtype>(args.bias_dtype), i_n);
    }
    if constexpr (kind == W8A8_INT8) {
        one.zero = args.zeros != nullptr ? args.zeros[i_scale] - 128 : 0;
        one.code_sum = args.code_sums[i_n];
    }
    return one;
}

/* sum (x - x_zero) (w - zero), from sum x w: exact, modulo 2^32. */
__device__ __forceinline__ int32_t without_zeros(const w8a8_gemm_args &args, const column &one,
                                                 int32_t x_zero, int32_t x_sum, int32_t sum)
{
    uint32_t k_zeros = static_cast<uint32_t>(x_zero * one.zero) * args.k;
    return static_cast<int32_t>(static_cast<uint32_t>(sum) -
                                static_cast<uint32_t>(x_zero * one.code_sum) -
                                static_cast<uint32_t>(one.zero * x_sum) + k_zeros);
}

/* The contract's last steps, in its order. */
template <w8a8_kind kind>
__device__ __forceinline__ float finish(const w8a8_gemm_args &args, const column &one,
                                        float x_scale, float value)
{
    if constexpr (kind != W8A8_FP8_GROUP) {
        value = __fmul_rn(value, one.scale);
    }
    if (args.column_scales != nullptr) {
        value = args.is_column_divisor ? divide(value, one.column_scale)
                                       : __fmul_rn(value, one.column_scale);
    }
    value = __fmul_rn(value, x_scale);
    return args.bias != nullptr ? __fadd_rn(value, one.bias) : value;
}

} // namespace
