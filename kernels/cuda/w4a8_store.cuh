/* w4a8_store.cuh - the end of a tile of w4a8_prefill.cu: from sums to y.
 *
 * y goes out by way of shared memory (y_room.cuh): a warpgroup has room for 64 rows of 16-bit
 * elements or 32 of f32. */
#pragma once

#include "kernels/cuda/w4a8_multiply.cuh"
#include "kernels/cuda/y_room.cuh"

namespace {

constexpr int part_n = 64;       /* rows of x that are stored at a time */
constexpr int store_barrier = 1; /* of each warpgroup */
constexpr float code_unit = 512; /* what sums of codes in units of 2^-9 are multiplied with */

/* 64 columns of y by part_n rows, and what is known of a thread's two columns. */
struct y_part {
    uint32_t warpgroup_n;
    uint32_t first_m;
    bool is_whole; /* columns that are all there, rows that are aligned */
    float column_scales[2];
    float bias[2];
};

__device__ __forceinline__ y_part part_of_unit(const w4a8_args &args, const unit &at)
{
    const strip_args &base = args.base;
    uint32_t thread = thread_id();
    uint32_t i_n = at.first_strip * STRIP_N + thread / 32 * STRIP_N + thread % 32 / 4;
    y_part part = {};
    part.warpgroup_n = at.first_strip * STRIP_N + thread / 128 * 64;
    part.first_m = at.first_m;
    part.is_whole = is_whole({args.y, args.y_stride_bytes, args.m, base.n, part.warpgroup_n});
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t column = min(i_n + 8 * i, base.n - 1);
        part.column_scales[i] = base.column_scales != nullptr ? base.column_scales[column] : 1.0f;
        part.bias[i] = base.bias != nullptr ? load_elem(base.bias, base.bias_dtype, column)
                                            : -0.0f; /* which changes nothing */
    }
    return part;
}

/* Sums of a part's rows become values, in the contract's order. */
__device__ __forceinline__ void finish(const w4a8_args &args, const y_part &part, const float *sums,
                                       float (&values)[part_n / 2])
{
    const float *scales = args.x.scales + part.first_m + lane_id() % 4 * 2;
#pragma unroll
    for (uint32_t i = 0; i < part_n / 2; i++) {
        float scale = part.column_scales[i / 2 % 2];
        float value = sums[i] * code_unit;
        value = args.base.is_column_divisor ? __fdiv_rn(value, scale) : __fmul_rn(value, scale);
        value = __fmul_rn(value, scales[i / 4 * 8 + i % 2]);
        values[i] = __fadd_rn(value, part.bias[i / 2 % 2]);
    }
}

/* ---- to shared memory ---- */

/* Every NaN becomes the canonical one. */
__device__ __forceinline__ uint32_t narrow_pair(float low, float high, bool is_bf16)
{
    if (is_bf16) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        uint32_t nans = __hneu2_mask(pair, pair);
        return (*reinterpret_cast<uint32_t *>(&pair) & ~nans) | (nans & 0x7fc07fc0u);
    }
    __half2 pair = __floats2half2_rn(low, high);
    uint32_t nans = __hneu2_mask(pair, pair);
    return (*reinterpret_cast<uint32_t *>(&pair) & ~nans) | (nans & 0x7e007e00u);
}

__device__ __forceinline__ uint32_t float_bits(float value)
{
    return value == value ? __float_as_uint(value) : 0x7fc00000u;
}

__device__ __forceinline__ void meet_warpgroup()
{
    bar_sync(store_barrier + static_cast<int>(thread_id() / 128), 128);
}

__device__ __forceinline__ void store_part(const w4a8_args &args, const y_part &part,
                                           const float (&values)[part_n / 2])
{
    uint32_t room = shared_base() + shared_map::y + thread_id() / 128 * y_warpgroup_bytes;
    y_columns to = {args.y, args.y_stride_bytes, args.m, args.base.n, part.warpgroup_n};
    if (args.base.y_dtype != DTYPE_F32) {
        meet_warpgroup();
        stage_pairs(room, thread_id() % 128 / 32, values, [&](float a, float b) {
            return narrow_pair(a, b, args.base.y_dtype == DTYPE_BF16);
        });
        meet_warpgroup();
        copy_out<y_warpgroup_bytes, 2>(to, part.is_whole, room, part.first_m, thread_id() % 128);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        meet_warpgroup();
        stage_words<part_n / 4>(room, thread_id() % 128 / 32, values + i * (part_n / 4),
                                float_bits);
        meet_warpgroup();
        copy_out<y_warpgroup_bytes, 4>(to, part.is_whole, room, part.first_m + i * (part_n / 2),
                                       thread_id() % 128);
    }
}

template <int n>
__device__ __forceinline__ void store_unit(const w4a8_args &args, const unit &at,
                                           const float (&total)[n / 2])
{
    y_part part = part_of_unit(args, at);
#pragma unroll
    for (uint32_t i = 0; i < n / part_n; i++, part.first_m += part_n) {
        float values[part_n / 2];
        finish(args, part, total + i * (part_n / 2), values);
        store_part(args, part, values);
    }
}

} // namespace
