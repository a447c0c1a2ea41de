/* strip_prefill_store.cuh - the end of a tile of strip_prefill.cu: from sums to y. */
#pragma once

#include "kernels/cuda/strip_prefill_multiply.cuh"
#include "kernels/cuda/y_room.cuh"

namespace {

/* A warp's part of a tile: 16 columns of y (rows of W) by tile::n rows. */
struct y_part {
    uint32_t first_n;
    uint32_t first_m;
    uint32_t warpgroup_n; /* the first column of its warpgroup, which has 64 */
};

__device__ __forceinline__ float of_column(float sum, float scale, bool is_divisor)
{
    return is_divisor ? __fdiv_rn(sum, scale) : sum * scale;
}

/* Scales that hold for all of k, column scales and bias, of columns g and g + 8. */
template <typename tile>
__device__ __forceinline__ void finish_sums(const strip_args &args, uint32_t i_n, float factor,
                                            float (&sums)[tile::n / 2])
{
    uint32_t columns[2] = {min(i_n, args.n - 1), min(i_n + 8, args.n - 1)};
    if (factor != 1.0f) {
#pragma unroll
        for (int i = 0; i < tile::n / 2; i++) {
            sums[i] *= factor;
        }
    }
    if (args.row_scales != nullptr) {
        float scales[2];
        for (int i = 0; i < 2; i++) {
            scales[i] =
                load_elem(args.row_scales, args.scale_dtype, columns[i] / args.row_scale_group_n);
        }
#pragma unroll
        for (int i = 0; i < tile::n / 2; i++) {
            sums[i] *= scales[i % 4 / 2];
        }
    }
    if (args.column_scales != nullptr) {
        float scales[2] = {args.column_scales[columns[0]], args.column_scales[columns[1]]};
#pragma unroll
        for (int i = 0; i < tile::n / 2; i++) {
            sums[i] = of_column(sums[i], scales[i % 4 / 2], args.is_column_divisor);
        }
    }
    if (args.bias != nullptr) {
        float bias[2] = {load_elem(args.bias, args.bias_dtype, columns[0]),
                         load_elem(args.bias, args.bias_dtype, columns[1])};
#pragma unroll
        for (int i = 0; i < tile::n / 2; i++) {
            sums[i] += bias[i % 4 / 2];
        }
    }
}

template <typename tile>
__device__ __forceinline__ bool has_odd_value(const float (&sums)[tile::n / 2])
{
    float odd[4] = {}; /* 0 or NaN */
#pragma unroll
    for (int i = 0; i < tile::n / 2; i++) {
        odd[i % 4] = fmaf(sums[i], 0.0f, odd[i % 4]);
    }
    float any = (odd[0] + odd[1]) + (odd[2] + odd[3]);
    return any != any;
}

__device__ __forceinline__ uint32_t narrow_pair(float a, float b, bool is_bf16)
{
    if (is_bf16) {
        return cvt_rn_bf16x2(a, b);
    }
    __half2 pair = __floats2half2_rn(a, b);
    return *reinterpret_cast<uint32_t *>(&pair);
}

constexpr int store_barrier = 1; /* of each warpgroup */

/* ---- y goes out by way of shared memory (y_room.cuh) ----
 * A warpgroup has room for 64 rows of 16-bit elements or 32 of f32, or half of that. */

template <typename tile, typename elem>
__device__ __forceinline__ void store_parts(const strip_prefill_args &args, uint32_t base,
                                            const y_part &part, const float (&sums)[tile::n / 2])
{
    constexpr int n_rows = tile::y_warpgroup_bytes / 64 / sizeof(elem);
    uint32_t room = base + tile::y + this_warpgroup() * tile::y_warpgroup_bytes;
    uint32_t i_thread = threadIdx.x % 128;
    y_columns to = {args.y, args.y_stride_bytes, args.m, args.base.n, part.warpgroup_n};
#pragma unroll
    for (int i = 0; i < tile::n / n_rows; i++) {
        float staged[n_rows / 2];
#pragma unroll
        for (int j = 0; j < n_rows / 2; j++) {
            staged[j] = sums[i * n_rows / 2 + j];
        }
        bar_sync(store_barrier + this_warpgroup(), 128);
        if constexpr (sizeof(elem) == 2) {
            stage_pairs(room, i_thread / 32, staged, [&](float a, float b) {
                return narrow_pair(a, b, args.base.y_dtype == DTYPE_BF16);
            });
        } else {
            stage_words<n_rows / 2>(room, i_thread / 32, staged,
                                    [](float v) { return __float_as_uint(v); });
        }
        bar_sync(store_barrier + this_warpgroup(), 128);
        copy_out<tile::y_warpgroup_bytes, sizeof(elem)>(to, is_whole(to), room,
                                                        part.first_m + i * n_rows, i_thread);
    }
}

/* ---- what is not finite ---- */

/* One warp: is there an infinity in that row of x? */
__device__ __forceinline__ bool row_has_infinity(const strip_prefill_args &args, uint32_t i_m,
                                                 uint32_t lane)
{
    uint16_t infinity = args.base.x_dtype == DTYPE_BF16 ? 0x7f80 : 0x7c00;
    const uint16_t *row = reinterpret_cast<const uint16_t *>(static_cast<const uint8_t *>(args.x) +
                                                             i_m * args.x_stride_bytes);
    for (uint32_t first = 0; first < args.base.k; first += 32) {
        uint32_t i = first + lane;
        if (__any_sync(0xffffffffu, i < args.base.k && (row[i] & 0x7fffu) == infinity)) {
            return true;
        }
    }
    return false;
}

/* y as it was stored, again: NaN becomes the canonical one, and of integer codes so does an
 * infinity that comes of one in x: against a zero point, codes above and below it would differ. */
template <typename tile>
__device__ __noinline__ void mend_values(const strip_prefill_args &args, uint32_t lane, y_part part)
{
    uint32_t column = part.first_n + lane;
    bool is_mine = lane < STRIP_N && column < args.base.n;
    for (uint32_t i = 0; i < tile::n && part.first_m + i < args.m; i++) {
        uint32_t i_m = part.first_m + i;
        uint8_t *row = static_cast<uint8_t *>(args.y) + i_m * args.y_stride_bytes;
        float v = is_mine ? load_elem(row, args.base.y_dtype, column) : 0.0f;
        bool is_infinite = isinf(v);
        if (args.base.scaling == STRIP_SCALES_PAIRS && __any_sync(0xffffffffu, is_infinite) &&
            row_has_infinity(args, i_m, lane)) {
            v = is_infinite ? __uint_as_float(0x7fc00000u) : v;
        }
        if (v != v) {
            store_elem(row, args.base.y_dtype, column, v);
        }
    }
}

template <typename tile>
__device__ __forceinline__ void store_tile(const strip_prefill_args &args, uint32_t base,
                                           const y_part &part, float (&sums)[tile::n / 2])
{
    finish_sums<tile>(args.base, part.first_n + lane_id() / 4, args.sum_factor, sums);
    bool is_odd = has_odd_value<tile>(sums);
    if (args.base.y_dtype == DTYPE_F32) {
        store_parts<tile, float>(args, base, part, sums);
    } else {
        store_parts<tile, uint16_t>(args, base, part, sums);
    }
    if (bar_red_or(store_barrier + this_warpgroup(), 128, is_odd)) {
        mend_values<tile>(args, lane_id(), part);
    }
}

} // namespace
