/* strip_parts.cuh - sums of a strip in strip_wide.cu and strip_batch.cu, in f32 and as the
 * accumulators of wgmma have them, so that a lane writes and reads 16 bytes: they wait in shared
 * memory, go through memory as parts of y, and are added up and ended.
 *
 * (part, strip of the launch, 8 rows of x, lane of the warp) of (2 rows of x, 2 rows of W): lane
 * 4 g + t has rows 2t and 2t + 1 of x against row g of W, then against row g + 8. */
#pragma once

#include "kernels/cuda/strip_columns.cuh"
#include "kernels/cuda/strip_parts_args.h"
#include "kernels/layout/strip.h"

namespace {

constexpr uint32_t n_parts_max = STRIP_STEP_SLICES / STRIP_PART_LANES;

__host__ __device__ __forceinline__ uint32_t row_blocks(uint32_t m)
{
    return (m + 7) / 8;
}

__device__ __forceinline__ float4 *part_at(const strip_parts_args &args, uint32_t i_part,
                                           uint32_t i_strip, uint32_t i_block)
{
    uint32_t i = (i_part * args.n_launch_strips + i_strip) * row_blocks(args.m) + i_block;
    return reinterpret_cast<float4 *>(args.parts) + (i * 32 + lane_id());
}

/* Of 8 rows of x. */
template <int n> __device__ __forceinline__ float4 block_of(const float (&sums)[n], int i_block)
{
    return make_float4(sums[4 * i_block], sums[4 * i_block + 1], sums[4 * i_block + 2],
                       sums[4 * i_block + 3]);
}

template <int n>
__device__ __forceinline__ void store_part(const strip_parts_args &args, uint32_t i_part,
                                           uint32_t i_strip, const float (&sums)[n])
{
    float4 *place = part_at(args, i_part, i_strip, 0);
#pragma unroll
    for (int i = 0; i < n / 4; i++) {
        if (8u * i < args.m) {
            place[i * 32] = block_of(sums, i);
        }
    }
}

__device__ __forceinline__ void add(float4 &to, const float4 &v)
{
    to.x += v.x;
    to.y += v.y;
    to.z += v.z;
    to.w += v.w;
}

__device__ __forceinline__ float4 shared_float4(uint32_t shared)
{
    uint4 v = ld_shared_v4(shared);
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                       __uint_as_float(v.w));
}

/* The columns of y that a lane has of a strip: rows g and g + 8 of W. */
struct lane_columns {
    uint32_t i_n[2];
    y_column columns[2];
};

__device__ __forceinline__ lane_columns load_columns(const strip_parts_args &args, uint32_t i_strip)
{
    lane_columns lane = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        lane.i_n[i] = (args.first_strip + i_strip) * STRIP_N + lane_id() / 4 + 8 * i;
        if (lane.i_n[i] < args.base.n) {
            lane.columns[i] = load_column(args.base, lane.i_n[i]);
        }
    }
    return lane;
}

/* Rows of y that are not there have the address of one that is, so that a store is all that hangs
 * on a condition. */
template <dtype y_dtype>
__device__ __forceinline__ void store_four(const strip_parts_args &args, const lane_columns &lane,
                                           uint32_t i_m, const float (&sums)[4])
{
    void *const rows[2] = {args.rows.y[min(i_m, args.m - 1)],
                           args.rows.y[min(i_m + 1, args.m - 1)]};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        bool is_there = i_m + i % 2 < args.m && lane.i_n[i / 2] < args.base.n;
        uint32_t bits = elem_bits(y_dtype, sums[i]);
        if (is_there && y_dtype == DTYPE_F32) {
            static_cast<uint32_t *>(rows[i % 2])[lane.i_n[i / 2]] = bits;
        } else if (is_there) {
            static_cast<uint16_t *>(rows[i % 2])[lane.i_n[i / 2]] = static_cast<uint16_t>(bits);
        }
    }
}

/* Of rows i_m and i_m + 1 of x. An earlier launch has written them: after griddepcontrol_wait(). */
__device__ __forceinline__ void load_x_scales(const strip_parts_args &args, uint32_t i_m,
                                              float (&scales)[2])
{
#pragma unroll
    for (uint32_t i = 0; args.base.x_scales != nullptr && i < 2; i++) {
        scales[i] = args.base.x_scales[min(i_m + i, args.m - 1)];
    }
}

/* Four elements of y, of a block of rows. */
__device__ __forceinline__ void store_block(const strip_parts_args &args, const lane_columns &lane,
                                            uint32_t i_block, const float4 &totals)
{
    uint32_t i_m = 8 * i_block + lane_id() % 4 * 2;
    const y_column columns[4] = {lane.columns[0], lane.columns[0], lane.columns[1],
                                 lane.columns[1]};
    float sums[4] = {totals.x, totals.y, totals.z, totals.w};
    float x_scales[2] = {};
    load_x_scales(args, i_m, x_scales);
    end_sums(args.base, args.factor, columns, x_scales, sums);
    if (args.base.y_dtype == DTYPE_F32) {
        store_four<DTYPE_F32>(args, lane, i_m, sums);
    } else if (args.base.y_dtype == DTYPE_F16) {
        store_four<DTYPE_F16>(args, lane, i_m, sums);
    } else {
        store_four<DTYPE_BF16>(args, lane, i_m, sums);
    }
}

