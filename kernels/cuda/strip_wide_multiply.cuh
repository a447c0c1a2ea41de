/* strip_wide_multiply.cuh - the launch of strip_wide.cu that multiplies: its kernel. */
#pragma once

#include "kernels/cuda/strip_parts.h"
#include "kernels/cuda/strip_wide_end.cuh"
#include "kernels/cuda/strip_wide_feed.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace {

/* ---- a chain's first values ---- */

/* With zero points: start_chain(). Without them it is the same for all rows of W, and the tensor
 * cores add it up from its pieces, 1 times each of the first three of 16 k: one instruction instead
 * of 24. */
__device__ __forceinline__ uint32_t piece_factors(uint32_t t)
{
    return t == 0 ? 0x3f803f80u : t == 1 ? 0x00003f80u : 0;
}

/* The pieces of place i of the ring, in rows of 16 bytes that are not swizzled, and for the other 8
 * of 16 k zeros that lie behind all places: 0 times an infinity would be NaN. */
template <typename map>
__device__ __forceinline__ uint64_t pieces_descriptor(uint32_t base, uint32_t i)
{
    constexpr uint64_t group_bytes = 128ull >> 4 << 32;
    constexpr uint32_t n = map::starts_bytes / 16;
    uint32_t low = (base + map::x_starts) / 16 + i * n + ((map::n_x - i) * n << 16);
    return group_bytes | low;
}

