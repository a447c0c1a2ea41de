/* strip_batch_feed.cuh - what a CTA of strip_batch.cu works on, its shared memory, and the copies
 * into it that run ahead.
 *
 * Shared memory: n_x tiles of x (1 KiB aligned), what their groups start from, their barriers; then
 * for each warp n_stages x (2 KiB of codes + scales + zeros of their slice), its sums over the
 * lanes before and, where there is room, over the parts before. */
#pragma once

#include "kernels/cuda/shared_base.cuh"
#include "kernels/cuda/strip_batch_codes.cuh"
#include "kernels/cuda/strip_batch_x.cuh"
#include "kernels/cuda/strip_parts_work.cuh"

namespace {

template <typename format> constexpr uint32_t n_slice_stages = format::bits / 4;

/* ---- shared memory -----------------------------------------------------------------------------
 */

/* 64 rows leave no room for more. */
template <int n_rows> constexpr uint32_t x_stages = n_rows == 64 ? 3 : 5;

template <typename format, int n_rows> struct shared_map {
    static constexpr uint32_t n_x = x_stages<n_rows>;
    static constexpr uint32_t sums_bytes =
        format::has_starts ? tile_sums_bytes(n_rows, format::n_groups) : 0;
    static constexpr uint32_t x_sums = n_x * tile_blocks_bytes(n_rows);
    static constexpr uint32_t full = x_sums + n_x * sums_bytes; /* n_x barriers */
    static constexpr uint32_t empty = full + 8 * n_x;
    static constexpr uint32_t warps = (empty + 8 * n_x + 15) / 16 * 16;
    static constexpr uint32_t stage_bytes =
        STRIP_CODES_BYTES + (format::scale_bytes + format::zero_bytes + 15) / 16 * 16;
    static constexpr uint32_t lanes_bytes = 32 * n_rows / 2 * 4;
    static constexpr uint32_t warp_lanes = n_stages * stage_bytes;
    static constexpr bool has_totals = n_rows == 32;
    static constexpr uint32_t totals = warp_lanes + lanes_bytes;
    static constexpr uint32_t warp_bytes = totals + (has_totals ? lanes_bytes : 0);
};

/* ---- weights -----------------------------------------------------------------------------------
 */

/* A place in the work: of 8-bit codes a slice is two stages. */
struct stage_cursor : cursor {
    uint32_t i_stage;
};

/* To the next stage of all. */
template <typename format>
__device__ __forceinline__ void to_next_stage(const strip_parts_args &args, stage_cursor &at)
{
    if (++at.i_stage == n_slice_stages<format>) {
        at.i_stage = 0;
        to_next_slice(args, at);
    }
}

/* A warp's stage: a lane its own codes, lanes 0 to 15 scales, lanes 16 to 23 zero points. Not
 * committed. */
template <typename format>
__device__ __forceinline__ void copy_stage(const strip_parts_args &args, const warp_id &id,
                                           const stage_cursor &at, uint32_t i_strip, uint32_t stage)
{
    constexpr uint32_t codes_bytes = STRIP_CODES_BYTES_OF(format::bits);
    constexpr uint32_t scale_bytes = format::scale_bytes;
    uint32_t n = step_slices(args.base, at.i_step);
    const uint8_t *record =
        record_of(args.base, args.first_strip + i_strip, at.i_step, args.slice_bytes);
    const uint8_t *codes =
        record + at.i_lane * codes_bytes + at.i_stage * STRIP_CODES_BYTES + id.lane * 16;
#pragma unroll
    for (int i = 0; i < n_units; i++) {
        cp_async<16>(stage + id.lane * 16 + i * STRIP_UNIT_BYTES, codes + i * STRIP_UNIT_BYTES);
    }
    constexpr uint32_t n_bytes = scale_bytes < 16 ? scale_bytes : 16; /* a lane */
    if (id.lane < scale_bytes / n_bytes) {
        cp_async<n_bytes>(stage + STRIP_CODES_BYTES + id.lane * n_bytes,
                          record + n * codes_bytes + at.i_lane * scale_bytes + id.lane * n_bytes);
    }
    constexpr uint32_t n_zero_lanes = format::zero_bytes / 16;
    if (n_zero_lanes > 0 && args.base.has_zeros && id.lane - 16 < n_zero_lanes) {
        uint32_t i_byte = (id.lane - 16) * 16;
        cp_async<16>(stage + STRIP_CODES_BYTES + scale_bytes + i_byte,
                     record + n * (codes_bytes + scale_bytes) + at.i_lane * format::zero_bytes +
                         i_byte);
    }
}

/* The warp's weights at the cursor into a stage; strips beyond the launch's copy nothing, and none
 * are there when all is over. */
template <typename format>
__device__ __forceinline__ void fetch(const strip_parts_args &args, const warp_id &id,
                                      stage_cursor &at, uint32_t stage)
{
    uint32_t i_strip = strip_of(id, at.i_tile);
    if (i_strip < args.n_launch_strips) {
        copy_stage<format>(args, id, at, i_strip, stage);
    }
    cp_async_commit();
    to_next_stage<format>(args, at);
}

/* ---- x -----------------------------------------------------------------------------------------
 */

/* A place in the ring of n tiles of x, and the parity of its phase: in one register. */
template <uint32_t n> struct ring_place {
    uint32_t i_turn; /* 0..2 n - 1: twice round */

    __device__ __forceinline__ uint32_t i() const
    {
        return i_turn < n ? i_turn : i_turn - n;
    }

    __device__ __forceinline__ uint32_t parity() const
    {
        return i_turn < n ? 0 : 1;
    }

    __device__ __forceinline__ void step()
    {
        i_turn = i_turn == 2 * n - 1 ? 0 : i_turn + 1;
    }

    __device__ __forceinline__ ring_place before() const
    {
        return {i_turn == 0 ? 2 * n - 1 : i_turn - 1};
    }
};

/* Tiles of x that are still to be copied, and the next of them: those of the CTA's part of k, again
 * for each of its tiles of strips. */
struct x_feed {
    uint32_t i_next;
    uint32_t n_left;
};

__device__ __forceinline__ uint32_t first_x(const strip_parts_args &args)
{
    return slices_before_lane(args.base.n_slices, first_lane()) * n_slice_tiles;
}

__device__ __forceinline__ uint32_t end_x(const strip_parts_args &args)
{
    return slices_before_lane(args.base.n_slices, end_lane(args)) * n_slice_tiles;
}

__device__ __forceinline__ x_feed all_x(const strip_parts_args &args)
{
    uint32_t n_tiles = (args.n_tiles - blockIdx.y + gridDim.y - 1) / gridDim.y;
    return {first_x(args), (end_x(args) - first_x(args)) * n_tiles};
}

/* One warp: the next tile of x into a place that is free. */
template <typename format, int n_rows>
__device__ __forceinline__ void copy_x(const strip_parts_args &args, x_feed &feed, uint32_t i_place)
{
    using map = shared_map<format, n_rows>;
    uint32_t base = shared_base();
    uint32_t full = base + map::full + 8 * i_place;
    const uint8_t *tile = args.x_tiles + static_cast<uint64_t>(feed.i_next) * tile_bytes(n_rows);
    if (lane_id() == 0) {
        mbarrier_arrive_expect_tx(full, tile_blocks_bytes(n_rows) + map::sums_bytes);
        cp_async_bulk(base + i_place * tile_blocks_bytes(n_rows), tile, tile_blocks_bytes(n_rows),
                      full);
        if constexpr (map::sums_bytes != 0) {
            cp_async_bulk(base + map::x_sums + i_place * map::sums_bytes,
                          tile + tile_blocks_bytes(n_rows), map::sums_bytes, full);
        }
    }
    __syncwarp();
    feed.n_left--;
    feed.i_next = feed.i_next + 1 == end_x(args) ? first_x(args) : feed.i_next + 1;
}

/* Warp 0: the tile that is n_x - 1 ahead, once all warps are done with the one before the present
 * one, which was in its place. */
template <typename format, int n_rows>
__device__ __forceinline__ void feed_x(const strip_parts_args &args,
                                       const ring_place<x_stages<n_rows>> &present, x_feed &feed)
{
    using map = shared_map<format, n_rows>;
    if (feed.n_left == 0) {
        return;
    }
    auto place = present.before();
    mbarrier_wait_parity(shared_base() + map::empty + 8 * place.i(), place.parity());
    copy_x<format, n_rows>(args, feed, place.i());
}

} // namespace
