/* strip_wide_multiply.cuh - the launch of strip_wide.cu that multiplies: its kernel. */
#pragma once

#include "kernels/cuda/strip_wide_feed.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace {

/* A chain's first value: columns 2t and 2t + 1 of each block of 8 rows of x. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void start_chain(uint32_t x_sums, const float2 &offsets,
                                            float (&acc)[n_rows / 2])
{
    uint32_t place = x_sums + lane_id() % 4 * 8;
#pragma unroll
    for (int i = 0; i < n_rows / 8; i++) {
        uint2 pair = ld_shared_v2(place + i * 32);
        float a = __uint_as_float(pair.x);
        float b = __uint_as_float(pair.y);
        acc[4 * i] = has_zeros ? offsets.x * a : a;
        acc[4 * i + 1] = has_zeros ? offsets.x * b : b;
        acc[4 * i + 2] = has_zeros ? offsets.y * a : a;
        acc[4 * i + 3] = has_zeros ? offsets.y * b : b;
    }
}

/* The A fragments of 64 k. */
template <typename traits>
__device__ __forceinline__ void dequant_unit(uint32_t codes, uint32_t (&a)[4][4])
{
    constexpr int n = n_vector_tiles<traits>;
#pragma unroll
    for (int i = 0; i < 4 / n; i++) {
        uint4 v = ld_shared_v4(codes + i * STRIP_UNIT_BYTES);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < n; j++) {
            dequant_tile<traits>(words, j, a[n * i + j]);
        }
    }
}

/* One group of a slice, of n_here units: s = fma(chain, scale, s). A unit is dequantised while the
 * tensor cores work on the other. */
template <typename format, int n_rows, int n_here>
__device__ __forceinline__ void multiply_group(const strip_wide_args &args, const warp_id &id,
                                               int i_group, uint32_t stage, uint32_t x,
                                               uint32_t x_sums, float (&sums)[n_pair][n_rows / 2])
{
    using traits = typename format::traits;
    constexpr uint32_t unit_bytes = STRIP_CODES_BYTES_OF(format::bits) / n_units;
    uint32_t b = __shfl_sync(0xffffffffu, wgmma_descriptor_low(x), 0);
    float acc[n_here][n_rows / 2];
    uint32_t a[n_here][4][4];
#pragma unroll
    for (int i = 0; i < n_group_units; i++) {
#pragma unroll
        for (int i_pair = 0; i_pair < n_here; i_pair++) {
            uint32_t slice = stage + i_pair * format::size::stage;
            if (i == 0) {
                float2 offsets = make_float2(0, 0);
                if constexpr (format::has_zeros) {
                    offsets =
                        read_offsets<traits>(zeros_of<n_groups, format::bits>(slice, id), i_group);
                }
                start_chain<n_rows, format::has_zeros>(x_sums, offsets, acc[i_pair]);
            } else {
                wgmma_wait<n_here - 1>();
            }
            dequant_unit<traits>(slice + (i_group * n_group_units + i) * unit_bytes, a[i_pair]);
            wgmma_fence();
#pragma unroll
            for (int j = 0; j < 4; j++) {
                wgmma<typename traits::wgmma_element, n_rows>::multiply(
                    acc[i_pair], a[i_pair][j],
                    wgmma_descriptor(b + i * n_rows * row_bytes / 16 + 2 * j));
            }
            wgmma_commit();
        }
    }
#pragma unroll
    for (int i_pair = 0; i_pair < n_here; i_pair++) {
        uint32_t word =
            ld_shared(scales_of<n_groups, format::bits>(stage + i_pair * format::size::stage, id) +
                      4 * i_group);
        float2 scales = widen_pair(word, args.base.scale_dtype == DTYPE_BF16);
        if (i_pair + 1 < n_here) {
            wgmma_wait<n_here - 1>();
        } else {
            wgmma_wait<0>();
        }
        hold_registers(acc[i_pair]);
#pragma unroll
        for (int i = 0; i < n_rows / 2; i++) {
            sums[i_pair][i] =
                fmaf(acc[i_pair][i], i % 4 < 2 ? scales.x : scales.y, sums[i_pair][i]);
        }
    }
}

/* What a warp keeps. */
template <int n_rows> struct warp_state {
    warp_id id;
    own_units own;
    cursor next;         /* what is fetched next */
    uint32_t i_stage;    /* of the present slice */
    uint32_t n_done;     /* groups of x before the present slice's */
    const void *x_row;   /* this lane's, of the 8 rows that its warp lays out; NULL: none */
    uint32_t i_block;    /* these rows */
    x_group x[n_groups]; /* on their way */
};

