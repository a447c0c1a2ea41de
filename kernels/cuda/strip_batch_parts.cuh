/* strip_batch_parts.cuh - parts of y on their way through memory, as the accumulators of wgmma have
 * them, so that a lane writes and reads 16 bytes, and in f32; and how they are added up, by the CTA
 * that has them all in turn or in a launch of their own.
 *
 * (part, strip of the launch, 8 rows of x, lane of the warp) of (2 rows of x, 2 rows of W): lane
 * 4 g + t has rows 2t and 2t + 1 of x against row g of W, then against row g + 8. */
#pragma once

#include "kernels/cuda/strip_batch_args.h"
#include "kernels/cuda/strip_types.cuh"
#include "kernels/layout/strip.h"

namespace {

constexpr uint32_t n_reduce_threads = 256; /* a warp has 8 rows of a strip */

__host__ __device__ __forceinline__ uint32_t row_blocks(uint32_t m)
{
    return (m + 7) / 8;
}

__device__ __forceinline__ float4 *part_at(const strip_batch_args &args, uint32_t i_part,
                                           uint32_t i_strip, uint32_t i_block)
{
    uint64_t i = static_cast<uint64_t>(i_part) * args.n_launch_strips + i_strip;
    return reinterpret_cast<float4 *>(args.parts) + (i * row_blocks(args.m) + i_block) * 32 +
           lane_id();
}

template <int n_rows>
__device__ __forceinline__ void store_part(const strip_batch_args &args, uint32_t i_part,
                                           uint32_t i_strip, const float (&sums)[n_rows / 2])
{
    float4 *place = part_at(args, i_part, i_strip, 0);
#pragma unroll
    for (int i = 0; i < n_rows / 8; i++) {
        if (8u * i < args.m) {
            place[i * 32] =
                make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
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

/* Four elements of y, of a block of rows. */
template <typename traits>
__device__ __forceinline__ void store_block(const strip_batch_args &args, uint32_t i_strip,
                                            uint32_t i_block, const float4 &totals)
{
    uint32_t lane = lane_id();
    uint32_t i_m = 8 * i_block + lane % 4 * 2;
    uint32_t i_n = (args.first_strip + i_strip) * STRIP_N + lane / 4;
    store_y<traits>(args.base, args.rows.y, args.m, i_n, i_m, totals.x);
    store_y<traits>(args.base, args.rows.y, args.m, i_n + 8, i_m, totals.z);
    store_y<traits>(args.base, args.rows.y, args.m, i_n, i_m + 1, totals.y);
    store_y<traits>(args.base, args.rows.y, args.m, i_n + 8, i_m + 1, totals.w);
}

/* A strip's y: its last part, in shared memory, is added to those in memory, in order from 0. */
template <typename traits>
__device__ __forceinline__ void finish_strip(const strip_batch_args &args, uint32_t i_strip,
                                             uint32_t last_part)
{
#pragma unroll 2
    for (uint32_t i = 0; i < row_blocks(args.m); i++) {
        float4 total = make_float4(0, 0, 0, 0);
#pragma unroll 3
        for (uint32_t i_part = 0; i_part + 1 < args.n_parts; i_part++) {
            add(total, *part_at(args, i_part, i_strip, i));
        }
        uint4 v = ld_shared_v4(last_part + i * 512);
        add(total, make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                               __uint_as_float(v.w)));
        store_block<traits>(args, i_strip, i, total);
    }
}

/* The last launch, where parts of y are left: in order, from 0. */
template <typename traits>
__global__ void __launch_bounds__(n_reduce_threads)
    reduce_parts(const __grid_constant__ strip_batch_args args)
{
    uint32_t i_warp = (blockIdx.x * n_reduce_threads + threadIdx.x) / 32;
    uint32_t i_strip = i_warp / row_blocks(args.m);
    uint32_t i_block = i_warp % row_blocks(args.m);
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    if (i_strip >= args.n_launch_strips) {
        return;
    }
    float4 total = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (uint32_t i_part = 0; i_part < args.n_parts; i_part++) {
        add(total, *part_at(args, i_part, i_strip, i_block));
    }
    store_block<traits>(args, i_strip, i_block, total);
}

} // namespace
