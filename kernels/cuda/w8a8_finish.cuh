/* w8a8_finish.cuh - from the finished sums of the 8-bit kernels to elements of y. */
#pragma once

#include "kernels/cuda/any_values.cuh"
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

/* What is known of the rows of x, as in struct w8a8_x. */
struct x_numbers {
    const float *scales;
    const int32_t *zeros;
    const int32_t *sums;
};

__device__ __forceinline__ x_numbers numbers_of(const w8a8_x &x)
{
    return {x.scales, x.zeros, x.sums};
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
        value = args.is_column_divisor ? __fdiv_rn(value, one.column_scale)
                                       : __fmul_rn(value, one.column_scale);
    }
    value = __fmul_rn(value, x_scale);
    return args.bias != nullptr ? __fadd_rn(value, one.bias) : value;
}

/* A thread's part of the sums of 16 rows of W by n of x: element i is W row i / 2 % 2 of the two
 * that the thread has, i_n and i_n + 8, and x row first_m + i / 4 * 8 + i % 2. */
struct sum_place {
    uint32_t i_n;
    uint32_t end_n; /* rows of W from here on are not stored */
    uint32_t first_m;
};

/* What is known of the rows of x is read before anything is stored, or each element would wait for
 * memory by itself. */
template <w8a8_kind kind, int n>
__device__ __forceinline__ void store_some(const w8a8_gemm_args &args, const column (&columns)[2],
                                           const x_numbers &x, const sum_place &at,
                                           const typename traits<kind>::element::sum *sums)
{
    float2 scales[n / 8];
    int2 zeros[n / 8] = {};
#pragma unroll
    for (int j = 0; j < n / 8; j++) {
        scales[j] = *reinterpret_cast<const float2 *>(x.scales + at.first_m + 8 * j);
        if constexpr (kind == W8A8_INT8) {
            zeros[j] = *reinterpret_cast<const int2 *>(x.zeros + at.first_m + 8 * j);
        }
    }
#pragma unroll
    for (int i = 0; i < n / 2; i++) {
        uint32_t i_n = at.i_n + i / 2 % 2 * 8;
        uint32_t i_m = at.first_m + i / 4 * 8 + i % 2;
        if (i_n >= at.end_n || i_m >= args.m) {
            continue;
        }
        const column &one = columns[i / 2 % 2];
        float value;
        if constexpr (kind == W8A8_INT8) {
            int32_t x_sum = one.zero != 0 ? x.sums[i_m] : 0;
            int32_t x_zero = i % 2 == 0 ? zeros[i / 4].x : zeros[i / 4].y;
            value = __int2float_rn(without_zeros(args, one, x_zero, x_sum, sums[i]));
        } else {
            value = sums[i];
        }
        float x_scale = i % 2 == 0 ? scales[i / 4].x : scales[i / 4].y;
        store(y_row(args, i_m), static_cast<dtype>(args.y_dtype), i_n,
              finish<kind>(args, one, x_scale, value));
    }
}

/* The same for many rows of x, as many at a time as there are registers for. */
template <w8a8_kind kind, int n>
__device__ __forceinline__ void store_sums(const w8a8_gemm_args &args, const column (&columns)[2],
                                           const x_numbers &x, const sum_place &at,
                                           const typename traits<kind>::element::sum (&sums)[n / 2])
{
    constexpr int n_some = n < 32 ? n : 32;
#pragma unroll
    for (int i = 0; i < n; i += n_some) {
        store_some<kind, n_some>(args, columns, x, {at.i_n, at.end_n, at.first_m + i},
                                 sums + i / 2);
    }
}

} // namespace
