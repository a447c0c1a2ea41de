/* strip_kernel.cuh - the kernel of strip_gemm.cu, for any format: strip_int.cuh or strip_float.cuh
 * says how a slice is copied, what its codes are worth, what a group starts from and is scaled by.
 *
 * At these sizes the weight is read once and everything else must hide behind that. So:
 *
 * Operands. Weights are the A operand of mma.m16n8k16 (16 rows of W), x is B (8 rows of x; two of
 * them for m > 8). x stays in registers: a warp has the B fragments of a slice, 256 k, for all
 * strips of a round; the layout (strip.h) permutes k so that these are 16-byte words of rows as
 * they lie in memory.
 *
 * Work. A CTA owns whole strips of 16 rows, dealt out in turn (strip = cta + i * grid), so that all
 * SMs read one moving window. k is split over the warps (256 each, 4096 a step) and over time.
 * There is no split over CTAs: the order of additions depends on k alone. Two CTAs as a cluster
 * with half of the lanes of a sum each, which halves what is read of x, took 1.2 us longer a
 * launch.
 *
 * Feed. Each lane copies its own 16-byte words into its own places of shared memory with cp.async,
 * two stages ahead, and reads back only what it copied: no barrier of any kind in the loop. A stage
 * is 2 KiB of codes a warp. x does not go this way: strip_stream.cuh says why.
 *
 * Sums (bits of y): a group of 128 k or less is one chain of mma in k order; then
 * s = fma(chain, scale, s) over a warp's groups, step after step, in its own place of shared
 * memory; each four warps are added in order, then these quarters; then the scale of the row, that
 * of the column, bias, rounding.
 *
 * Shared memory: n_stages x warp x (2 KiB codes + scales + zeros), what groups start from, then a
 * round's partial sums, strip x warp x 512 bytes for each 8 rows of x. When a CTA's strips do not
 * fit, they go in rounds, each with x again. */
#pragma once

#include "kernels/cuda/strip_finish.cuh"
#include "kernels/cuda/strip_instance.h"
#include "kernels/cuda/strip_stream.cuh"

namespace {

/* ---- one slice of one strip ---- */

template <typename traits, int n_m8>
__device__ __forceinline__ void end_group(const float (&acc)[n_m8][4], const float2 &scales,
                                          float (&sums)[n_m8][4])
{
    constexpr float factor = traits::chain_factor;
#pragma unroll
    for (int i = 0; i < n_m8; i++) {
        sums[i][0] = fmaf(acc[i][0] * factor, scales.x, sums[i][0]);
        sums[i][1] = fmaf(acc[i][1] * factor, scales.x, sums[i][1]);
        sums[i][2] = fmaf(acc[i][2] * factor, scales.y, sums[i][2]);
        sums[i][3] = fmaf(acc[i][3] * factor, scales.y, sums[i][3]);
    }
}

/* stage: the slice's, or that of its first half. */
template <typename format, int n_m8>
__device__ __forceinline__ void
multiply_slice(const strip_args &args, const warp_id &id, stream<format> &weights, uint32_t stage,
               uint32_t starts, const x_fragments (&x)[n_m8], float (&sums)[n_m8][4])
{
    using traits = typename format::traits;
    constexpr int tiles_per_group = n_tiles_k / format::n_groups;
    constexpr int n_tiles = n_vector_tiles<traits>;
    float acc[n_m8][4];
#pragma unroll
    for (int i_half = 0; i_half < n_stages_of_slice<format::bits>; i_half++) {
        if (i_half > 0) {
            stage = weights.next(args, id);
        }
        format slice(args, id, stage);
#pragma unroll
        for (int i = 0; i < n_units; i++) {
            int i_vector = i_half * n_units + i;
            uint4 v = ld_shared_v4(stage + i * STRIP_UNIT_BYTES);
            const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int j = 0; j < n_tiles; j++) {
                int i_tile = n_tiles * i_vector + j;
                int i_group = i_tile / tiles_per_group;
                if (i_tile % tiles_per_group == 0) {
                    slice.start(starts, i_group, acc);
                }
                uint32_t a[4];
                slice.fragment(words, i_vector, j, a);
#pragma unroll
                for (int i_m8 = 0; i_m8 < n_m8; i_m8++) {
                    traits::mma(acc[i_m8], a, x[i_m8].fragments[i_tile]);
                }
                if (i_tile % tiles_per_group == tiles_per_group - 1) {
                    end_group<traits>(acc, slice.scale(i_group), sums);
                }
            }
        }
    }
}

