/* strip_kernel.cuh - the kernel of strip_gemm.cu, for any format: strip_int.cuh or strip_float.cuh
 * says how a slice is copied, what its codes are worth, what a group starts from and is scaled by.
 *
 * At these sizes the weight is read once and everything else must hide behind that. So:
 *
 * Operands. Weights are the A operand of mma.m16n8k16 (16 rows of W), x is B (8 rows of x; two of
 * them for m > 8). x stays in registers: a warp loads the B fragments of its 256 k once a step,
 * straight from the rows as they lie in memory; the layout (strip.h) permutes k to allow it.
 *
 * Work. A CTA owns whole strips of 16 rows, dealt out in turn (strip = cta + i * grid), so that all
 * SMs read one moving window. k is split over the warps (256 each, 4096 a step) and over time.
 * There is no split over CTAs: the order of additions depends on k alone.
 *
 * Feed. Each lane copies its own 16-byte words into its own places of shared memory with cp.async,
 * two strips ahead, and reads back only what it copied: no barrier of any kind in the loop.
 *
 * Sums (bits of y): a group of 128 k or less is one chain of mma in k order; then
 * s = fma(chain, scale, s) over a warp's groups, step after step, in its own place of shared
 * memory; each four warps are added in order, then these quarters; then the scale of the row, that
 * of the column, bias, rounding.
 *
 * Shared memory: n_stages x warp x (2 KiB codes + scales + zeros), then a round's partial sums,
 * strip x warp x 512 bytes for each 8 rows of x. When a CTA's strips do not fit, they go in rounds,
 * each loading x again. */
#pragma once

#include "kernels/cuda/strip_instance.h"
#include "kernels/cuda/strip_x.cuh"

namespace {

/* ---- the feed ----------------------------------------------------------------------------------
 */

__device__ __forceinline__ uint32_t own_strips(const strip_args &args)
{
    return args.n_own_min + (blockIdx.x < args.n_own_extra ? 1 : 0);
}

/* Where the next copy comes from: rounds, steps within a round, strips within a step. */
struct cursor {
    slice_source source;
    uint32_t stride_bytes; /* to the next own strip */
    uint32_t n_left;       /* strips of this step and round; 0: all is copied */
    uint32_t i_step;
    uint32_t first_strip; /* of the round, counted in own strips */
};

template <typename format>
__device__ __forceinline__ void cursor_seek(const strip_args &args, const warp_id &id, cursor &at)
{
    uint64_t strip = blockIdx.x + static_cast<uint64_t>(at.first_strip) * gridDim.x;
    uint32_t n = step_slices(args, at.i_step);
    at.source = format::source(args, id, strip, at.i_step);
    at.stride_bytes = gridDim.x * strip_align(n * format::size::slice);
    at.n_left = min(args.n_round_strips, own_strips(args) - at.first_strip);
}

/* To the next step this warp has a slice in, or to the next round, or to the end. */
template <typename format>
__device__ __forceinline__ void cursor_turn(const strip_args &args, const warp_id &id, cursor &at)
{
    at.i_step++;
    if (at.i_step * STRIP_STEP_SLICES + id.warp >= args.n_slices) {
        at.i_step = 0;
        at.first_strip += args.n_round_strips;
    }
    if (at.first_strip < own_strips(args)) {
        cursor_seek<format>(args, id, at);
    }
}

/* One strip's slice into a stage. Always one group of copies, empty at the end, so that waiting can
 * count. */
template <typename format>
__device__ __forceinline__ void fetch(const strip_args &args, const warp_id &id, cursor &at,
                                      uint32_t stage)
{
    if (at.n_left > 0) {
        format::copy(at.source, id, stage);
        at.source.codes += at.stride_bytes;
        at.source.scales += at.stride_bytes;
        at.source.zeros += at.stride_bytes;
        if (--at.n_left == 0) {
            cursor_turn<format>(args, id, at);
        }
    }
    cp_async_commit();
}

/* ---- one slice of one strip ---------------------------------------------------------------------
 */

template <int n_m8>
__device__ __forceinline__ void end_group(const float (&acc)[n_m8][4], const float2 &scales,
                                          float (&sums)[n_m8][4])
{
#pragma unroll
    for (int i = 0; i < n_m8; i++) {
        sums[i][0] = fmaf(acc[i][0], scales.x, sums[i][0]);
        sums[i][1] = fmaf(acc[i][1], scales.x, sums[i][1]);
        sums[i][2] = fmaf(acc[i][2], scales.y, sums[i][2]);
        sums[i][3] = fmaf(acc[i][3], scales.y, sums[i][3]);
    }
}

template <typename format, int n_m8>
__device__ __forceinline__ void multiply_slice(const strip_args &args, const warp_id &id,
                                               uint32_t stage, const typename format::x (&x)[n_m8],
                                               float (&sums)[n_m8][4])
{
    using traits = typename format::traits;
    constexpr int tiles_per_group = n_tiles_k / format::n_groups;
    constexpr int n_tiles = n_vector_tiles<traits>;
    const format slice(args, id, stage);
    float acc[n_m8][4];
#pragma unroll
    for (int i_vector = 0; i_vector < n_vectors<format::bits>; i_vector++) {
        uint4 v = ld_shared_v4(stage + i_vector * STRIP_UNIT_BYTES);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < n_tiles; j++) {
            int i_tile = n_tiles * i_vector + j;
            int i_group = i_tile / tiles_per_group;
            if (i_tile % tiles_per_group == 0) {
                slice.start(x, i_group, acc);
            }
            uint32_t a[4];
            slice.fragment(words, i_vector, j, a);
#pragma unroll
            for (int i = 0; i < n_m8; i++) {
                traits::mma(acc[i], a, x[i].fragments[i_tile]);
            }
            if (i_tile % tiles_per_group == tiles_per_group - 1) {
                end_group(acc, slice.scale(i_group), sums);
            }
        }
    }
}

