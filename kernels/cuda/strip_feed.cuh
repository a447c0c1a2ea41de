/* strip_feed.cuh - how weights reach shared memory in strip_gemm.cu: who takes which strips, and
 * the copies that run ahead. A lane reads back only what it copied itself, so nobody waits for
 * anybody.
 */
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/strip_args.h"
#include "kernels/layout/strip.h"

namespace {

constexpr int n_stages = 3; /* 64 KiB in flight an SM; a fourth measures slower */
constexpr int n_units = STRIP_SLICE_K / STRIP_UNIT_K;
constexpr int n_tiles_k = STRIP_SLICE_K / 16; /* mma steps of a slice */

struct warp_id {
    uint32_t warp;
    uint32_t n_warps;
    uint32_t lane;
    uint32_t g; /* row of the fragment, and row of x */
    uint32_t t; /* place in the quad */
};

__device__ __forceinline__ warp_id this_warp()
{
    uint32_t lane = threadIdx.x % 32;
    return {threadIdx.x / 32, blockDim.x / 32, lane, lane / 4, lane % 4};
}

__device__ __forceinline__ uint32_t own_strips(const strip_args &args)
{
    return args.n_own_min + (blockIdx.x < args.n_own_extra ? 1 : 0);
}

/* Slices of a step, which is also how many warps work in it. */
__device__ __forceinline__ uint32_t step_slices(const strip_args &args, uint32_t i_step)
{
    return min(STRIP_STEP_SLICES, args.n_slices - i_step * STRIP_STEP_SLICES);
}

/* Sizes of a record, and of its copy in a stage: each lane has scales and zero points of its own.
 */
template <int n_groups, bool has_zeros> struct sizes {
    static constexpr uint32_t lane_scales = 4 * n_groups;
    static constexpr uint32_t lane_zeros = has_zeros ? 2 * n_groups : 0;
    static constexpr uint32_t slice = STRIP_CODES_BYTES + 8 * (lane_scales + lane_zeros);
    static constexpr uint32_t stage = STRIP_CODES_BYTES + 32 * (lane_scales + lane_zeros);
};

/* Where the next copy comes from: rounds, steps within a round, strips within a step. */
struct cursor {
    const uint8_t *codes; /* this lane's */
    const uint8_t *scales;
    const uint8_t *zeros;
    uint32_t stride_bytes; /* to the next own strip */
    uint32_t n_left;       /* strips of this step and round; 0: all is copied */
    uint32_t i_step;
    uint32_t first_strip; /* of the round, counted in own strips */
};

template <int n_groups, bool has_zeros>
__device__ __forceinline__ void cursor_seek(const strip_args &args, const warp_id &id, cursor &at)
{
    using size = sizes<n_groups, has_zeros>;
    uint32_t n = step_slices(args, at.i_step);
    uint32_t whole_bytes = strip_align(STRIP_STEP_SLICES * size::slice);
    uint32_t record_bytes = strip_align(n * size::slice);
    uint64_t strip = blockIdx.x + static_cast<uint64_t>(at.first_strip) * gridDim.x;
    const uint8_t *record = args.records +
                            static_cast<uint64_t>(at.i_step) * args.n_strips * whole_bytes +
                            strip * record_bytes;
    at.codes = record + id.warp * STRIP_CODES_BYTES + id.lane * 16;
    at.scales = record + n * STRIP_CODES_BYTES + (id.warp * 8 + id.g) * size::lane_scales;
    at.zeros = record + n * (STRIP_CODES_BYTES + 8 * size::lane_scales) +
               (id.warp * 8 + id.g) * size::lane_zeros;
    at.stride_bytes = gridDim.x * record_bytes;
    at.n_left = min(args.n_round_strips, own_strips(args) - at.first_strip);
}

/* To the next step this warp has a slice in, or to the next round, or to the end. */
template <int n_groups, bool has_zeros>
__device__ __forceinline__ void cursor_turn(const strip_args &args, const warp_id &id, cursor &at)
{
    at.i_step++;
    if (at.i_step * STRIP_STEP_SLICES + id.warp >= args.n_slices) {
        at.i_step = 0;
        at.first_strip += args.n_round_strips;
    }
    if (at.first_strip < own_strips(args)) {
        cursor_seek<n_groups, has_zeros>(args, id, at);
    }
}

/* This lane's scales and zero points in a stage. Eight scales are two vectors, 512 bytes apart. */
template <int n_groups>
__device__ __forceinline__ uint32_t scales_of(uint32_t stage, const warp_id &id)
{
    constexpr int lane_bytes = n_groups == 8 ? 16 : 4 * n_groups;
    return stage + STRIP_CODES_BYTES + id.lane * lane_bytes - id.lane * 16;
}

template <int n_groups>
__device__ __forceinline__ uint32_t zeros_of(uint32_t stage, const warp_id &id)
{
    return stage + STRIP_CODES_BYTES + 32 * 4 * n_groups + id.lane * 2 * n_groups - id.lane * 16;
}

/* One strip's slice into a stage (the address of this lane's first word there). Always one group of
 * copies, empty at the end, so that waiting can count. */
template <int n_groups, bool has_zeros>
__device__ __forceinline__ void fetch(const strip_args &args, const warp_id &id, cursor &at,
                                      uint32_t stage)
{
    using size = sizes<n_groups, has_zeros>;
    if (at.n_left > 0) {
#pragma unroll
        for (int i_unit = 0; i_unit < n_units; i_unit++) {
            cp_async<16>(stage + i_unit * STRIP_UNIT_BYTES, at.codes + i_unit * STRIP_UNIT_BYTES);
        }
        if constexpr (size::lane_scales <= 16) {
            cp_async<size::lane_scales>(scales_of<n_groups>(stage, id), at.scales);
        } else {
            cp_async<16>(scales_of<n_groups>(stage, id), at.scales);
            cp_async<16>(scales_of<n_groups>(stage, id) + 512, at.scales + 16);
        }
        if constexpr (has_zeros) {
            cp_async<size::lane_zeros>(zeros_of<n_groups>(stage, id), at.zeros);
            at.zeros += at.stride_bytes;
        }
        at.codes += at.stride_bytes;
        at.scales += at.stride_bytes;
        if (--at.n_left == 0) {
            cursor_turn<n_groups, has_zeros>(args, id, at);
        }
    }
    cp_async_commit();
}

} // namespace
