/* w4a8_feed.cuh - the tiles of w4a8_prefill.cu, its shared memory, and the two warps that fill it.
 *
 * Shared memory: stages of x (128 of k of 256 rows, swizzled as they lie in memory), stages of W (a
 * slice, 256 of k, of 8 strips: codes, scales, zero points), room for y on its way out, and
 * barriers. Full ones count bytes, empty ones the warps that are done: of x in both CTAs of the
 * cluster, of W in this one. */
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/ring_place.cuh"
#include "kernels/cuda/shared_base.cuh"
#include "kernels/cuda/w4a8_args.h"
#include "kernels/layout/strip.h"
#include "kernels/layout/swizzle.h"

namespace {

constexpr uint32_t n_cluster = 2; /* CTAs with the same rows of x */
constexpr uint32_t n_multiply_warps = 8;
constexpr uint32_t n_strips = n_multiply_warps; /* of a CTA's tile, a warp each */
constexpr uint32_t k_block = SWIZZLE_K;
constexpr uint32_t tile_rows_max = 256;
constexpr uint32_t tile_rows_min = 64;

constexpr uint32_t n_x_stages = 5;
constexpr uint32_t x_stage_bytes = tile_rows_max * k_block;
constexpr uint32_t n_w_stages = 3;
constexpr uint32_t slice_scale_bytes = 2 * 2 * STRIP_N; /* two groups */
constexpr uint32_t slice_zero_bytes = 2 * STRIP_N;
constexpr uint32_t w_stage_bytes =
    n_strips * (STRIP_CODES_BYTES + slice_scale_bytes + slice_zero_bytes);
constexpr uint32_t y_warpgroup_bytes = 64 * 64 * 2;

/* Offsets from the start of shared memory, which is 1 KiB aligned; in a stage of W. */
struct shared_map {
    static constexpr uint32_t w = n_x_stages * x_stage_bytes;
    static constexpr uint32_t y = w + n_w_stages * w_stage_bytes;
    static constexpr uint32_t x_full = y + n_multiply_warps / 4 * y_warpgroup_bytes;
    static constexpr uint32_t x_empty = x_full + 8 * n_x_stages;
    static constexpr uint32_t w_full = x_empty + 8 * n_x_stages;
    static constexpr uint32_t w_empty = w_full + 8 * n_w_stages;
    static constexpr uint32_t bytes = w_empty + 8 * n_w_stages;
    static constexpr uint32_t scales = n_strips * STRIP_CODES_BYTES;
    static constexpr uint32_t zeros = scales + n_strips * slice_scale_bytes;
};

/* ---- the order of tiles ---- */

/* A CTA's part of a unit of the work: its rows of W, and the cluster's of x. */
struct unit {
    uint32_t first_strip;
    uint32_t first_m;
    uint32_t n_rows; /* 256, 128 or 64, not all of which need be there; 0: none is */
};

/* Bands of tiles of x, in each all of x before the next W, so that what runs at one time reads
 * little. What is left of the last round of clusters is cut into parts. */
__device__ __forceinline__ unit unit_at(const w4a8_args &args, uint32_t i, uint32_t rank)
{
    uint32_t n_parts = i < args.n_whole ? 1 : args.tile_rows / args.part_rows;
    uint32_t i_part = i < args.n_whole ? 0 : (i - args.n_whole) % n_parts;
    uint32_t i_tile = i < args.n_whole ? i : args.n_whole + (i - args.n_whole) / n_parts;
    uint32_t i_band = i_tile / (args.n_band_tiles * args.n_w_units);
    uint32_t first_x = i_band * args.n_band_tiles;
    uint32_t n_x = min(args.n_band_tiles, args.n_x_tiles - first_x);
    uint32_t in_band = i_tile - first_x * args.n_w_units;
    unit at;
    at.first_strip = (in_band / n_x * n_cluster + rank) * n_strips;
    at.first_m = (first_x + in_band % n_x) * args.tile_rows + i_part * args.part_rows;
    at.n_rows = n_parts == 1 ? args.tile_rows : args.part_rows;
    if (at.first_m >= args.m) {
        at.n_rows = 0;
    } else if (at.n_rows == tile_rows_max && args.m - at.first_m <= tile_rows_max / 2) {
        at.n_rows = tile_rows_max / 2;
    }
    return at;
}

/* visit(unit) for each unit of this CTA, in turn. */
template <typename function>
__device__ __forceinline__ void for_units(const w4a8_args &args, uint32_t rank,
                                          const function &visit)
{
    for (uint32_t i = blockIdx.x / n_cluster; i < args.n_units; i += gridDim.x / n_cluster) {
        unit at = unit_at(args, i, rank);
        if (at.n_rows > 0) {
            visit(at);
        }
    }
}

__device__ __forceinline__ uint32_t n_k_blocks(const w4a8_args &args)
{
    return (args.base.k + k_block - 1) / k_block;
}

/* ---- filling ---- */

/* One lane: x, half of each stage for both CTAs of the cluster. */
__device__ __forceinline__ void feed_x(const w4a8_args &args, uint32_t rank)
{
    ring_place<n_x_stages> place;
    for_units(args, rank, [&](const unit &at) {
        uint32_t n_bytes = at.n_rows * k_block;
        uint32_t half = rank * n_bytes / n_cluster;
        for (uint32_t i = 0; i < n_k_blocks(args); i++) {
            uint32_t full = shared_base() + shared_map::x_full + 8 * place.i;
            const uint8_t *from = args.x.stages + static_cast<uint64_t>(i) * args.x.stage_bytes +
                                  at.first_m * k_block + half;
            mbarrier_wait_parity(shared_base() + shared_map::x_empty + 8 * place.i,
                                 place.parity ^ 1);
            mbarrier_arrive_expect_tx(full, n_bytes);
            cp_async_bulk_multicast(shared_base() + place.i * x_stage_bytes + half, from,
                                    n_bytes / n_cluster, full, (1u << n_cluster) - 1);
            place.step();
        }
    });
}

/* What a lane copies of a slice: of one strip its codes, scales or zero points. */
struct slice_part {
    uint32_t slice_bytes;  /* of this part in the record, a slice; 0: nothing */
    uint32_t bytes_before; /* of the parts before it, a slice */
    uint32_t to;           /* in a stage */
};

__device__ __forceinline__ slice_part part_of(const w4a8_args &args, uint32_t lane)
{
    uint32_t i = lane % n_strips;
    switch (lane / n_strips) {
    case 0:
        return {STRIP_CODES_BYTES, 0, i * STRIP_CODES_BYTES};
    case 1:
        return {slice_scale_bytes, STRIP_CODES_BYTES, shared_map::scales + i * slice_scale_bytes};
    case 2:
        return {args.base.has_zeros ? slice_zero_bytes : 0, STRIP_CODES_BYTES + slice_scale_bytes,
                shared_map::zeros + i * slice_zero_bytes};
    default:
        return {};
    }
}

__device__ __forceinline__ const uint8_t *part_at(const w4a8_args &args, const slice_part &part,
                                                  uint32_t i_strip, uint32_t i_slice)
{
    uint32_t slice_bytes =
        STRIP_CODES_BYTES + slice_scale_bytes + (args.base.has_zeros ? slice_zero_bytes : 0);
    uint32_t i_step = i_slice / STRIP_STEP_SLICES;
    uint32_t n = min(STRIP_STEP_SLICES, args.base.n_slices - i_step * STRIP_STEP_SLICES);
    return args.base.records +
           static_cast<uint64_t>(i_step * args.base.n_strips) *
               strip_align(STRIP_STEP_SLICES * slice_bytes) +
           static_cast<uint64_t>(i_strip) * strip_align(n * slice_bytes) + n * part.bytes_before +
           i_slice % STRIP_STEP_SLICES * part.slice_bytes;
}

/* One warp: W. Strips beyond the last are the last again: what comes of them is not stored. */
__device__ __forceinline__ void feed_w(const w4a8_args &args, uint32_t rank)
{
    uint32_t lane = lane_id();
    slice_part part = part_of(args, lane);
    uint32_t n_bytes = n_strips * (STRIP_CODES_BYTES + slice_scale_bytes +
                                   (args.base.has_zeros ? slice_zero_bytes : 0));
    ring_place<n_w_stages> place;
    for_units(args, rank, [&](const unit &at) {
        uint32_t i_strip = min(at.first_strip + lane % n_strips, args.base.n_strips - 1);
        for (uint32_t i = 0; i < args.base.n_slices; i++) {
            uint32_t full = shared_base() + shared_map::w_full + 8 * place.i;
            mbarrier_wait_parity(shared_base() + shared_map::w_empty + 8 * place.i,
                                 place.parity ^ 1);
            if (lane == 0) {
                mbarrier_arrive_expect_tx(full, n_bytes);
            }
            __syncwarp();
            if (part.slice_bytes != 0) {
                cp_async_bulk(shared_base() + shared_map::w + place.i * w_stage_bytes + part.to,
                              part_at(args, part, i_strip, i), part.slice_bytes, full);
            }
            place.step();
        }
    });
}

} // namespace
