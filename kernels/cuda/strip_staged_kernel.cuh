/* strip_staged_kernel.cuh - the kernel of strip_prefill.cu for exact weights that are floats: it
 * has them in shared memory.
 *
 * Threads. Two warpgroups multiply and do nothing else; other warps widen codes for them. A
 * stage is 64 of k. A warp that widens takes a strip of two stages at a time: it waits until a
 * stage is empty, has the copy engine bring its x (the warp of the first strip does), makes 16-bit
 * weights of the codes it has had copied, and stores them where the tensor core reads them. A
 * warpgroup that multiplies waits until the stage is full, and issues four wgmma.
 *
 * Codes come by the copy engine as well: a fence before a stage is handed on waits for copies of
 * the thread's own. */
#pragma once

#include "kernels/cuda/strip_prefill_instance.h"
#include "kernels/cuda/strip_prefill_store.cuh"
#include "kernels/cuda/strip_staged_codes.cuh"
#include "kernels/cuda/strip_staged_tile.cuh"

namespace {

/* ---- widening ---- */

/* A warp: a job's codes and scales into one of its slots. Strips beyond the last are
 * the last again: what comes of them is not stored. */
template <typename format, typename tile>
__device__ __forceinline__ void copy_job(const strip_prefill_args &args, const job_cursor<tile> &at,
                                         uint32_t slot, uint32_t full)
{
    constexpr uint32_t codes_bytes = STRIP_CODES_BYTES_OF(format::bits);
    uint32_t i_slice = at.i_job / 2;
    uint32_t i_step = i_slice / STRIP_STEP_SLICES;
    uint32_t n_slices = min(STRIP_STEP_SLICES, args.base.n_slices - i_step * STRIP_STEP_SLICES);
    uint32_t i_strip = min(at.unit.i_w * tile::n_strips + at.strip, args.base.n_strips - 1);
    const uint8_t *record =
        args.base.records + static_cast<uint64_t>(i_step * args.base.n_strips) * args.record_bytes +
        static_cast<uint64_t>(i_strip) * strip_align(n_slices * args.slice_bytes);
    uint32_t i = i_slice % STRIP_STEP_SLICES;
    uint32_t scales = n_slices * codes_bytes;
    scales += i * args.slice_scale_bytes / 16 * 16;
    if (lane_id() == 0) {
        mbarrier_arrive_expect_tx(full, format::scales + args.job_scale_bytes);
        cp_async_bulk(slot, record + i * codes_bytes + at.i_job % 2 * format::scales,
                      format::scales, full);
        if (format::scaling != STRIP_PREFILL_NO_SCALES) {
            cp_async_bulk(slot + format::scales, record + scales, args.job_scale_bytes, full);
        }
    }
}

/* A stage's two blocks of a strip. Lanes of odd g take the second one first: eight lanes that store
 * at one time then meet all the banks. */
template <typename format> struct stage_part_of_strip {
    typename format::raw blocks[2];

    __device__ __forceinline__ void load(uint32_t slot, uint32_t i_k)
    {
        uint32_t lane = lane_id();
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            blocks[i] = format::load({slot, lane, i_k / 4, i_k % 4, (i ^ lane / 4) & 1});
        }
    }

    /* rows: the strip's of a stage. */
    __device__ __forceinline__ void widen(uint32_t rows) const
    {
        uint32_t lane = lane_id();
        uint32_t g = lane / 4;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t chunk = rows + g * 128 + ((4 * ((i ^ g) & 1) + lane % 4) ^ g) * 16;
            uint32_t a[2][4];
            format::widen(blocks[i], a);
            st_shared_v4(chunk, make_uint4(a[0][0], a[0][2], a[1][0], a[1][2]));
            st_shared_v4(chunk + 8 * 128, make_uint4(a[0][1], a[0][3], a[1][1], a[1][3]));
        }
    }
};

/* The scale that a strip's sums of this stage are to have. */
template <typename format, typename tile>
__device__ __forceinline__ void hand_on_scale(const stage_part_of_strip<format> &part,
                                              uint32_t base, uint32_t i_stage, uint32_t strip)
{
    uint32_t scale = format::is_strip_scaled ? part.blocks[0].scale : __float_as_uint(1.0f);
    if (lane_id() == 0) {
        st_shared(base + tile::scales + (i_stage * tile::n_strips + strip) * 4, scale);
    }
}

