/* strip_wide_feed.cuh - the shared memory of a CTA of strip_wide.cu, and the copies into it that
 * run ahead.
 *
 * Shared memory: n_x_stages tiles of x (1 KiB aligned), what their groups start from, barriers;
 * then for each warp n_w_stages x (codes, scales, zero points) and room for its sums. Barriers:
 * full ones count bytes, empty ones the warps that are done. */
#pragma once

#include "kernels/cuda/ring_place.cuh"
#include "kernels/cuda/shared_base.cuh"
#include "kernels/cuda/strip_parts_work.cuh"
#include "kernels/cuda/strip_wide_x.cuh"

namespace {

/* Odd: copies are then ahead by whole slices. 64 rows leave no room for more. */
__host__ __device__ constexpr uint32_t n_x_stages(uint32_t n_rows)
{
    return n_rows == 64 ? 3 : 5;
}

constexpr uint32_t n_w_stages = 3;

/* ---- shared memory ---- */

template <int n_rows, bool has_zeros> struct shared_map {
    using size = sizes<n_groups, has_zeros>;
    static constexpr uint32_t n_x = n_x_stages(n_rows);
    static constexpr uint32_t starts_bytes = tile_starts_bytes(n_rows, has_zeros);
    static constexpr uint32_t x_starts = n_x * tile_blocks_bytes(n_rows);
    static constexpr uint32_t no_pieces = x_starts + n_x * starts_bytes; /* zeros, as many bytes */
    static constexpr uint32_t x_full = no_pieces + (has_zeros ? 0 : starts_bytes);
    static constexpr uint32_t x_empty = x_full + 8 * n_x;
    /* of each warpgroup n_w_stages */
    static constexpr uint32_t w_full = x_empty + 8 * n_x;
    static constexpr uint32_t w_empty = w_full + 8 * n_w_stages * strip_parts_warpgroups_max;
    static constexpr uint32_t warps =
        (w_empty + 8 * n_w_stages * strip_parts_warpgroups_max + 127) / 128 * 128;
    /* of a stage of a warp: codes, scales, zero points */
    static constexpr uint32_t scales = size::codes;
    static constexpr uint32_t zeros = scales + 8 * size::lane_scales;
    static constexpr uint32_t stage_bytes = zeros + 8 * size::lane_zeros;
    /* of a warp */
    static constexpr bool has_part_in_registers = n_rows < (has_zeros ? 48 : 64);
    static constexpr uint32_t room = (n_w_stages * stage_bytes + 127) / 128 * 128;
    static constexpr uint32_t warp_bytes = room + 32 * n_rows / 2 * 4;
};

/* ---- feeding ----
 * One warp of each warpgroup copies its weights, each on a scheduler of its own; warp 0, which is
 * none of them, copies x. */

__device__ __forceinline__ bool is_over(const strip_parts_args &args, const cursor &at)
{
    return at.i_tile >= args.n_tiles;
}

/* One lane: a tile of x, a group of a slice. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void copy_x(const strip_parts_args &args, uint32_t base,
                                       const cursor &at, int i_group, uint32_t i_place)
{
    using map = shared_map<n_rows, has_zeros>;
    uint32_t full = base + map::x_full + 8 * i_place;
    uint32_t i_slice = at.i_step * STRIP_STEP_SLICES + at.i_lane;
    const uint8_t *tile = args.x_tiles + static_cast<uint64_t>(i_slice * n_groups + i_group) *
                                             tile_bytes(n_rows, has_zeros);
    mbarrier_arrive_expect_tx(full, tile_bytes(n_rows, has_zeros));
    cp_async_bulk(base + i_place * tile_blocks_bytes(n_rows), tile, tile_blocks_bytes(n_rows),
                  full);
    cp_async_bulk(base + map::x_starts + i_place * map::starts_bytes,
                  tile + tile_blocks_bytes(n_rows), map::starts_bytes, full);
}

/* The tile that is n_x_stages - 1 ahead, once all warps are done with the one before the present
 * one, which was in its place. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void feed_x(const strip_parts_args &args, uint32_t base,
                                       const ring_place<n_x_stages(n_rows)> &present, int i_group,
                                       cursor &at)
{
    using map = shared_map<n_rows, has_zeros>;
    if (is_over(args, at)) {
        return;
    }
    uint32_t parity = present.i == 0 ? present.parity ^ 1 : present.parity;
    mbarrier_wait_parity(base + map::x_empty + 8 * present.before(), parity);
    if (lane_id() == 0) {
        copy_x<n_rows, has_zeros>(args, base, at, i_group, present.before());
    }
    __syncwarp();
    if (i_group == n_groups - 1) {
        to_next_slice(args, at);
    }
}

/* All tiles but one, once they are laid out. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void prime_x(const strip_parts_args &args, uint32_t base, cursor &at)
{
    griddepcontrol_wait();
#pragma unroll 1
    for (uint32_t i = 0; i < n_x_stages(n_rows) - 1 && !is_over(args, at); i++) {
        if (lane_id() == 0) {
            copy_x<n_rows, has_zeros>(args, base, at, i % n_groups, i);
        }
        __syncwarp();
        if (i % n_groups == n_groups - 1) {
            to_next_slice(args, at);
        }
    }
}

/* One lane: a slice of the strips of a warpgroup into a stage of each of its warps. Strips beyond
 * the last are the last again. stage: of the first warp. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void copy_w(const strip_parts_args &args, const cursor &at,
                                       uint32_t first_strip, uint32_t stage, uint32_t full)
{
    using map = shared_map<n_rows, has_zeros>;
    using size = sizes<n_groups, has_zeros>;
    uint32_t n = step_slices(args.base, at.i_step);
    uint32_t record_bytes = strip_align(n * size::slice);
    uint32_t last_strip = args.first_strip + args.n_launch_strips - 1;
    const uint8_t *record =
        record_of(args.base, min(first_strip, last_strip), at.i_step, size::slice);
    uint32_t scales = n * size::codes + at.i_lane * 8 * size::lane_scales;
    uint32_t zeros = n * (size::codes + 8 * size::lane_scales) + at.i_lane * 8 * size::lane_zeros;
    mbarrier_arrive_expect_tx(full, 4 * map::stage_bytes);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t to = stage + i * map::warp_bytes;
        cp_async_bulk(to, record + at.i_lane * size::codes, size::codes, full);
        cp_async_bulk(to + map::scales, record + scales, 8 * size::lane_scales, full);
        if constexpr (has_zeros) {
            cp_async_bulk(to + map::zeros, record + zeros, 8 * size::lane_zeros, full);
        }
        record += first_strip + i < last_strip ? record_bytes : 0;
    }
}

/* Where the weights of a warpgroup go. */
struct w_places {
    uint32_t full; /* barriers of the first stage */
    uint32_t empty;
    uint32_t stages; /* the first warp's */
};

/* The slice that is n_w_stages - 1 ahead into a stage that is free. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void feed_w(const strip_parts_args &args, const warp_id &id,
                                       const w_places &places, uint32_t i_stage, cursor &at)
{
    using map = shared_map<n_rows, has_zeros>;
    if (is_over(args, at)) {
        return;
    }
    if (lane_id() == 0) {
        uint32_t first_strip = args.first_strip + strip_of(id, at.i_tile) / 4 * 4;
        copy_w<n_rows, has_zeros>(args, at, first_strip, places.stages + i_stage * map::stage_bytes,
                                  places.full + 8 * i_stage);
    }
    __syncwarp();
    to_next_slice(args, at);
}

} // namespace
