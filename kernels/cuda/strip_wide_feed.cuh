/* strip_wide_feed.cuh - what a CTA of strip_wide.cu works on, its shared memory, and the copies
 * into it that run ahead.
 *
 * Shared memory: n_x_stages tiles of x (1 KiB aligned), their sums, their barriers; then for each
 * warp n_stages x (codes + scales + zeros), its sums over the lanes before and, where there is
 * room, over the parts before. */
#pragma once

#include "kernels/cuda/strip_wide_x.cuh"

namespace {

constexpr uint32_t n_warpgroups_min = 2; /* one by itself leaves the tensor cores idle too long */
constexpr uint32_t n_warpgroups_max = 4;

/* Odd: copies are then ahead by whole slices. 64 rows leave no room for more. */
__host__ __device__ constexpr uint32_t n_x_stages(uint32_t n_rows)
{
    return n_rows == 64 ? 3 : 5;
}

/* ---- the order of slices ---- */

/* A place in the work of a CTA: tiles of strips, in each the lanes of the CTA's part of k or of all
 * parts, in a lane every 16th slice. */
struct cursor {
    uint32_t i_tile;
    uint32_t i_lane;
    uint32_t i_step;
};

__device__ __forceinline__ uint32_t first_lane()
{
    return blockIdx.x * STRIP_PART_LANES;
}

__device__ __forceinline__ uint32_t end_lane(const strip_wide_args &args)
{
    return gridDim.x == 1 ? args.n_lanes : min(first_lane() + STRIP_PART_LANES, args.n_lanes);
}

__device__ __forceinline__ cursor first_of_tile(uint32_t i_tile)
{
    return {i_tile, first_lane(), 0};
}

__device__ __forceinline__ bool is_over(const strip_wide_args &args, const cursor &at)
{
    return at.i_tile >= args.n_tiles;
}

constexpr uint32_t no_slice = UINT32_MAX;

__device__ __forceinline__ uint32_t slice_of(const strip_wide_args &args, const cursor &at)
{
    return is_over(args, at) ? no_slice : at.i_step * STRIP_STEP_SLICES + at.i_lane;
}

/* To the lane's next slice; false where there is none. */
__device__ __forceinline__ bool next_step(const strip_wide_args &args, cursor &at)
{
    at.i_step++;
    return at.i_step * STRIP_STEP_SLICES + at.i_lane < args.base.n_slices;
}

/* To the next slice of all. */
__device__ __forceinline__ void cursor_on(const strip_wide_args &args, cursor &at)
{
    if (next_step(args, at)) {
        return;
    }
    at.i_step = 0;
    if (++at.i_lane == end_lane(args)) {
        at = first_of_tile(at.i_tile + gridDim.y);
    }
}

/* ---- shared memory ---- */

template <int n_rows, bool has_zeros> struct shared_map {
    static constexpr uint32_t n_x = n_x_stages(n_rows);
    static constexpr uint32_t x_sums = n_x * tile_blocks_bytes(n_rows);
    static constexpr uint32_t full = x_sums + n_x * tile_sums_bytes(n_rows); /* n_x barriers */
    static constexpr uint32_t empty = full + 8 * n_x;
    static constexpr uint32_t warps = (empty + 8 * n_x + 15) / 16 * 16;
    static constexpr uint32_t lanes_bytes = 32 * n_rows / 2 * 4;
    static constexpr uint32_t warp_lanes = n_stages * sizes<n_groups, has_zeros>::stage;
    static constexpr bool has_totals = n_rows == 32;
    static constexpr uint32_t totals = warp_lanes + lanes_bytes;
    static constexpr uint32_t warp_bytes = totals + (has_totals ? lanes_bytes : 0);
};

__device__ __forceinline__ uint32_t shared_base()
{
    extern __shared__ __align__(1024) uint8_t shared[];
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/* A place in the ring of x, and the parity of its phase. */
struct ring_place {
    uint32_t i;
    uint32_t parity;
};

template <int n_rows> __device__ __forceinline__ void ring_on(ring_place &place)
{
    if (++place.i == n_x_stages(n_rows)) {
        place.i = 0;
        place.parity ^= 1;
    }
}

/* ---- feeding ---- */

/* One lane: a tile of x, a group of a slice, into a place that is free. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void copy_x(const strip_wide_args &args, uint32_t i_slice,
                                       uint32_t i_group, uint32_t i_place)
{
    using map = shared_map<n_rows, has_zeros>;
    uint32_t base = shared_base();
    uint32_t full = base + map::full + 8 * i_place;
    const uint8_t *tile =
        args.x_tiles + static_cast<uint64_t>(i_slice * n_groups + i_group) * tile_bytes(n_rows);
    mbarrier_arrive_expect_tx(full, tile_bytes(n_rows));
    cp_async_bulk(base + i_place * tile_blocks_bytes(n_rows), tile, tile_blocks_bytes(n_rows),
                  full);
    cp_async_bulk(base + map::x_sums + i_place * tile_sums_bytes(n_rows),
                  tile + tile_blocks_bytes(n_rows), tile_sums_bytes(n_rows), full);
}

/* Warp 0: the tile that is n_x_stages - 1 ahead, once all warps are done with the one before the
 * present one, which was in its place. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void feed_x(const strip_wide_args &args, const ring_place &present,
                                       uint32_t i_slice, int i_group)
{
    using map = shared_map<n_rows, has_zeros>;
    if (i_slice == no_slice) {
        return;
    }
    uint32_t i_place = present.i == 0 ? map::n_x - 1 : present.i - 1;
    uint32_t parity = present.i == 0 ? present.parity ^ 1 : present.parity;
    mbarrier_wait_parity(shared_base() + map::empty + 8 * i_place, parity);
    if (lane_id() == 0) {
        copy_x<n_rows, has_zeros>(args, i_slice, i_group, i_place);
    }
    __syncwarp();
}

/* One thread: all tiles but one. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void prime_x(const strip_wide_args &args)
{
    cursor at = first_of_tile(blockIdx.y);
    for (uint32_t i = 0; i < n_x_stages(n_rows) - 1 && !is_over(args, at); i++) {
        copy_x<n_rows, has_zeros>(args, slice_of(args, at), i % n_groups, i);
        if (i % n_groups == n_groups - 1) {
            cursor_on(args, at);
        }
    }
}

__device__ __forceinline__ uint32_t strip_of(const strip_wide_args &args, const warp_id &id,
                                             uint32_t i_tile)
{
    return i_tile * id.n_warps + id.warp;
}

/* The warp's weights at the cursor into a stage; strips beyond the launch's copy nothing, and none
 * are there when all is over. */
template <bool has_zeros>
__device__ __forceinline__ void fetch(const strip_wide_args &args, const warp_id &id,
                                      const cursor &at, uint32_t stage)
{
    uint32_t i_strip = strip_of(args, id, at.i_tile);
    if (i_strip < args.n_launch_strips) {
        slice_source from = source_of<n_groups, has_zeros>(
            args.base, id, args.first_strip + i_strip, at.i_step, at.i_lane);
        copy_slice<n_groups, has_zeros>(from, id, stage);
    }
    cp_async_commit();
}

} // namespace