/* ---- sums that wait in shared memory ----
 * 8 rows of x after the other, 512 bytes each. Registers are short. */

/* sums are added to those before them. */
template <int n> __device__ __forceinline__ void add_to(uint32_t place, float (&sums)[n])
{
#pragma unroll
    for (int i = 0; i < n / 4; i++) {
        float4 v = shared_float4(place + i * 512);
        sums[4 * i] = v.x + sums[4 * i];
        sums[4 * i + 1] = v.y + sums[4 * i + 1];
        sums[4 * i + 2] = v.z + sums[4 * i + 2];
        sums[4 * i + 3] = v.w + sums[4 * i + 3];
    }
}

template <int n> __device__ __forceinline__ void keep(uint32_t place, const float (&sums)[n])
{
#pragma unroll
    for (int i = 0; i < n / 4; i++) {
        st_shared_v4(place + i * 512, block_of(sums, i));
    }
}

/* Part i_part is added to those before it, from 0. */
template <int n>
__device__ __forceinline__ void add_part(uint32_t totals, uint32_t i_part, const float (&sums)[n])
{
#pragma unroll
    for (int i = 0; i < n / 4; i++) {
        float4 total = i_part > 0 ? shared_float4(totals + i * 512) : make_float4(0, 0, 0, 0);
        add(total, block_of(sums, i));
        st_shared_v4(totals + i * 512, total);
    }
}

/* Where a warp's sums wait, this lane's of them: the present part's over the lanes before, and,
 * with has_totals, y's over the parts before. */
template <bool has_totals> struct waiting_sums {
    uint32_t lanes;
    uint32_t totals;
};

/* A lane of the sum is over: it is added to those of its part before it, from 0. A part that is
 * over goes to memory, unless parts are added up here: then to the totals if there are any, else
 * the last one stays. */
template <bool has_totals, int n>
__device__ __forceinline__ void end_lane_of(const strip_parts_args &args, uint32_t i_lane,
                                            uint32_t i_strip, const waiting_sums<has_totals> &at,
                                            float (&sums)[n])
{
    if (i_lane % STRIP_PART_LANES != 0) {
        add_to(at.lanes, sums);
    }
    bool is_last = i_lane == args.n_lanes - 1;
    bool is_part_over = i_lane % STRIP_PART_LANES == STRIP_PART_LANES - 1 || is_last;
    if (is_part_over && has_totals && gridDim.x == 1) {
        add_part(at.totals, i_lane / STRIP_PART_LANES, sums);
    } else if (!is_part_over || (is_last && gridDim.x == 1)) {
        keep(at.lanes, sums);
    } else if (i_strip < args.n_launch_strips) {
        store_part(args, i_lane / STRIP_PART_LANES, i_strip, sums);
    }
}

/* All parts of a strip are added up in shared memory: y. */
__device__ __forceinline__ void finish_totals(const strip_parts_args &args, uint32_t i_strip,
                                              uint32_t totals)
{
    lane_columns columns = load_columns(args, i_strip);
#pragma unroll 2
    for (uint32_t i = 0; i < row_blocks(args.m); i++) {
        store_block(args, columns, i, shared_float4(totals + i * 512));
    }
}

/* A strip's y: its last part, in shared memory, is added to those in memory, which come for
 * n_at_once blocks of rows together. */
__device__ __forceinline__ void finish_parts(const strip_parts_args &args, uint32_t i_strip,
                                             uint32_t last_part)
{
    constexpr uint32_t n_at_once = 4;
    uint32_t n_blocks = row_blocks(args.m);
    lane_columns columns = load_columns(args, i_strip);
#pragma unroll 1
    for (uint32_t first = 0; first < n_blocks; first += n_at_once) {
        float4 totals[n_at_once] = {};
#pragma unroll
        for (uint32_t i_part = 0; i_part < n_parts_max - 1; i_part++) {
            if (i_part + 1 < args.n_parts) {
#pragma unroll
                for (uint32_t i = 0; i < n_at_once; i++) {
                    add(totals[i], *part_at(args, i_part, i_strip, min(first + i, n_blocks - 1)));
                }
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < n_at_once; i++) {
            if (first + i < n_blocks) {
                add(totals[i], shared_float4(last_part + (first + i) * 512));
                store_block(args, columns, first + i, totals[i]);
            }
        }
    }
}

/* The CTA has had all parts of a strip: y. */
template <bool has_totals>
__device__ __forceinline__ void finish(const strip_parts_args &args, uint32_t i_strip,
                                       const waiting_sums<has_totals> &at)
{
    if (has_totals) {
        finish_totals(args, i_strip, at.totals);
    } else {
        finish_parts(args, i_strip, at.lanes);
    }
}

} // namespace
