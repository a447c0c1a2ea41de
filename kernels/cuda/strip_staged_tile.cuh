/* strip_staged_tile.cuh - the tiles of strip_staged_kernel.cuh, its shared memory, and the order in
 * which warps go through it.
 *
 * Shared memory: n_stages of 64 of k, each n rows of x as the copy engine brings them and n_w rows
 * of W as warps have widened them, all rows of 128 bytes, swizzled; the scales of a stage's strips;
 * room for y on its way out; slots, each a strip's codes of 128 of k with the scales of their
 * slice, of which every warp that widens has its own; and barriers. A full one of a
 * stage counts the bytes of x and the strips that have been widened, an empty one the warps of both
 * CTAs that have multiplied, one of a slot its bytes. */
#pragma once

#include "kernels/cuda/strip_prefill_feed.cuh"

namespace {

constexpr uint32_t k_job = 128; /* of a slot: two stages */
constexpr uint32_t n_job_stages = k_job / k_stage;

/* A CTA's tile of y: two warpgroups side by side along W, n rows of x. slot_bytes: a multiple of
 * 16. */
template <uint32_t slot_bytes_> struct staged_tile {
    static constexpr int n = 128;
    static constexpr uint32_t w_groups = 2;
    static constexpr uint32_t n_x = n;
    static constexpr uint32_t n_w = 64 * w_groups;
    static constexpr uint32_t n_strips = 4 * w_groups;
    static constexpr uint32_t n_multiply_warps = 4 * w_groups;
    static constexpr bool has_halves = false;
    static constexpr uint32_t n_boxes = 1; /* of x that each CTA has copied */
    static constexpr uint32_t n_widen_warps = 8;
    static constexpr uint32_t n_threads = 32 * (n_multiply_warps + n_widen_warps);
    static constexpr uint32_t n_teams =
        n_widen_warps / n_strips; /* each a job's 128 of k in turn */

    static constexpr uint32_t x_bytes = n * k_stage * 2;
    static constexpr uint32_t w_bytes = n_w * k_stage * 2;
    static constexpr uint32_t stage_bytes = x_bytes + w_bytes;
    static constexpr uint32_t slot_bytes = slot_bytes_;
    static constexpr uint32_t n_slots = 4; /* a warp */
    static constexpr uint32_t slots_bytes = n_widen_warps * n_slots * slot_bytes;
    static constexpr uint32_t y_warpgroup_bytes = 64 * 64 * 2;
    static constexpr uint32_t n_stages_max = 8;
    static constexpr uint32_t scales_bytes = n_stages_max * n_strips * 4;
    static constexpr uint32_t slot_barriers_bytes = n_widen_warps * n_slots * 8;
    static constexpr uint32_t barriers_bytes = 2 * 8 * n_stages_max + slot_barriers_bytes;
    static constexpr uint32_t room = shared_max - shared_align - slots_bytes -
                                     w_groups * y_warpgroup_bytes - scales_bytes - barriers_bytes;
    static constexpr uint32_t n_stages =
        room / stage_bytes < n_stages_max ? room / stage_bytes : n_stages_max;

    /* from the 1 KiB aligned base */
    static constexpr uint32_t y = n_stages * stage_bytes;
    static constexpr uint32_t slots = y + w_groups * y_warpgroup_bytes;
    static constexpr uint32_t scales = slots + slots_bytes;
    static constexpr uint32_t full = scales + scales_bytes;
    static constexpr uint32_t empty = full + 8 * n_stages_max;
    static constexpr uint32_t slot_full = empty + 8 * n_stages_max;
    static constexpr uint32_t bytes = full + barriers_bytes;
};

/* A place in the ring of stages. */
template <typename tile> struct stage_place {
    uint32_t i = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void step(uint32_t n)
    {
        for (i += n; i >= tile::n_stages; i -= tile::n_stages) {
            parity ^= 1;
        }
    }
};

template <typename tile> __device__ __forceinline__ void make_stage_barriers(uint32_t base)
{
    for (uint32_t i = 0; i < tile::n_stages; i++) {
        mbarrier_init(base + tile::full + 8 * i, 1 + tile::n_strips);
        mbarrier_init(base + tile::empty + 8 * i, n_cluster * tile::n_multiply_warps);
    }
    for (uint32_t i = 0; i < tile::slot_barriers_bytes / 8; i++) {
        mbarrier_init(base + tile::slot_full + 8 * i, 1);
    }
    fence_mbarrier_init();
}

/* Where a warp that widens is: a job's k of a unit of the work, and a strip of the tile. */
template <typename tile> struct job_cursor {
    uint32_t warp; /* of those that widen */
    uint32_t i_unit;
    uint32_t i_job; /* along k */
    uint32_t strip;
    unit_place unit;

    __device__ __forceinline__ void find_unit(const strip_prefill_args &args, uint32_t rank)
    {
        if (!is_over(args)) {
            unit = unit_of<tile>(args, i_unit, rank);
        }
    }

    __device__ __forceinline__ void start(const strip_prefill_args &args, uint32_t rank)
    {
        warp = threadIdx.x / 32 - tile::n_multiply_warps;
        strip = warp % tile::n_strips;
        i_job = warp / tile::n_strips;
        i_unit = i_job < args.n_k_stages / n_job_stages ? blockIdx.x / n_cluster : args.n_units;
        find_unit(args, rank);
    }

    __device__ __forceinline__ bool is_over(const strip_prefill_args &args) const
    {
        return i_unit >= args.n_units;
    }

    /* Returns how many jobs further along k, and over the ends of units, that is. */
    __device__ __forceinline__ uint32_t step(const strip_prefill_args &args, uint32_t rank)
    {
        uint32_t n_jobs = args.n_k_stages / n_job_stages;
        i_job += tile::n_teams;
        if (i_job < n_jobs) {
            return tile::n_teams;
        }
        uint32_t i_team = warp / tile::n_strips;
        uint32_t n_steps = n_jobs + tile::n_teams + i_team - i_job;
        i_job = i_team;
        i_unit += gridDim.x / n_cluster;
        find_unit(args, rank);
        return n_steps;
    }
};

} // namespace
