/* strip_wide_multiply.cuh - the launch of strip_wide.cu that multiplies: its kernel. */
#pragma once

#include "kernels/cuda/strip_parts.cuh"
#include "kernels/cuda/strip_parts.h"
#include "kernels/cuda/strip_wide_feed.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace {

/* A chain's first value: columns 2t and 2t + 1 of each block of 8 rows of x. Each pair is read
 * once, though two rows of W want it: shared memory is busier than the registers. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void start_chain(uint32_t x_sums, const float2 &offsets,
                                            float (&acc)[n_rows / 2])
{
#pragma unroll
    for (int i = 0; i < n_rows / 8; i++) {
        uint2 pair = ld_shared_v2(x_sums + i * 32);
        float a = __uint_as_float(pair.x);
        float b = __uint_as_float(pair.y);
        acc[4 * i] = has_zeros ? offsets.x * a : a;
        acc[4 * i + 1] = has_zeros ? offsets.x * b : b;
        acc[4 * i + 2] = has_zeros ? offsets.y * a : a;
        acc[4 * i + 3] = has_zeros ? offsets.y * b : b;
    }
}

/* The A fragments of a unit. */
template <typename traits>
__device__ __forceinline__ void dequant_unit(uint32_t codes, uint32_t (&a)[4][4])
{
    uint4 v = ld_shared_v4(codes);
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        dequant<traits>(words[i], a[i]);
    }
}

/* What a warp keeps. */
struct warp_state {
    warp_id id;
    cursor next;      /* what is fetched next: n_stages - 1 slices ahead */
    uint32_t x_slice; /* whose x is copied meanwhile: as many, or one less */
    ring_place place; /* of the present tile of x */
};

/* One group of a slice: s = fma(chain, scale, s). The next tile of x is asked for while the tensor
 * cores work. */
template <typename traits, int n_rows, bool has_zeros>
__device__ __forceinline__ void multiply_group(const strip_parts_args &args, warp_state &state,
                                               int i_group, uint32_t codes, const float2 &scales,
                                               const float2 &offsets, float (&sums)[n_rows / 2])
{
    const warp_id &id = state.id;
    using map = shared_map<n_rows, has_zeros>;
    uint32_t base = shared_base();
    uint32_t i_place = state.place.i;
    uint32_t b = __shfl_sync(0xffffffffu,
                             wgmma_descriptor_low(base + i_place * tile_blocks_bytes(n_rows)), 0);
    uint32_t a[n_group_units][4][4];
#pragma unroll
    for (int i = 0; i < n_group_units; i++) {
        dequant_unit<traits>(codes + i * STRIP_UNIT_BYTES, a[i]);
    }
    mbarrier_wait_parity(base + map::full + 8 * i_place, state.place.parity);
    float acc[n_rows / 2];
    start_chain<n_rows, has_zeros>(
        base + map::x_sums + i_place * tile_sums_bytes(n_rows) + id.t * 8, offsets, acc);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < n_group_units * 4; i++) {
        wgmma<typename traits::wgmma_element, n_rows>::multiply(
            acc, a[i / 4][i % 4],
            wgmma_descriptor(b + i / 4 * n_rows * row_bytes / 16 + i % 4 * 2));
    }
    wgmma_commit();
    if (id.warp == 0) {
        feed_x<n_rows, has_zeros>(args, state.place, state.x_slice, i_group);
    }
    wgmma_wait<0>();
    __syncwarp(); /* all lanes have read the sums of the tile */
    if (id.lane == 0) {
        mbarrier_arrive(base + map::empty + 8 * i_place);
    }
    ring_on<n_rows>(state.place);
#pragma unroll
    for (int i = 0; i < n_rows / 2; i++) {
        sums[i] = fmaf(acc[i], i % 4 < 2 ? scales.x : scales.y, sums[i]);
    }
}

