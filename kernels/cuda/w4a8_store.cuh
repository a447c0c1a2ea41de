/* w4a8_store.cuh - the end of a tile of w4a8_prefill.cu: from sums to y.
 *
 * y goes out by way of shared memory (y_room.cuh): a warpgroup has room for 64 rows of 16-bit
 * elements or 32 of f32.
 *
 * It is run once a unit, and most of its time would go into fetching instructions. So there is code
 * for one part only, which goes round while the sums move on through the registers. */
#pragma once

#include "kernels/cuda/narrow.cuh"
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

/* Of a thread's rows of x in a part, pairs. */
struct row_scales {
    float2 pairs[part_n / 8];
};

/* Asked for before they are needed, all at once: memory is slow to answer. */
__device__ __forceinline__ row_scales load_row_scales(const w4a8_args &args, uint32_t first_m)
{
    const float *scales = args.x.scales + first_m + lane_id() % 4 * 2;
    row_scales rows;
#pragma unroll
    for (uint32_t i = 0; i < part_n / 8; i++) {
        rows.pairs[i] = *reinterpret_cast<const float2 *>(scales + i * 8);
    }
    return rows;
}

/* Sums of a part's rows become values, in the contract's order. */
__device__ __forceinline__ void finish(const w4a8_args &args, const y_part &part,
                                       const row_scales &rows, const float *sums,
                                       float (&values)[part_n / 2])
{
#pragma unroll
    for (uint32_t i = 0; i < part_n / 2; i++) {
        values[i] = sums[i] * code_unit;
    }
    if (__builtin_expect(args.base.is_column_divisor, 0)) {
#pragma unroll
        for (uint32_t i = 0; i < part_n / 2; i++) {
            values[i] = __fdiv_rn(values[i], part.column_scales[i / 2 % 2]);
        }
    } else {
#pragma unroll
        for (uint32_t i = 0; i < part_n / 2; i++) {
            values[i] = __fmul_rn(values[i], part.column_scales[i / 2 % 2]);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < part_n / 2; i++) {
        const float2 &pair = rows.pairs[i / 4];
        values[i] = __fmul_rn(values[i], i % 2 == 0 ? pair.x : pair.y);
        values[i] = __fadd_rn(values[i], part.bias[i / 2 % 2]);
    }
}

/* ---- to shared memory ---- */

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
            return args.base.y_dtype == DTYPE_BF16 ? narrow_pair(a, b, __nv_bfloat16())
                                                   : narrow_pair(a, b, __half());
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

/* All sums move to where those of the part before were. */
__device__ __forceinline__ void next_part(float (&total)[tile_rows_max / 2])
{
#pragma unroll
    for (uint32_t i = 0; i < tile_rows_max / 2 - part_n / 2; i++) {
        total[i] = total[i + part_n / 2];
    }
}

/* total is no more than room behind it. */
__device__ __forceinline__ void store_unit(const w4a8_args &args, const unit &at,
                                           float (&total)[tile_rows_max / 2])
{
    y_part part = part_of_unit(args, at);
    uint32_t end_m = min(at.first_m + at.n_rows, args.m);
    row_scales next = load_row_scales(args, part.first_m);
#pragma unroll 1
    while (part.first_m < end_m) {
        row_scales rows = next;
        if (part.first_m + part_n < end_m) {
            next = load_row_scales(args, part.first_m + part_n);
        }
        float values[part_n / 2];
        finish(args, part, rows, total, values);
        store_part(args, part, values);
        next_part(total);
        part.first_m += part_n;
    }
}

} // namespace
