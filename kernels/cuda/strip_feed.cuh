/* strip_feed.cuh - how weights reach shared memory in the strip kernels: where a slice lies, and
 * the copies of integer weights that run ahead. A lane reads back only what it copied itself, so
 * nobody waits for anybody. */
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/strip_args.h"
#include "kernels/cuda/strip_types.cuh"
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
    uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0); /* known to be uniform */
    uint32_t n_warps = blockDim.x / 32;
    return {warp, n_warps, lane, lane / 4, lane % 4};
}

/* Strips are dealt to the CTAs in turn. */
__device__ __forceinline__ uint32_t own_strips(const strip_args &args)
{
    return args.n_own_min + (blockIdx.x < args.n_own_extra ? 1 : 0);
}

/* Slices of a step. */
__device__ __forceinline__ uint32_t step_slices(const strip_args &args, uint32_t i_step)
{
    return min(STRIP_STEP_SLICES, args.n_slices - i_step * STRIP_STEP_SLICES);
}

/* A stage has 2 KiB of codes: a slice of 4-bit ones, half a slice of 8-bit ones, whose stages hold
 * the scales of both halves. */
template <int bits> constexpr int n_stages_of_slice = bits / 4;

/* Sizes of a slice, and of a stage: there each lane has scales and zero points of its own. */
template <int n_groups, bool has_zeros, int bits = 4> struct sizes {
    static constexpr uint32_t codes = STRIP_CODES_BYTES_OF(bits);
    static constexpr uint32_t lane_scales = 4 * n_groups;
    static constexpr uint32_t lane_zeros = has_zeros ? 2 * n_groups : 0;
    static constexpr uint32_t slice = codes + 8 * (lane_scales + lane_zeros);
    static constexpr uint32_t stage = STRIP_CODES_BYTES + 32 * (lane_scales + lane_zeros);
};

/* Where this lane's part of a slice lies in memory: its codes, and bytes from there on. */
struct slice_source {
    const uint8_t *codes;
    uint32_t scales_offset;
    uint32_t zeros_offset;
};

/* A strip's record of a step. */
__device__ __forceinline__ const uint8_t *record_of(const strip_args &args, uint64_t i_strip,
                                                    uint32_t i_step, uint32_t slice_bytes)
{
    uint64_t step_bytes =
        args.n_strips * static_cast<uint64_t>(strip_align(STRIP_STEP_SLICES * slice_bytes));
    return args.records + i_step * step_bytes +
           i_strip * strip_align(step_slices(args, i_step) * slice_bytes);
}

/* Slice i of a step, of any strip. */
template <int n_groups, bool has_zeros, int bits = 4>
__device__ __forceinline__ slice_source source_of(const strip_args &args, const warp_id &id,
                                                  uint64_t i_strip, uint32_t i_step, uint32_t i)
{
    using size = sizes<n_groups, has_zeros, bits>;
    uint32_t n = step_slices(args, i_step);
    const uint8_t *record = record_of(args, i_strip, i_step, size::slice);
    uint32_t codes = i * size::codes + id.lane * 16;
    uint32_t scales = n * size::codes + (i * 8 + id.g) * size::lane_scales;
    uint32_t zeros = n * (size::codes + 8 * size::lane_scales) + (i * 8 + id.g) * size::lane_zeros;
    return {record + codes, scales - codes, zeros - codes};
}

/* This lane's scales and zero points in a stage. */
template <int n_groups>
__device__ __forceinline__ uint32_t scales_of(uint32_t stage, const warp_id &id)
{
    return stage + STRIP_CODES_BYTES + id.lane * 4 * n_groups - id.lane * 16;
}

template <int n_groups>
__device__ __forceinline__ uint32_t zeros_of(uint32_t stage, const warp_id &id)
{
    return stage + STRIP_CODES_BYTES + 32 * 4 * n_groups + id.lane * 2 * n_groups - id.lane * 16;
}

__device__ __forceinline__ void copy_codes(const slice_source &from, uint32_t stage,
                                           uint32_t i_half)
{
    const uint8_t *codes = from.codes + i_half * STRIP_CODES_BYTES;
#pragma unroll
    for (int i = 0; i < n_units; i++) {
        cp_async<16>(stage + i * STRIP_UNIT_BYTES, codes + i * STRIP_UNIT_BYTES);
    }
}

/* A slice, or half i_half of it, into a stage (the address of this lane's first word there). Not
 * committed. */
template <int n_groups, bool has_zeros, int bits = 4>
__device__ __forceinline__ void copy_slice(const slice_source &from, const warp_id &id,
                                           uint32_t stage, uint32_t i_half = 0)
{
    using size = sizes<n_groups, has_zeros, bits>;
    copy_codes(from, stage, i_half);
    cp_async<size::lane_scales>(scales_of<n_groups>(stage, id), from.codes + from.scales_offset);
    if constexpr (has_zeros) {
        cp_async<size::lane_zeros>(zeros_of<n_groups>(stage, id), from.codes + from.zeros_offset);
    }
}

/* Scales of rows g and g + 8, a word a group; of two or four groups. */
template <int n_groups>
__device__ __forceinline__ void read_scales(uint32_t scales, uint32_t (&pairs)[n_groups])
{
    if constexpr (n_groups == 2) {
        uint2 v = ld_shared_v2(scales);
        pairs[0] = v.x;
        pairs[1] = v.y;
    } else {
        static_assert(n_groups == 4);
        uint4 v = ld_shared_v4(scales);
        pairs[0] = v.x;
        pairs[1] = v.y;
        pairs[2] = v.z;
        pairs[3] = v.w;
    }
}

/* -(offset + zero) of rows g and g + 8 for a group, in the unit of the dequantised codes. */
template <typename traits>
__device__ __forceinline__ float2 read_offsets(uint32_t zeros, int i_group)
{
    uint32_t word = ld_shared(zeros + i_group / 2 * 4) >> i_group % 2 * 16;
    return make_float2(-(traits::offset + static_cast<float>(word & 0xff)) * traits::unit,
                       -(traits::offset + static_cast<float>(word >> 8 & 0xff)) * traits::unit);
}

} // namespace