/* The whole CTA, before any of it is multiplied with. */
template <typename map> __device__ __forceinline__ void clear_no_pieces(uint32_t base)
{
    for (uint32_t i = threadIdx.x * 16; i < map::starts_bytes; i += blockDim.x * 16) {
        st_shared_v4(base + map::no_pieces + i, make_uint4(0, 0, 0, 0));
    }
    fence_proxy_async();
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
template <int n_rows> struct warp_state {
    warp_id id;
    uint32_t base; /* of shared memory */
    uint32_t warp; /* its part of it */
    w_places w_at;
    ring_place<n_w_stages> w;
    ring_place<n_x_stages(n_rows)> x;
    bool is_feeder; /* of its warpgroup's weights */
    cursor next;    /* what it copies next: of weights, or warp 0 of x */
};

/* The chain of a group is issued: its first value, and a product for each 16 of k. */
template <typename traits, int n_rows, bool has_zeros>
__device__ __forceinline__ void
issue_chain(const warp_state<n_rows> &state, int i_group, uint32_t stage,
            const uint32_t (&a)[n_group_units][4][4], float (&acc)[n_rows / 2])
{
    using map = shared_map<n_rows, has_zeros>;
    uint32_t base = state.base;
    uint32_t i_x = state.x.i;
    if constexpr (has_zeros) {
        float2 offsets = read_offsets<traits>(stage + map::zeros + state.id.g * 4, i_group);
        uint32_t x_sums = base + map::x_starts + i_x * map::starts_bytes;
        start_chain<n_rows>(x_sums + state.id.t * 8, offsets, acc);
        wgmma_fence();
    } else {
        uint32_t factors = piece_factors(state.id.t);
        const uint32_t ones[4] = {factors, factors, 0, 0};
        wgmma_fence();
        wgmma<wgmma_bf16, n_rows>::multiply(acc, ones, pieces_descriptor<map>(base, i_x), false);
    }
    uint64_t b =
        wgmma_descriptor(wgmma_descriptor_low(base) + i_x * tile_blocks_bytes(n_rows) / 16);
#pragma unroll
    for (int i = 0; i < n_group_units * 4; i++) {
        wgmma<typename traits::wgmma_element, n_rows>::multiply(
            acc, a[i / 4][i % 4], b + i / 4 * n_rows * row_bytes / 16 + i % 4 * 2);
    }
    wgmma_commit();
}

/* What this warp copies for others. Of weights, a slice into the place of the one before, once all
 * four warps are done with that. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void feed_ahead(const strip_parts_args &args, int i_group,
                                           warp_state<n_rows> &state)
{
    if (state.id.warp == 0) {
        feed_x<n_rows, has_zeros>(args, state.base, state.x, i_group, state.next);
    }
    if (i_group == 0 && state.is_feeder) {
        uint32_t i_stage = state.w.before();
        uint32_t parity = state.w.i == 0 ? state.w.parity ^ 1 : state.w.parity;
        mbarrier_wait_parity(state.w_at.empty + 8 * i_stage, parity);
        feed_w<n_rows, has_zeros>(args, state.id, state.w_at, i_stage, state.next);
    }
}

/* One group of a slice: s = fma(chain, scale, s). Copies are asked for while the tensor cores work;
 * a slice's codes are given back when products are under way that were made of the last of them. */
template <typename traits, int n_rows, bool has_zeros>
__device__ __forceinline__ void
multiply_group(const strip_parts_args &args, warp_state<n_rows> &state, int i_group, uint32_t stage,
               const float2 &scales, float (&sums)[n_rows / 2])
{
    using map = shared_map<n_rows, has_zeros>;
    uint32_t i_x = state.x.i;
    uint32_t a[n_group_units][4][4];
    uint32_t codes = stage + i_group * n_group_units * STRIP_UNIT_BYTES + state.id.lane * 16;
#pragma unroll
    for (int i = 0; i < n_group_units; i++) {
        dequant_unit<traits>(codes + i * STRIP_UNIT_BYTES, a[i]);
    }
    mbarrier_wait_parity(state.base + map::x_full + 8 * i_x, state.x.parity);
    float acc[n_rows / 2];
    issue_chain<traits, n_rows, has_zeros>(state, i_group, stage, a, acc);
    feed_ahead<n_rows, has_zeros>(args, i_group, state);
    if (i_group == n_groups - 1) {
        __syncwarp(); /* all lanes have read the slice */
        if (state.id.lane == 0) {
            mbarrier_arrive(state.w_at.empty + 8 * state.w.i);
        }
    }
    wgmma_wait<0>();
    wgmma_changed(acc);
    __syncwarp(); /* all lanes have read the sums of the tile */
    if (state.id.lane == 0) {
        mbarrier_arrive(state.base + map::x_empty + 8 * i_x);
    }
    state.x.step();
#pragma unroll
    for (int i = 0; i < n_rows / 2; i++) {
        sums[i] = fmaf(acc[i], i % 4 < 2 ? scales.x : scales.y, sums[i]);
    }
}

template <typename traits, int n_rows, bool has_zeros>
__device__ __forceinline__ void multiply_slice(const strip_parts_args &args,
                                               warp_state<n_rows> &state, float (&sums)[n_rows / 2])
{
    using map = shared_map<n_rows, has_zeros>;
    uint32_t stage = state.warp + state.w.i * map::stage_bytes;
    mbarrier_wait_parity(state.w_at.full + 8 * state.w.i, state.w.parity);
    uint32_t pairs[n_groups];
    read_scales<n_groups>(stage + map::scales + state.id.g * 4 * n_groups, pairs);
#pragma unroll(has_zeros ? 1 : n_groups) /* zero points leave registers short */
    for (int i = 0; i < n_groups; i++) {
        float2 scales =
            widen_pair(i == 0 ? pairs[0] : pairs[1], args.base.scale_dtype == DTYPE_BF16);
        multiply_group<traits, n_rows, has_zeros>(args, state, i, stage, scales, sums);
    }
    state.w.step();
}

/* One warp's part in all units of the CTA. */
template <typename traits, int n_rows, bool has_zeros>
__device__ __forceinline__ void multiply(const strip_parts_args &args, warp_state<n_rows> &state)
{
    using map = shared_map<n_rows, has_zeros>;
    const warp_id &id = state.id;
    uint32_t room = state.warp + map::room + id.lane * 16;
    part_sums<n_rows / 2, map::has_part_in_registers> part = {};
    for (cursor at = first_of_tile(blockIdx.y); !is_over(args, at);
         at = first_of_tile(at.i_tile + gridDim.y)) {
        for (; at.i_lane < end_lane(args); at.i_lane++) {
            float sums[n_rows / 2] = {};
            at.i_step = 0;
            do {
                multiply_slice<traits, n_rows, has_zeros>(args, state, sums);
            } while (next_step(args, at));
            end_of_lane(args, at.i_lane, strip_of(id, at.i_tile), room, part, sums);
        }
    }
}

/* Weights do not wait for the launch before. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void prime(const strip_parts_args &args, warp_state<n_rows> &state)
{
    state.next = first_of_tile(blockIdx.y);
    if (state.is_feeder) {
#pragma unroll 1
        for (uint32_t i = 0; i < n_w_stages - 1; i++) {
            feed_w<n_rows, has_zeros>(args, state.id, state.w_at, i, state.next);
        }
    }
    griddepcontrol_launch_dependents();
    if (state.id.warp == 0) {
        prime_x<n_rows, has_zeros>(args, state.base, state.next);
    }
}

template <typename traits, int n_rows, bool has_zeros>
__global__ void __launch_bounds__(128 * strip_parts_warpgroups_max, 1)
    strip_wide(const __grid_constant__ strip_parts_args args)
{
    using map = shared_map<n_rows, has_zeros>;
    warp_state<n_rows> state = {};
    state.id = this_warp();
    uint32_t base = __shfl_sync(0xffffffffu, shared_base(), 0); /* not to be worked out anew */
    uint32_t i_warpgroup = state.id.warp / 4;
    uint32_t warps = base + map::warps;
    uint32_t rings_bytes = 8 * n_w_stages;
    state.base = base;
    state.warp = warps + state.id.warp * map::warp_bytes;
    state.w_at = {base + map::w_full + i_warpgroup * rings_bytes,
                  base + map::w_empty + i_warpgroup * rings_bytes,
                  warps + i_warpgroup * 4 * map::warp_bytes};
    state.is_feeder = state.id.warp % 4 == (i_warpgroup + 1) % 4;
    if constexpr (!has_zeros) {
        clear_no_pieces<map>(base);
    }
    init_ring(base + map::x_full, base + map::x_empty, map::n_x, state.id.n_warps);
    init_ring(base + map::w_full, base + map::w_empty, n_w_stages * strip_parts_warpgroups_max, 4);
    prime<n_rows, has_zeros>(args, state);
    multiply<traits, n_rows, has_zeros>(args, state);
}

} // namespace
