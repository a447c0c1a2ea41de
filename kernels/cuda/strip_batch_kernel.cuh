/* strip_batch_kernel.cuh - the launch of strip_batch.cu that multiplies, for any format of
 * strip_batch_codes.cuh, and the instances of one. */
#pragma once

#include <type_traits>

#include "kernels/cuda/strip_batch_feed.cuh"
#include "kernels/cuda/strip_batch_instance.h"
#include "kernels/cuda/strip_parts.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace {

/* What a warp keeps. */
template <int n_rows> struct warp_state {
    warp_id id;
    stage_cursor next;              /* what is fetched next: n_stages - 1 stages ahead */
    x_feed feed;                    /* warp 0's */
    ring_place<x_stages<n_rows>> x; /* the present tile of x */
    uint32_t stages;                /* the warp's ring of stages */
    uint32_t i_stage;               /* the present one */
};

constexpr int n_tile_steps = STRIP_GROUP_MAX / 16; /* products of a tile */

/* The A fragments of a group. codes: this lane's of the tile; words: what was read last. */
template <typename format, int n_steps>
__device__ __forceinline__ void dequant_group(const format &tile, uint32_t codes, int i_group,
                                              uint32_t (&words)[4], uint32_t (&a)[n_steps][4])
{
    constexpr int n_vector_steps = 16 / format::bits;
#pragma unroll
    for (int j = 0; j < n_steps; j++) {
        int i = i_group * n_steps + j;
        if (i % n_vector_steps == 0) {
            uint4 v = ld_shared_v4(codes + i / n_vector_steps * STRIP_UNIT_BYTES);
            words[0] = v.x;
            words[1] = v.y;
            words[2] = v.z;
            words[3] = v.w;
        }
        tile.fragment(words, i % n_vector_steps, i / 2, a[j]);
    }
}

template <int n> __device__ __forceinline__ void start_from_0(float (&acc)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        acc[i] = 0.0f;
    }
}

/* One product of a chain. Where that starts from 0, 64 rows need not set 32 registers; of fewer
 * rows they are set, and there is nothing to choose. */
template <typename element, int n_rows>
__device__ __forceinline__ void multiply_step(float (&acc)[n_rows / 2], const uint32_t (&a)[4],
                                              uint64_t b, bool is_added)
{
    wgmma<element, n_rows>::multiply(acc, a, b, n_rows < 64 || is_added);
}

/* The chain of a group is issued; acc has its first value. b: the lower half of the descriptor of
 * the tile of x. */
template <typename format, int n_rows, int n_steps>
__device__ __forceinline__ void
issue_group(uint32_t b, int i_group, const uint32_t (&a)[n_steps][4], float (&acc)[n_rows / 2])
{
    using element = typename format::traits::wgmma_element;
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < n_steps; j++) {
        int i = i_group * n_steps + j;
        uint64_t descriptor = wgmma_descriptor(b + i / 4 * n_rows * row_bytes / 16 + i % 4 * 2);
        multiply_step<element, n_rows>(acc, a[j], descriptor, format::has_starts || j > 0);
    }
    wgmma_commit();
}

/* Small groups of 8-bit integers and 64 rows: registers are short. */
template <typename format, int n_rows>
constexpr bool is_tight =
    n_rows == 64 && format::has_starts &&format::bits == 8 && format::n_groups == 8;

/* Is the next group dequantised while the tensor cores work? A twentieth faster, and in f16 the
 * tight ones have no registers for it. */
template <typename format, int n_rows>
constexpr bool is_ahead =
    !is_tight<format, n_rows> || std::is_same_v<typename format::traits::wgmma_element, wgmma_bf16>;

/* A tile of 128 k: s = fma(chain, scale, s), group after group. The next tile of x is asked for,
 * and the next group dequantised, while the tensor cores work: in this order, in which no registers
 * spill. */
template <typename format, int n_rows>
__device__ __forceinline__ void multiply_tile(const strip_parts_args &args,
                                              warp_state<n_rows> &state, const format &tile,
                                              uint32_t codes, float (&sums)[n_rows / 2])
{
    using map = shared_map<format, n_rows>;
    constexpr int n_tile_groups = format::n_groups / n_slice_tiles;
    constexpr int n_steps = n_tile_steps / n_tile_groups;
    constexpr float factor = format::traits::chain_factor;
    constexpr int n_unrolled = !is_ahead<format, n_rows>  ? 1
                               : is_tight<format, n_rows> ? 2
                                                          : n_tile_groups;
    uint32_t base = shared_base();
    uint32_t b = __shfl_sync(
        0xffffffffu, wgmma_descriptor_low(base + state.x.i() * tile_blocks_bytes(n_rows)), 0);
    uint32_t x_sums = base + map::x_sums + state.x.i() * map::sums_bytes + lane_id() % 4 * 8;
    uint32_t words[4];
    uint32_t a[2][n_steps][4];
    dequant_group<format>(tile, codes, 0, words, a[0]);
    mbarrier_wait_parity(base + map::full + 8 * state.x.i(), state.x.parity());
#pragma unroll n_unrolled
    for (int i = 0; i < n_tile_groups; i++) {
        auto &present = a[is_ahead<format, n_rows> ? i % 2 : 0];
        auto &next = a[is_ahead<format, n_rows> ? (i + 1) % 2 : 0];
        float acc[n_rows / 2];
        if constexpr (format::has_starts) {
            start_chain<n_rows>(x_sums + i * n_rows * 4, tile.offsets(i), acc);
        } else if constexpr (n_rows < 64) {
            start_from_0(acc);
        }
        issue_group<format, n_rows>(b, i, present, acc);
        if (i == 0 && state.id.warp == 0) {
            feed_x<format, n_rows>(args, state.x, state.feed);
        }
        if (is_ahead<format, n_rows> && i + 1 < n_tile_groups) {
            dequant_group<format>(tile, codes, i + 1, words, next);
        }
        float2 scales = tile.scale(i);
        wgmma_wait<0>();
        wgmma_changed(acc);
#pragma unroll
        for (int j = 0; j < n_rows / 2; j++) {
            sums[j] = fmaf(acc[j] * factor, j % 4 < 2 ? scales.x : scales.y, sums[j]);
        }
        if (!is_ahead<format, n_rows> && i + 1 < n_tile_groups) {
            dequant_group<format>(tile, codes, i + 1, words, next);
        }
    }
    __syncwarp(); /* all lanes have read the sums of the tile */
    if (lane_id() == 0) {
        mbarrier_arrive(base + map::empty + 8 * state.x.i());
    }
    state.x.step();
}

