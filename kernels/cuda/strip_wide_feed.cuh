/* strip_wide_feed.cuh - what a CTA of strip_wide.cu works on, its shared memory, and the copies of
 * weights that run ahead.
 *
 * A unit is 4 strips, a warp each. A warpgroup has two units at a time, so that the tensor cores
 * work on one while the other is dequantised. Shared memory: two groups of x (1 KiB aligned), their
 * sums; then for each warp n_stages x 2 x (codes + scales + zeros) and, for each unit, its sums
 * over the lanes before. */
#pragma once

#include "kernels/cuda/strip_wide_x.cuh"

namespace {

constexpr uint32_t n_pair = 2; /* units a warpgroup has at a time */
constexpr uint32_t n_round_units = n_wide_warps / 4 * n_pair;
constexpr uint32_t n_unit_strips = 4;

/* Stages of weights: what fits. */
template <typename format, int n_rows>
constexpr uint32_t n_wide_stages = format::bits == 8 || n_rows > 64 ? 2 : 3;

/* ---- the order of slices -----------------------------------------------------------------------
 */

/* A place in the work of a CTA: rounds of units, in each the lanes of the CTA's part of k, in a
 * lane every 16th slice. */
struct cursor {
    uint32_t i_round;
    uint32_t i_lane;
    uint32_t i_step;
};

__device__ __forceinline__ uint32_t first_lane()
{
    return blockIdx.x * STRIP_PART_LANES;
}

__device__ __forceinline__ uint32_t end_lane(const strip_wide_args &args)
{
    return min(first_lane() + STRIP_PART_LANES, args.n_lanes);
}

/* Units of this CTA, which are dealt out in turn, and how they go into rounds, evenly. */
struct own_units {
    uint32_t n;
    uint32_t n_rounds;
    uint32_t n_a_round;
};

__device__ __forceinline__ own_units units_of(const strip_wide_args &args)
{
    own_units own;
    own.n = (args.n_units - blockIdx.y + gridDim.y - 1) / gridDim.y;
    own.n_rounds = (own.n + n_round_units - 1) / n_round_units;
    own.n_a_round = (own.n + own.n_rounds - 1) / own.n_rounds;
    return own;
}

/* Of a round: how many units this warp's warpgroup has, and the strip of this warp in one. */
__device__ __forceinline__ uint32_t n_units_here(const own_units &own, const warp_id &id,
                                                 uint32_t i_round)
{
    uint32_t n = min(own.n_a_round, own.n - i_round * own.n_a_round);
    uint32_t i_warpgroup = id.warp / 4;
    return n > i_warpgroup + 2 ? 2 : n > i_warpgroup ? 1 : 0;
}

__device__ __forceinline__ uint32_t strip_of(const own_units &own, const warp_id &id,
                                             uint32_t i_round, uint32_t i_pair)
{
    uint32_t i = i_round * own.n_a_round + 2 * i_pair + id.warp / 4;
    return (blockIdx.y + i * gridDim.y) * n_unit_strips + id.warp % 4;
}

__device__ __forceinline__ bool is_over(const own_units &own, const cursor &at)
{
    return at.i_round >= own.n_rounds;
}

__device__ __forceinline__ uint32_t slice_of(const cursor &at)
{
    return at.i_step * STRIP_STEP_SLICES + at.i_lane;
}

/* To the lane's next slice; false where there is none. */
__device__ __forceinline__ bool next_step(const strip_wide_args &args, cursor &at)
{
    at.i_step++;
    return slice_of(at) < args.base.n_slices;
}

/* To the next slice of all. */
__device__ __forceinline__ void cursor_on(const strip_wide_args &args, cursor &at)
{
    if (next_step(args, at)) {
        return;
    }
    at.i_step = 0;
    if (++at.i_lane == end_lane(args)) {
        at = {at.i_round + 1, first_lane(), 0};
    }
}

/* ---- shared memory -----------------------------------------------------------------------------
 */

template <typename format, int n_rows> struct shared_map {
    static constexpr uint32_t x_bytes = n_group_units * n_rows * row_bytes; /* a group */
    static constexpr uint32_t sums_bytes = n_rows * 4;
    static constexpr uint32_t sums = 2 * x_bytes;
    static constexpr uint32_t warps = sums + 2 * sums_bytes;
    static constexpr uint32_t stage_bytes = n_pair * format::size::stage;
    static constexpr uint32_t lanes_bytes = 32 * n_rows / 2 * 4;
    static constexpr uint32_t warp_bytes =
        n_wide_stages<format, n_rows> * stage_bytes + n_pair * lanes_bytes;
    static constexpr uint32_t all = warps + n_wide_warps * warp_bytes;
};

__device__ __forceinline__ uint32_t shared_base()
{
    extern __shared__ __align__(1024) uint8_t shared[];
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/* ---- feeding -----------------------------------------------------------------------------------
 */

/* The warp's weights at the cursor into a stage; strips beyond the launch's copy nothing, and none
 * are there when all is over. */
template <typename format>
__device__ __forceinline__ void fetch(const strip_wide_args &args, const own_units &own,
                                      const warp_id &id, const cursor &at, uint32_t stage)
{
    uint32_t n_here = is_over(own, at) ? 0 : n_units_here(own, id, at.i_round);
    for (uint32_t i = 0; i < n_here; i++) {
        uint32_t i_strip = strip_of(own, id, at.i_round, i);
        if (i_strip < args.n_launch_strips) {
            slice_source from = source_of<n_groups, format::has_zeros, format::bits>(
                args.base, id, args.first_strip + i_strip, at.i_step, at.i_lane);
            format::copy(from, id, stage + i * format::size::stage);
        }
    }
    cp_async_commit();
}

} // namespace