/* Groups of the next slice are asked for one slice ahead, by the warps whose turn they are. */
template <int n_rows>
__device__ __forceinline__ void ask_for_x(const strip_wide_args &args, warp_state<n_rows> &state,
                                          bool is_there, uint32_t i_slice, int i_group,
                                          uint32_t i_turn)
{
    if (is_there && is_turn<n_rows>(state.id, i_turn)) {
        load_group(args.base, state.id, state.x_row, i_slice * STRIP_SLICE_K + i_group * group_k,
                   state.x[i_group]);
    }
}

template <typename format, int n_rows>
__device__ __forceinline__ void lay_out_x(const warp_state<n_rows> &state, int i_group,
                                          uint32_t i_turn)
{
    using map = shared_map<format, n_rows>;
    if (is_turn<n_rows>(state.id, i_turn)) {
        uint32_t base = shared_base();
        store_group<typename format::traits, format::has_zeros, n_rows>(
            state.id, state.x[i_group], state.i_block, base + i_group * map::x_bytes,
            base + map::sums + i_group * map::sums_bytes);
    }
}

/* A slice: each of its groups is multiplied with while the next one of x is laid out. after: the
 * slice that comes next, if any does. */
template <typename format, int n_rows>
__device__ __forceinline__ void
multiply_slice(const strip_wide_args &args, warp_state<n_rows> &state, uint32_t n_here,
               uint32_t stage, const cursor &after, float (&sums)[n_pair][n_rows / 2])
{
    using map = shared_map<format, n_rows>;
    uint32_t base = shared_base();
    bool is_more = !is_over(state.own, after);
#pragma unroll
    for (int i = 0; i < n_groups; i++) {
        ask_for_x(args, state, is_more, slice_of(after), i, state.n_done + n_groups + i);
        uint32_t x = base + i * map::x_bytes;
        uint32_t x_sums = base + map::sums + i * map::sums_bytes;
        if (n_here == 2) {
            multiply_group<format, n_rows, 2>(args, state.id, i, stage, x, x_sums, sums);
        } else if (n_here == 1) {
            multiply_group<format, n_rows, 1>(args, state.id, i, stage, x, x_sums, sums);
        }
        if (i + 1 < n_groups || is_more) {
            lay_out_x<format, n_rows>(state, (i + 1) % n_groups, state.n_done + i + 1);
        }
        __syncthreads();
    }
    state.n_done += n_groups;
}

/* sums: a lane's, to be added to those of the part's lanes before, from 0. They wait in shared
 * memory: registers are short. */
template <int n_rows>
__device__ __forceinline__ void add_lanes_before(uint32_t lanes, float (&sums)[n_rows / 2])
{
#pragma unroll
    for (int i = 0; i < n_rows / 8; i++) {
        uint4 v = ld_shared_v4(lanes + i * 512);
        sums[4 * i] = __uint_as_float(v.x) + sums[4 * i];
        sums[4 * i + 1] = __uint_as_float(v.y) + sums[4 * i + 1];
        sums[4 * i + 2] = __uint_as_float(v.z) + sums[4 * i + 2];
        sums[4 * i + 3] = __uint_as_float(v.w) + sums[4 * i + 3];
    }
}