/* The next stage is there, for all lanes, and the one read before it is filled again. */
template <typename format, int n_rows>
__device__ __forceinline__ uint32_t take_stage(const strip_parts_args &args,
                                               warp_state<n_rows> &state)
{
    constexpr uint32_t stage_bytes = shared_map<format, n_rows>::stage_bytes;
    cp_async_wait<n_stages - 2>();
    __syncwarp();
    uint32_t stage = state.stages + state.i_stage * stage_bytes;
    uint32_t i_before = state.i_stage == 0 ? n_stages - 1 : state.i_stage - 1;
    fetch<format>(args, state.id, state.next, state.stages + i_before * stage_bytes);
    state.i_stage = state.i_stage == n_stages - 1 ? 0 : state.i_stage + 1;
    return stage;
}

template <typename format, int n_rows>
__device__ __forceinline__ void multiply_slice(const strip_parts_args &args,
                                               warp_state<n_rows> &state, float (&sums)[n_rows / 2])
{
    constexpr uint32_t n_stage_tiles = n_slice_tiles / n_slice_stages<format>;
    uint32_t stage = 0;
#pragma unroll 1 /* not to mix two tiles: registers are short */
    for (uint32_t i = 0; i < n_slice_tiles; i++) {
        if (i % n_stage_tiles == 0) {
            stage = take_stage<format, n_rows>(args, state);
        }
        uint32_t codes =
            stage + lane_id() * 16 + i % n_stage_tiles * (STRIP_CODES_BYTES / n_stage_tiles);
        format tile(args.base, {stage + STRIP_CODES_BYTES, i});
        multiply_tile<format, n_rows>(args, state, tile, codes, sums);
    }
}

/* One warp's part in all tiles of the CTA. */
template <typename format, int n_rows>
__device__ __forceinline__ void multiply_all(const strip_parts_args &args,
                                             warp_state<n_rows> &state)
{
    using map = shared_map<format, n_rows>;
    uint32_t place = state.stages + lane_id() * 16;
    waiting_sums<map::has_totals> waiting = {place + map::warp_lanes, place + map::totals};
    for (uint32_t i_tile = blockIdx.y; i_tile < args.n_tiles; i_tile += gridDim.y) {
        uint32_t i_strip = strip_of(state.id, i_tile);
        cursor at = first_of_tile(i_tile);
        for (; at.i_lane < end_lane(args); at.i_lane++) {
            float sums[n_rows / 2] = {};
            at.i_step = 0;
            do {
                multiply_slice<format, n_rows>(args, state, sums);
            } while (next_step(args, at));
            end_lane_of(args, at.i_lane, i_strip, waiting, sums);
        }
        if (gridDim.x == 1 && i_strip < args.n_launch_strips) {
            finish(args, i_strip, waiting);
        }
    }
}

template <typename format, int n_rows>
__global__ void __launch_bounds__(128 * strip_parts_warpgroups_max, 1)
    strip_batch(const __grid_constant__ strip_parts_args args)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using map = shared_map<format, n_rows>;
    uint32_t base = shared_base();
    warp_state<n_rows> state = {};
    state.id = this_warp();
    state.next = {first_of_tile(blockIdx.y), 0};
    state.feed = all_x(args);
    state.stages = base + map::warps + state.id.warp * map::warp_bytes;
    for (uint32_t i = 0; i < n_stages - 1; i++) {
        fetch<format>(args, state.id, state.next, state.stages + i * map::stage_bytes);
    }
    init_ring(base + map::full, base + map::empty, map::n_x, state.id.n_warps);
    griddepcontrol_launch_dependents();
    if (state.id.warp == 0) {
        griddepcontrol_wait();
        for (uint32_t i = 0; i < map::n_x - 1 && state.feed.n_left > 0; i++) {
            copy_x<format, n_rows>(args, state.feed, i);
        }
    }
    multiply_all<format, n_rows>(args, state);
#endif
}

/* ---- instances ---- */

template <typename format, int n_rows>
constexpr strip_batch_instance make_batch_instance(uint8_t x_dtype)
{
    using map = shared_map<format, n_rows>;
    constexpr int n_starts = format::has_starts ? format::n_groups : 0;
    return {{lay_out_x<typename format::traits, n_starts>, strip_batch<format, n_rows>, map::warps,
             map::warp_bytes, n_rows, x_row_bytes, 1.0f / format::traits::unit},
            x_dtype,
            format::bits,
            format::scaling,
            format::n_groups,
            format::scale_bytes,
            format::zero_bytes};
}

/* For up to 32 rows of x, and for up to 64. */
#define STRIP_BATCH_INSTANCES(dtype, ...)                                                          \
    make_batch_instance<__VA_ARGS__, 32>(dtype), make_batch_instance<__VA_ARGS__, 64>(dtype)

} // namespace