template <typename traits, int n_rows, bool has_zeros>
__device__ __forceinline__ void multiply_slice(const strip_parts_args &args, warp_state &state,
                                               uint32_t stage, float (&sums)[n_rows / 2])
{
    uint32_t pairs[n_groups];
    read_scales<n_groups>(scales_of<n_groups>(stage, state.id), pairs);
#pragma unroll(n_rows == 64 ? 1 : n_groups) /* not to mix two groups: registers are short */
    for (int i = 0; i < n_groups; i++) {
        float2 offsets = make_float2(0, 0);
        if constexpr (has_zeros) {
            offsets = read_offsets<traits>(zeros_of<n_groups>(stage, state.id), i);
        }
        float2 scales =
            widen_pair(i == 0 ? pairs[0] : pairs[1], args.base.scale_dtype == DTYPE_BF16);
        multiply_group<traits, n_rows, has_zeros>(
            args, state, i, stage + i * n_group_units * STRIP_UNIT_BYTES, scales, offsets, sums);
    }
}

/* One warp's part in all units of the CTA. */
template <typename traits, int n_rows, bool has_zeros>
__device__ __forceinline__ void multiply(const strip_parts_args &args, warp_state &state,
                                         uint32_t first_stage)
{
    constexpr uint32_t stage_bytes = sizes<n_groups, has_zeros>::stage;
    constexpr bool is_x_behind = (n_x_stages(n_rows) - 1) / n_groups < n_stages - 1;
    const warp_id &id = state.id;
    using map = shared_map<n_rows, has_zeros>;
    waiting_sums<map::has_totals> waiting = {first_stage + map::warp_lanes,
                                             first_stage + map::totals};
    uint32_t i_stage = 0;
    for (cursor at = first_of_tile(blockIdx.y); !is_over(args, at);
         at = first_of_tile(at.i_tile + gridDim.y)) {
        for (; at.i_lane < end_lane(args); at.i_lane++) {
            float sums[n_rows / 2] = {};
            at.i_step = 0;
            do {
                cp_async_wait<n_stages - 2>();
                fetch<has_zeros>(args, id, state.next,
                                 first_stage +
                                     (i_stage == 0 ? n_stages - 1 : i_stage - 1) * stage_bytes);
                uint32_t next_slice = slice_of(args, state.next);
                if (!is_x_behind) {
                    state.x_slice = next_slice;
                }
                to_next_slice(args, state.next);
                multiply_slice<traits, n_rows, has_zeros>(
                    args, state, first_stage + i_stage * stage_bytes, sums);
                i_stage = i_stage == n_stages - 1 ? 0 : i_stage + 1;
                if (is_x_behind) {
                    state.x_slice = next_slice;
                }
            } while (next_step(args, at));
            end_lane_of(args, at.i_lane, strip_of(id, at.i_tile), waiting, sums);
        }
        if (uint32_t i_strip = strip_of(id, at.i_tile);
            gridDim.x == 1 && i_strip < args.n_launch_strips) {
            finish(args, i_strip, waiting);
        }
    }
}

template <typename traits, int n_rows, bool has_zeros>
__global__ void __launch_bounds__(128 * strip_parts_warpgroups_max, 1)
    strip_wide(const __grid_constant__ strip_parts_args args)
{
    using map = shared_map<n_rows, has_zeros>;
    constexpr uint32_t stage_bytes = sizes<n_groups, has_zeros>::stage;
    warp_state state = {};
    state.id = this_warp();
    state.next = first_of_tile(blockIdx.y);
    uint32_t base = shared_base();
    uint32_t first_stage = base + map::warps + state.id.warp * map::warp_bytes + state.id.lane * 16;
    for (int i = 0; i < n_stages - 1; i++) {
        fetch<has_zeros>(args, state.id, state.next, first_stage + i * stage_bytes);
        state.x_slice = slice_of(args, state.next);
        to_next_slice(args, state.next);
    }
    init_ring(base + map::full, base + map::empty, map::n_x, state.id.n_warps);
    griddepcontrol_launch_dependents();
    if (threadIdx.x == 0) {
        griddepcontrol_wait();
        prime_x<n_rows, has_zeros>(args);
    }
    __syncwarp();
    multiply<traits, n_rows, has_zeros>(args, state, first_stage);
}

} // namespace