/* ---- the kernel ---- */

/* 120 registers of 128, and 4 KiB of shared memory less than there is (plan()): room for the blocks
 * of clients' kernels that wait for this product (gemmd_device.h). Without it the multiprocessor
 * where one waits takes no CTA, and the product takes twice its time. */
template <typename format, int n_m8>
__global__ void __maxnreg__(120)
    strip_gemm(const __grid_constant__ strip_args args, const gk_ahead *ahead)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ strip_rows rows;
    warp_id id = this_warp();
    uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    stream<format> weights(args, id, base);
    constexpr uint32_t starts_bytes = format::template starts_bytes<n_m8>;
    uint32_t feed_bytes = args.n_stages * weights.stage_bytes(id);
    uint32_t starts = base + feed_bytes + id.warp * starts_bytes + id.t * 8;
    uint32_t sums_offset = feed_bytes + id.n_warps * starts_bytes;
    uint32_t first_place = base + sums_offset + id.warp * n_m8 * 512 + id.lane * 16;

    /* A launch that overlaps the one before has time for weights and none to lose for x; alone, x
     * must not queue behind the weights. */
    put_rows(args, rows);
    if (args.may_overlap) {
        weights.prime(args, id);
        griddepcontrol_launch_dependents();
    }
    __syncthreads();
    griddepcontrol_wait();
    if (ahead != nullptr) {
        take_rows(ahead, rows);
        if (rows.y[0] == nullptr) { /* nobody came */
            cp_async_wait<0>();
            return;
        }
    }
    uint32_t n_own = own_strips(args);
    x_fragments x[n_m8];
    for (uint32_t first_strip = 0; first_strip < n_own; first_strip += args.n_round_strips) {
        uint32_t n_strips = min(args.n_round_strips, n_own - first_strip);
        for (uint32_t i_slice = id.warp; i_slice < args.n_slices; i_slice += STRIP_STEP_SLICES) {
            if (first_strip == 0 || args.n_slices > STRIP_STEP_SLICES) {
#pragma unroll
                for (int i = 0; i < n_m8; i++) {
                    load_fragments(args, id, i_slice, rows.x[8 * i + id.g], x[i]);
                }
                if (!args.may_overlap && first_strip == 0 && i_slice == id.warp) {
                    weights.prime(args, id);
                }
                format::prepare(starts, x);
            }
            uint32_t place = first_place;
            for (uint32_t i_strip = 0; i_strip < n_strips; i_strip++) {
                float sums[n_m8][4];
                uint32_t stage = weights.next(args, id); /* first: registers are short */
                take<n_m8>(place, i_slice == id.warp, sums);
                multiply_slice(args, id, weights, stage, starts, x, sums);
                keep<n_m8>(place, sums);
                place += id.n_warps * n_m8 * 512;
            }
        }
        __syncthreads();
        finish<typename format::traits, n_m8>(args, ahead, rows, id,
                                              reinterpret_cast<const float *>(shared + sums_offset),
                                              first_strip, n_strips);
        if (n_own - first_strip > args.n_round_strips) {
            __syncthreads();
        }
    }
}

/* ---- instances ---- */

/* The least a GPU has, of 99 KiB, less what is left to others. */
constexpr uint32_t least_shared_bytes = 95 * 1024;

template <typename format, int n_m8> constexpr strip_instance make_instance(uint8_t x_dtype)
{
    constexpr uint32_t two_stages_bytes = 2 * format::size::stage;
    constexpr uint32_t sums_bytes = format::template starts_bytes<n_m8> + n_m8 * 512;
    static_assert(n_m8 > 1 ||
                      STRIP_STEP_SLICES * (two_stages_bytes + sums_bytes) <= least_shared_bytes,
                  "8 rows of x fit wherever the kernel runs");
    return {strip_gemm<format, n_m8>,
            format::size::stage,
            format::template starts_bytes<n_m8>,
            x_dtype,
            format::bits,
            format::scaling,
            n_m8,
            format::n_groups,
            format::has_zeros};
}

} // namespace
