/* strip_wide_end.cuh - the end of sums in strip_wide.cu: what becomes of a lane of the sum that is
 * over, and of a part of k.
 *
 * Where a CTA has all parts in turn, the total of those before waits in shared memory, or, where
 * there is no room, in memory where nobody else looks at it, until the next one is added to it. A
 * strip's y goes out by way of shared memory, so that a lane stores rows of 16 columns rather than
 * elements, all of whose addresses had to be worked out while nothing else ran. */
#pragma once

#include "kernels/cuda/strip_parts.cuh"
#include "kernels/cuda/y_room.cuh"

namespace {

/* The total over parts before, in memory: all of it is on its way before any is used. */
template <int n>
__device__ __forceinline__ void add_total(const strip_parts_args &args, uint32_t i_strip,
                                          float (&sums)[n])
{
    float4 before[n / 4];
    const float4 *place = part_at(args, 0, i_strip, 0);
#pragma unroll
    for (int i = 0; i < n / 4; i++) {
        before[i] = 8u * i < args.m ? place[i * 32] : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < n / 4; i++) {
        sums[4 * i] = before[i].x + sums[4 * i];
        sums[4 * i + 1] = before[i].y + sums[4 * i + 1];
        sums[4 * i + 2] = before[i].z + sums[4 * i + 2];
        sums[4 * i + 3] = before[i].w + sums[4 * i + 3];
    }
}

/* The first part is added to 0, which makes +0 of the -0 that products too small leave. */
template <int n> __device__ __forceinline__ void add_to_0(float (&sums)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        sums[i] = __fadd_rn(0.0f, sums[i]);
    }
}

/* ---- y ----
 * Sums are ended in the room where they wait, and go on as rows of a strip. */

__host__ __device__ constexpr uint32_t elem_bytes_of(dtype y_dtype)
{
    return y_dtype == DTYPE_F32 ? 4 : 2;
}

/* Ended sums of 16 rows of x into the room, row after row. */
template <dtype y_dtype>
__device__ __forceinline__ void put_rows(uint32_t rows, const float (&sums)[8])
{
    constexpr uint32_t row_bytes = STRIP_N * elem_bytes_of(y_dtype);
    uint32_t lane = lane_id();
    if constexpr (y_dtype == DTYPE_F32) {
        uint32_t to = rows + lane % 4 * 2 * row_bytes + lane / 4 * 4;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            st_shared(to + (i / 4 * 8 + i % 2) * row_bytes + i % 4 / 2 * 32,
                      elem_bits(y_dtype, sums[i]));
        }
    } else {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            pairs[i] = elem_bits(y_dtype, sums[2 * i]) | elem_bits(y_dtype, sums[2 * i + 1]) << 16;
        }
        stmatrix_x4_trans(rows + (lane / 16 * 8 + lane % 8) * row_bytes + lane / 8 % 2 * 16, pairs);
    }
}

/* The room's rows to y: a lane has every 32nd. */
template <dtype y_dtype>
__device__ __forceinline__ void copy_rows(const strip_parts_args &args, uint32_t room,
                                          uint32_t first_n)
{
    constexpr uint32_t row_bytes = STRIP_N * elem_bytes_of(y_dtype);
    constexpr uint32_t n_chunk_elems = 16 / elem_bytes_of(y_dtype);
#pragma unroll 1
    for (uint32_t i = lane_id(); i < args.m; i += 32) {
        uint8_t *row = static_cast<uint8_t *>(args.rows.y[i]);
        uint8_t *to = row + static_cast<uint64_t>(first_n) * elem_bytes_of(y_dtype);
        bool is_whole =
            first_n + STRIP_N <= args.base.n && reinterpret_cast<uintptr_t>(to) % 16 == 0;
#pragma unroll
        for (uint32_t j = 0; j < row_bytes / 16; j++) {
            uint4 v = ld_shared_v4(room + i * row_bytes + j * 16);
            if (is_whole) {
                reinterpret_cast<uint4 *>(to)[j] = v;
            } else {
                store_elements<elem_bytes_of(y_dtype)>(row, first_n + j * n_chunk_elems,
                                                       args.base.n, v);
            }
        }
    }
}

/* Scales and bias of a block of 8 rows of x. */
__device__ __forceinline__ void end_block(const strip_parts_args &args, const lane_columns &lane,
                                          uint32_t i_block, const float4 &totals, float (&sums)[4])
{
    const y_column columns[4] = {lane.columns[0], lane.columns[0], lane.columns[1],
                                 lane.columns[1]};
    float x_scales[2] = {};
    load_x_scales(args, 8 * i_block + lane_id() % 4 * 2, x_scales);
    sums[0] = totals.x;
    sums[1] = totals.y;
    sums[2] = totals.z;
    sums[3] = totals.w;
    end_sums(args.base, args.factor, columns, x_scales, sums);
}