template <int n_rows>
__device__ __forceinline__ void keep_lanes(uint32_t lanes, const float (&sums)[n_rows / 2])
{
#pragma unroll
    for (int i = 0; i < n_rows / 8; i++) {
        st_shared_v4(lanes + i * 512,
                     make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
    }
}

/* A strip's part of y, (m, columns of the launch) f32. */
template <int n_rows>
__device__ __forceinline__ void store_part(const strip_wide_args &args, uint32_t i_strip,
                                           const float (&sums)[n_rows / 2])
{
    uint32_t lane = lane_id();
    uint32_t g = lane / 4;
    uint32_t t = lane % 4;
    uint32_t n_columns = args.n_launch_strips * STRIP_N;
    uint64_t i_row = static_cast<uint64_t>(blockIdx.x) * args.m + 2 * t;
    float *place = args.parts + i_row * n_columns + i_strip * STRIP_N + g;
#pragma unroll
    for (int i = 0; i < n_rows / 8; i++) {
        uint32_t i_m = 8 * i + 2 * t;
        if (i_m < args.m) {
            place[0] = sums[4 * i];
            place[8] = sums[4 * i + 2];
        }
        if (i_m + 1 < args.m) {
            place[n_columns] = sums[4 * i + 1];
            place[n_columns + 8] = sums[4 * i + 3];
        }
        place += 8 * n_columns;
    }
}

/* A lane is done: to those before it, and after the last to memory. */
template <int n_rows>
__device__ __forceinline__ void
end_lane_of(const strip_wide_args &args, const warp_state<n_rows> &state, const cursor &at,
            uint32_t i_pair, uint32_t lanes, float (&sums)[n_rows / 2])
{
    if (at.i_lane > first_lane()) {
        add_lanes_before<n_rows>(lanes, sums);
    }
    if (at.i_lane + 1 < end_lane(args)) {
        keep_lanes<n_rows>(lanes, sums);
        return;
    }
    uint32_t i_strip = strip_of(state.own, state.id, at.i_round, i_pair);
    if (i_strip < args.n_launch_strips) {
        store_part<n_rows>(args, i_strip, sums);
    }
}

/* One warp's part in all units of the CTA. */
template <typename format, int n_rows>
__device__ __forceinline__ void multiply(const strip_wide_args &args, warp_state<n_rows> &state,
                                         uint32_t first_stage)
{
    using map = shared_map<format, n_rows>;
    constexpr uint32_t n = n_wide_stages<format, n_rows>;
    uint32_t lanes = first_stage + n * map::stage_bytes;
    for (cursor at = {0, first_lane(), 0}; !is_over(state.own, at);
         at = {at.i_round + 1, first_lane(), 0}) {
        uint32_t n_here = n_units_here(state.own, state.id, at.i_round);
        for (; at.i_lane < end_lane(args); at.i_lane++) {
            float sums[n_pair][n_rows / 2] = {};
            at.i_step = 0;
            do {
                uint32_t i_free = state.i_stage == 0 ? n - 1 : state.i_stage - 1;
                cp_async_wait<n - 2>();
                fetch<format>(args, state.own, state.id, state.next,
                              first_stage + i_free * map::stage_bytes);
                cursor_on(args, state.next);
                cursor after = at;
                cursor_on(args, after);
                multiply_slice<format, n_rows>(args, state, n_here,
                                               first_stage + state.i_stage * map::stage_bytes,
                                               after, sums);
                state.i_stage = state.i_stage == n - 1 ? 0 : state.i_stage + 1;
            } while (next_step(args, at));
            at.i_step = 0;
            for (uint32_t i = 0; i < n_pair; i++) {
                if (i < n_here) {
                    end_lane_of<n_rows>(args, state, at, i, lanes + i * map::lanes_bytes, sums[i]);
                }
            }
        }
    }
}

/* The first two groups of x, for which nobody has asked ahead. */
template <typename format, int n_rows>
__device__ __forceinline__ void begin_x(const strip_wide_args &args, warp_state<n_rows> &state)
{
    uint32_t i_slice = first_lane();
#pragma unroll
    for (int i = 0; i < n_groups; i++) {
        ask_for_x(args, state, true, i_slice, i, i);
    }
    lay_out_x<format, n_rows>(state, 0, 0);
    __syncthreads();
}

template <typename format, int n_rows>
__global__ void __launch_bounds__(32 * n_wide_warps, 1)
    strip_wide(const __grid_constant__ strip_wide_args args)
{
    using map = shared_map<format, n_rows>;
    warp_state<n_rows> state = {};
    state.id = this_warp();
    state.own = units_of(args);
    state.next = {0, first_lane(), 0};
    state.i_block = state.id.warp % (n_rows / 8);
    uint32_t first_stage =
        shared_base() + map::warps + state.id.warp * map::warp_bytes + state.id.lane * 16;
    for (uint32_t i = 0; i < n_wide_stages<format, n_rows> - 1; i++) {
        fetch<format>(args, state.own, state.id, state.next, first_stage + i * map::stage_bytes);
        cursor_on(args, state.next);
    }
    uint32_t i_row = 8 * state.i_block + state.id.g;
    state.x_row = i_row < args.m ? args.rows.x[i_row] : nullptr;
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    begin_x<format, n_rows>(args, state);
    multiply<format, n_rows>(args, state, first_stage);
}

} // namespace