/* A strip of a stage. */
template <typename format, typename tile>
__device__ __forceinline__ void
fill_stage(const strip_prefill_args &args, const CUtensorMap &x_map, uint32_t base, uint32_t rank,
           uint32_t slot, const job_cursor<tile> &at, uint32_t i_k, const stage_place<tile> &place)
{
    uint32_t stage = base + place.i * tile::stage_bytes;
    uint32_t full = base + tile::full + 8 * place.i;
    stage_part_of_strip<format> part;
    part.load(slot, i_k);
    mbarrier_wait_parity(base + tile::empty + 8 * place.i, place.parity ^ 1);
    if (at.strip == 0 && lane_id() == 0) {
        feed_stage<tile>(args, x_map, stage, full, i_k, at.unit, rank);
    }
    __syncwarp();
    part.widen(stage + tile::x_bytes + at.strip * STRIP_N * 128);
    hand_on_scale<format, tile>(part, base, place.i, at.strip);
    fence_proxy_async();
    __syncwarp();
    if (lane_id() == 0) {
        mbarrier_arrive(full);
    }
}

template <typename format, typename tile>
__device__ __forceinline__ void widen_all(const strip_prefill_args &args, const CUtensorMap &x_map,
                                          uint32_t base, uint32_t rank)
{
    job_cursor<tile> at, ahead;
    stage_place<tile> place;
    ring<tile::n_slots> slot;
    at.start(args, rank);
    ahead = at;
    const uint32_t slots = base + tile::slots + at.warp * tile::n_slots * tile::slot_bytes;
    const uint32_t slot_full = base + tile::slot_full + at.warp * tile::n_slots * 8;
    for (uint32_t i = 0; i < tile::n_slots && !ahead.is_over(args); i++) {
        copy_job<format>(args, ahead, slots + i * tile::slot_bytes, slot_full + 8 * i);
        (void)ahead.step(args, rank);
    }
    place.step(at.i_job * n_job_stages);
#pragma unroll 1
    while (!at.is_over(args)) {
        uint32_t from = slots + slot.i * tile::slot_bytes;
        stage_place<tile> next = place;
        next.step(1);
        mbarrier_wait_parity(slot_full + 8 * slot.i, slot.parity);
        fill_stage<format, tile>(args, x_map, base, rank, from, at, at.i_job * 2, place);
        fill_stage<format, tile>(args, x_map, base, rank, from, at, at.i_job * 2 + 1, next);
        if (!ahead.is_over(args)) {
            copy_job<format>(args, ahead, from, slot_full + 8 * slot.i);
            (void)ahead.step(args, rank);
        }
        slot.step();
        place.step(at.step(args, rank) * n_job_stages);
    }
}

/* ---- multiplying ---- */

template <typename tile>
__device__ __forceinline__ void wait_stage(uint32_t base, const stage_place<tile> &at)
{
    mbarrier_wait_parity(base + tile::full + 8 * at.i, at.parity);
}

/* To the warps that fill it in all CTAs. */
template <typename tile> __device__ __forceinline__ void release_stage(uint32_t base, uint32_t i)
{
    uint32_t lane = lane_id();
    if (lane < n_cluster) {
        mbarrier_arrive_cluster(base + tile::empty + 8 * i, lane);
    }
}

/* acc (+)= a stage. */
template <typename format, typename tile>
__device__ __forceinline__ void multiply_stage(uint32_t base, uint32_t i_stage, bool is_added,
                                               float (&acc)[tile::n / 2])
{
    using mma = wgmma<typename format::wide::wgmma_element, tile::n>;
    uint32_t stage = base + i_stage * tile::stage_bytes;
    uint32_t a = wgmma_descriptor_low(stage + tile::x_bytes + this_warpgroup() * 64 * 128);
    uint32_t b = wgmma_descriptor_low(stage);
    wgmma_fence();
#pragma unroll
    for (uint32_t i = 0; i < k_stage / 16; i++) {
        mma::multiply(acc, wgmma_descriptor(a + 2 * i), wgmma_descriptor(b + 2 * i),
                      is_added || i > 0);
    }
    wgmma_commit();
}