/* Two blocks at a time, which become rows in what room they had. */
template <dtype y_dtype>
__device__ __forceinline__ void store_rows(const strip_parts_args &args, uint32_t i_strip,
                                           uint32_t room)
{
    constexpr uint32_t row_bytes = STRIP_N * elem_bytes_of(y_dtype);
    lane_columns lane = load_columns(args, i_strip);
    uint32_t first = room - lane_id() * 16;
#pragma unroll 1
    for (uint32_t i = 0; i < row_blocks(args.m); i += 2) {
        float blocks[2][4];
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            end_block(args, lane, i + j, shared_float4(room + (i + j) * 512), blocks[j]);
        }
        const float sums[8] = {blocks[0][0], blocks[0][1], blocks[0][2], blocks[0][3],
                               blocks[1][0], blocks[1][1], blocks[1][2], blocks[1][3]};
        __syncwarp(); /* all lanes have read both */
        put_rows<y_dtype>(first + i * 8 * row_bytes, sums);
    }
    __syncwarp();
    copy_rows<y_dtype>(args, first, (args.first_strip + i_strip) * STRIP_N);
    __syncwarp();
}

__device__ __forceinline__ void store_strip(const strip_parts_args &args, uint32_t i_strip,
                                            uint32_t room)
{
    if (args.base.y_dtype == DTYPE_F32) {
        store_rows<DTYPE_F32>(args, i_strip, room);
    } else if (args.base.y_dtype == DTYPE_F16) {
        store_rows<DTYPE_F16>(args, i_strip, room);
    } else {
        store_rows<DTYPE_BF16>(args, i_strip, room);
    }
}

/* ---- a lane of the sum is over ---- */

/* The sums of the present part over the lanes before, from 0: in registers, where enough are left,
 * or in the room, where else the total over the parts before is. */
template <int n, bool is_in_registers> struct part_sums {
    float sums[n];
    __device__ __forceinline__ void add_to_lane(uint32_t, float (&lane)[n]) const
    {
#pragma unroll
        for (int i = 0; i < n; i++) {
            lane[i] = sums[i] + lane[i];
        }
    }
    __device__ __forceinline__ void keep_lane(uint32_t, const float (&lane)[n])
    {
#pragma unroll
        for (int i = 0; i < n; i++) {
            sums[i] = lane[i];
        }
    }
};

template <int n> struct part_sums<n, false> {
    __device__ __forceinline__ void add_to_lane(uint32_t room, float (&lane)[n]) const
    {
        add_to(room, lane);
    }
    __device__ __forceinline__ void keep_lane(uint32_t room, const float (&lane)[n])
    {
        keep(room, lane);
    }
};

/* A part is over, in a CTA that has them all. */
template <bool has_totals, int n>
__device__ __forceinline__ void end_part(const strip_parts_args &args, uint32_t i_lane,
                                         uint32_t i_strip, uint32_t room, float (&sums)[n])
{
    if (i_lane >= STRIP_PART_LANES && has_totals) {
        add_to(room, sums);
    } else if (i_lane >= STRIP_PART_LANES) {
        add_total(args, i_strip, sums);
    } else {
        add_to_0(sums);
    }
    if (i_lane == args.n_lanes - 1) {
        keep(room, sums);
        store_strip(args, i_strip, room);
    } else if (has_totals) {
        keep(room, sums);
    } else {
        store_part(args, 0, i_strip, sums);
    }
}

/* It is added to those of its part before it. A part that is over goes to memory, unless parts are
 * added up here. */
template <bool is_in_registers, int n>
__device__ __forceinline__ void end_of_lane(const strip_parts_args &args, uint32_t i_lane,
                                            uint32_t i_strip, uint32_t room,
                                            part_sums<n, is_in_registers> &part, float (&sums)[n])
{
    if (i_lane % STRIP_PART_LANES != 0) {
        part.add_to_lane(room, sums);
    }
    bool is_part_over =
        i_lane % STRIP_PART_LANES == STRIP_PART_LANES - 1 || i_lane == args.n_lanes - 1;
    if (!is_part_over) {
        part.keep_lane(room, sums);
    } else if (i_strip < args.n_launch_strips && gridDim.x == 1) {
        end_part<is_in_registers>(args, i_lane, i_strip, room, sums);
    } else if (i_strip < args.n_launch_strips) {
        store_part(args, i_lane / STRIP_PART_LANES, i_strip, sums);
    }
}

} // namespace
