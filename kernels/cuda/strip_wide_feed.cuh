/* strip_wide_feed.cuh - what a CTA of strip_wide.cu works on, its shared memory, and the copies
 * into it that run ahead.
 *
 * Shared memory: n_x_stages tiles of x (1 KiB aligned), their sums, their barriers; then for each
 * warp n_stages x (codes + scales + zeros), its sums over the lanes before and, where there is
 * room, over the parts before. */
#pragma once

#include "kernels/cuda/shared_base.cuh"
#include "kernels/cuda/strip_parts_work.cuh"
#include "kernels/cuda/strip_wide_x.cuh"

namespace {

/* Odd: copies are then ahead by whole slices. 64 rows leave no room for more. */
__host__ __device__ constexpr uint32_t n_x_stages(uint32_t n_rows)
{
    return n_rows == 64 ? 3 : 5;
}

/* ---- the order of slices ---- */

__device__ __forceinline__ bool is_over(const strip_parts_args &args, const cursor &at)
{
    return at.i_tile >= args.n_tiles;
}

constexpr uint32_t no_slice = UINT32_MAX;

__device__ __forceinline__ uint32_t slice_of(const strip_parts_args &args, const cursor &at)
{
    return is_over(args, at) ? no_slice : at.i_step * STRIP_STEP_SLICES + at.i_lane;
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
__device__ __forceinline__ void copy_x(const strip_parts_args &args, uint32_t i_slice,
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
__device__ __forceinline__ void feed_x(const strip_parts_args &args, const ring_place &present,
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
__device__ __forceinline__ void prime_x(const strip_parts_args &args)
{
    cursor at = first_of_tile(blockIdx.y);
    for (uint32_t i = 0; i < n_x_stages(n_rows) - 1 && !is_over(args, at); i++) {
        copy_x<n_rows, has_zeros>(args, slice_of(args, at), i % n_groups, i);
        if (i % n_groups == n_groups - 1) {
            to_next_slice(args, at);
        }
    }
}

/* The warp's weights at the cursor into a stage; strips beyond the launch's copy nothing, and none
 * are there when all is over. */
template <bool has_zeros>
__device__ __forceinline__ void fetch(const strip_parts_args &args, const warp_id &id,
                                      const cursor &at, uint32_t stage)
{
    uint32_t i_strip = strip_of(id, at.i_tile);
    if (i_strip < args.n_launch_strips) {
        slice_source from = source_of<n_groups, has_zeros>(
            args.base, id, args.first_strip + i_strip, at.i_step, at.i_lane);
        copy_slice<n_groups, has_zeros>(from, id, stage);
    }
    cp_async_commit();
}

} // namespace