/* A chain for each 128 of k, s = fma(chain, scale, s). */
template <typename format, typename tile>
__device__ __forceinline__ void multiply_groups(const strip_prefill_args &args, uint32_t base,
                                                stage_place<tile> &at, float (&sums)[tile::n / 2])
{
    float acc[tile::n / 2];
#pragma unroll 1
    for (uint32_t i = 0; i < args.n_k_stages; i += 2) {
        uint32_t i_before = at.i;
        wait_stage(base, at);
        multiply_stage<format, tile>(base, at.i, false, acc);
        at.step(1);
        wait_stage(base, at);
        multiply_stage<format, tile>(base, at.i, true, acc);
        float scale = __uint_as_float(
            ld_shared(base + tile::scales + (at.i * tile::n_strips + thread_id() / 32) * 4));
        wgmma_wait<0>();
        wgmma_changed(acc);
        release_stage<tile>(base, i_before);
        release_stage<tile>(base, at.i);
        at.step(1);
#pragma unroll
        for (int j = 0; j < tile::n / 2; j++) {
            sums[j] = fmaf(acc[j], scale, sums[j]);
        }
    }
}

template <typename format, typename tile>
__device__ __forceinline__ void multiply_unit(const strip_prefill_args &args, uint32_t base,
                                              const unit_place &unit, stage_place<tile> &at)
{
    float sums[tile::n / 2] = {};
    multiply_groups<format, tile>(args, base, at, sums);
    y_part part;
    part.warpgroup_n = unit.i_w * tile::n_w + this_warpgroup() * 64;
    part.first_n = part.warpgroup_n + thread_id() / 32 % 4 * STRIP_N;
    part.first_m = unit.first_m;
    store_tile<tile>(args, base, part, sums);
}

template <typename format, typename tile>
__device__ __forceinline__ void multiply_all(const strip_prefill_args &args, uint32_t base,
                                             uint32_t rank)
{
    stage_place<tile> at;
#pragma unroll 1
    for (uint32_t i = blockIdx.x / n_cluster; i < args.n_units; i += gridDim.x / n_cluster) {
        unit_place unit = unit_of<tile>(args, i, rank);
        multiply_unit<format, tile>(args, base, unit, at);
    }
}

/* ---- the kernel ---- */

/* Registers of a thread: of 512 there are 128 on average. */
constexpr int multiply_registers = 176;
constexpr int widen_registers = 80;

template <typename format, typename tile>
__global__ void __launch_bounds__(tile::n_threads, 1)
    strip_staged(const __grid_constant__ strip_prefill_args args,
                 const __grid_constant__ CUtensorMap x_map)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ uint8_t shared[];
    uint32_t base = (static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + shared_align - 1) /
                    shared_align * shared_align;
    uint32_t rank = cluster_ctarank();
    if (threadIdx.x == 0) {
        make_stage_barriers<tile>(base);
    }
    __syncthreads();
    cluster_sync();
    if (threadIdx.x / 32 >= tile::n_multiply_warps) {
        setmaxnreg_dec<widen_registers>();
        widen_all<format, tile>(args, x_map, base, rank);
    } else {
        setmaxnreg_inc<multiply_registers>();
        multiply_all<format, tile>(args, base, rank);
    }
    __syncwarp();
    cluster_sync(); /* until here others may arrive at this CTA's barriers */
#endif
}

template <typename format> constexpr strip_prefill_instance make_staged(uint8_t i_tile)
{
    using tile = staged_tile<format::slot_bytes>;
    return {strip_staged<format, tile>,
            tile::bytes + shared_align,
            tile::n_threads,
            tile::n_x / n_cluster,
            format::wide::is_bf16 ? DTYPE_BF16 : DTYPE_F16,
            static_cast<uint8_t>(format::bits),
            format::scaling,
            0,
            i_tile};
}

/* As in strip_prefill_tiles. */
#define STAGED_FLOAT(bits, scaling)                                                                \
    make_staged<staged_float<wide_bf16, bits, scaling>>(3),                                        \
        make_staged<staged_float<wide_f16, bits, scaling>>(3)

} // namespace