/* ---- partial sums and the end of a round --------------------------------------------------------
 */

/* A lane's place for a strip of the round: 4 floats, 32 lanes side by side. */
template <int n_m8>
__device__ __forceinline__ float4 *partial(float4 *partials, const warp_id &id, uint32_t i_strip,
                                           uint32_t warp, int i_m8)
{
    return partials + ((i_strip * id.n_warps + warp) * n_m8 + i_m8) * 32;
}

/* What this warp has of a strip so far. */
template <int n_m8>
__device__ __forceinline__ void take(float4 *partials, const warp_id &id, uint32_t i_strip,
                                     bool is_first, float (&sums)[n_m8][4])
{
#pragma unroll
    for (int i = 0; i < n_m8; i++) {
        float4 v = make_float4(0, 0, 0, 0);
        if (!is_first) {
            v = partial<n_m8>(partials, id, i_strip, id.warp, i)[id.lane];
        }
        sums[i][0] = v.x;
        sums[i][1] = v.y;
        sums[i][2] = v.z;
        sums[i][3] = v.w;
    }
}

template <int n_m8>
__device__ __forceinline__ void keep(float4 *partials, const warp_id &id, uint32_t i_strip,
                                     const float (&sums)[n_m8][4])
{
#pragma unroll
    for (int i = 0; i < n_m8; i++) {
        partial<n_m8>(partials, id, i_strip, id.warp, i)[id.lane] =
            make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
    }
}

__device__ __forceinline__ float add(float a, float b)
{
    return a + b;
}

