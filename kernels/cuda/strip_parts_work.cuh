/* strip_parts_work.cuh - what a CTA that multiplies works on in strip_wide.cu and strip_batch.cu,
 * and in which order. */
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/strip_feed.cuh"
#include "kernels/cuda/strip_parts_args.h"

namespace {

/* A place in the work: tiles of strips, in each the lanes of the sum of the CTA's part of k or of
 * all parts, in a lane every 16th slice. */
struct cursor {
    uint32_t i_tile;
    uint32_t i_lane;
    uint32_t i_step;
};

__device__ __forceinline__ uint32_t first_lane()
{
    return blockIdx.x * STRIP_PART_LANES;
}

__device__ __forceinline__ uint32_t end_lane(const strip_parts_args &args)
{
    return gridDim.x == 1 ? args.n_lanes : min(first_lane() + STRIP_PART_LANES, args.n_lanes);
}

__device__ __forceinline__ cursor first_of_tile(uint32_t i_tile)
{
    return {i_tile, first_lane(), 0};
}

/* To the lane's next slice; false where there is none. */
__device__ __forceinline__ bool next_step(const strip_parts_args &args, cursor &at)
{
    at.i_step++;
    return at.i_step * STRIP_STEP_SLICES + at.i_lane < args.base.n_slices;
}

/* To the next slice of all. */
__device__ __forceinline__ void to_next_slice(const strip_parts_args &args, cursor &at)
{
    if (next_step(args, at)) {
        return;
    }
    at.i_step = 0;
    if (++at.i_lane == end_lane(args)) {
        at = first_of_tile(at.i_tile + gridDim.y);
    }
}

/* A warp's strip of a tile. */
__device__ __forceinline__ uint32_t strip_of(const warp_id &id, uint32_t i_tile)
{
    return i_tile * id.n_warps + id.warp;
}

/* The barriers of a ring of n places, of 8 bytes each: one thread, or the copy engine, fills a
 * place, and every warp says when it is done with it. The whole CTA comes here, and meets. */
__device__ __forceinline__ void init_ring(uint32_t full, uint32_t empty, uint32_t n,
                                          uint32_t n_warps)
{
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < n; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(empty + 8 * i, n_warps);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
}

} // namespace