__device__ __forceinline__ float4 add(const float4 &a, const float4 &b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* A place's sum over the warps: each four in order, then these quarters. With all warps there,
 * which is the rule, every load is on its way before the first is used. */
template <typename value>
__device__ __forceinline__ value sum_warps(const value *place, uint32_t stride, uint32_t n_warps)
{
    value total = {};
    if (n_warps == STRIP_STEP_SLICES) {
        value all[STRIP_STEP_SLICES];
#pragma unroll
        for (int warp = 0; warp < STRIP_STEP_SLICES; warp++) {
            all[warp] = place[warp * stride];
        }
#pragma unroll
        for (int first = 0; first < STRIP_STEP_SLICES; first += 4) {
            value quarter =
                add(add(add(all[first], all[first + 1]), all[first + 2]), all[first + 3]);
            total = add(total, quarter);
        }
        return total;
    }
    for (uint32_t first = 0; first < n_warps; first += 4) {
        value quarter = place[first * stride];
        for (uint32_t warp = first + 1; warp < min(first + 4, n_warps); warp++) {
            quarter = add(quarter, place[warp * stride]);
        }
        total = add(total, quarter);
    }
    return total;
}

/* Add up each four warps, in order, then these quarters, and write y. For one or two rows of x: an
 * element a thread, since most of the partial sums are of rows that are not there. */
template <typename traits, int n_m8>
__device__ __forceinline__ void finish_few(const strip_args &args, const warp_id &id,
                                           const float4 *partials, uint32_t first_strip,
                                           uint32_t n_strips)
{
    uint32_t i_row = threadIdx.x % STRIP_N;
    for (uint32_t i = threadIdx.x / STRIP_N; i < n_strips * args.m; i += blockDim.x / STRIP_N) {
        uint32_t i_m = args.m == 1 ? 0 : i % 2;
        uint32_t i_strip = args.m == 1 ? i : i / 2;
        uint32_t i_n = (blockIdx.x + (first_strip + i_strip) * gridDim.x) * STRIP_N + i_row;
        const float *place = &partials[i_strip * id.n_warps * n_m8 * 32 + i_row % 8 * 4].x;
        place += i_row / 8 * 2 + i_m;
        float total = sum_warps(place, n_m8 * 128, id.n_warps);
        store_y<traits>(args, args.y_rows, args.m, i_n, i_m, total);
    }
}

/* The same for more: a lane's place a thread. */
template <typename traits, int n_m8>
__device__ __forceinline__ void finish_many(const strip_args &args, const warp_id &id,
                                            const float4 *partials, uint32_t first_strip,
                                            uint32_t n_strips)
{
    for (uint32_t i = threadIdx.x; i < n_strips * n_m8 * 32; i += blockDim.x) {
        uint32_t lane = i % 32;
        uint32_t i_strip = i / (32 * n_m8);
        uint32_t i_m = i / 32 % n_m8 * 8 + lane % 4 * 2;
        uint32_t i_n = (blockIdx.x + (first_strip + i_strip) * gridDim.x) * STRIP_N + lane / 4;
        const float4 *place = partials + i_strip * id.n_warps * n_m8 * 32 + i % (32 * n_m8);
        float4 total = sum_warps(place, n_m8 * 32, id.n_warps);
        store_y<traits>(args, args.y_rows, args.m, i_n, i_m, total.x);
        store_y<traits>(args, args.y_rows, args.m, i_n, i_m + 1, total.y);
        store_y<traits>(args, args.y_rows, args.m, i_n + 8, i_m, total.z);
        store_y<traits>(args, args.y_rows, args.m, i_n + 8, i_m + 1, total.w);
    }
}

/* ---- the kernel --------------------------------------------------------------------------------
 */

/* Fill all stages but one. */
template <typename format>
__device__ __forceinline__ void prime(const strip_args &args, const warp_id &id, cursor &at,
                                      uint32_t first_stage, uint32_t stage_bytes)
{
    for (uint32_t i = 0; i < args.n_stages - 1u; i++) {
        fetch<format>(args, id, at, first_stage + i * stage_bytes);
    }
}

/* 120 registers of 128, and 4 KiB of shared memory less than there is (plan()): room for the blocks
 * of clients' kernels that wait for this product (gemmd_device.h). Without it the multiprocessor
 * where one waits takes no CTA, and the product takes twice its time. */
template <typename format, int n_m8>
__global__ void __maxnreg__(120) strip_gemm(const __grid_constant__ strip_args args)
{
    using traits = typename format::traits;
    using size = typename format::size;
    extern __shared__ __align__(16) uint8_t shared[];
    warp_id id = this_warp();
    uint32_t stage_bytes = id.n_warps * size::stage;
    uint32_t first_stage = static_cast<uint32_t>(__cvta_generic_to_shared(shared)) +
                           id.warp * size::stage + id.lane * 16;
    uint32_t last_stage = first_stage + (args.n_stages - 1) * stage_bytes;
    float4 *partials = reinterpret_cast<float4 *>(shared + args.n_stages * stage_bytes);

    /* A launch that overlaps the one before has time for weights and none to lose for x; alone, x
     * must not queue behind the weights. */
    cursor at = {};
    cursor_seek<format>(args, id, at);
    bool is_primed = args.may_overlap;
    if (is_primed) {
        prime<format>(args, id, at, first_stage, stage_bytes);
        griddepcontrol_launch_dependents();
        griddepcontrol_wait();
    }
    uint32_t stage = first_stage;
    uint32_t free_stage = last_stage;
    uint32_t n_own = own_strips(args);
    typename format::x x[n_m8];
    for (uint32_t first_strip = 0; first_strip < n_own; first_strip += args.n_round_strips) {
        uint32_t n_strips = min(args.n_round_strips, n_own - first_strip);
        for (uint32_t i_slice = id.warp; i_slice < args.n_slices; i_slice += STRIP_STEP_SLICES) {
            if (first_strip == 0 || args.n_slices > STRIP_STEP_SLICES) {
#pragma unroll
                for (int i = 0; i < n_m8; i++) {
                    uint32_t i_m = 8 * i + id.g;
                    load_fragments(args, id, i_slice, i_m < args.m ? args.x_rows[i_m] : nullptr,
                                   x[i]);
                }
                if (!is_primed) {
                    prime<format>(args, id, at, first_stage, stage_bytes);
                    is_primed = true;
                }
#pragma unroll
                for (int i = 0; i < n_m8; i++) {
                    format::prepare(x[i]);
                }
            }
            for (uint32_t i_strip = 0; i_strip < n_strips; i_strip++) {
                if (args.n_stages == n_stages) {
                    cp_async_wait<n_stages - 2>();
                } else {
                    cp_async_wait<0>();
                }
                fetch<format>(args, id, at, free_stage);
                float sums[n_m8][4];
                take<n_m8>(partials, id, i_strip, i_slice == id.warp, sums);
                multiply_slice<format>(args, id, stage, x, sums);
                keep<n_m8>(partials, id, i_strip, sums);
                free_stage = stage;
                stage = stage == last_stage ? first_stage : stage + stage_bytes;
            }
        }
        __syncthreads();
        if (args.m <= 2) {
            finish_few<traits, n_m8>(args, id, partials, first_strip, n_strips);
        } else {
            finish_many<traits, n_m8>(args, id, partials, first_strip, n_strips);
        }
        if (n_own - first_strip > args.n_round_strips) {
            __syncthreads();
        }
    }
}

/* ---- instances ---- */

template <typename format, int n_m8> constexpr strip_instance make_instance(uint8_t x_dtype)
{
    return {
        strip_gemm<format, n_m8>, format::size::stage, x_dtype, format::bits, format::scaling, n_m8,
        format::n_groups,         format::has_zeros};
}

} // namespace
