/* strip_prefill_feed.cuh - the tiles of strip_prefill.cu, its shared memory, and the two warps that
 * fill it.
 *
 * Shared memory: n_x_stages of x (64 of k, rows of 128 bytes swizzled by the copy engine, 1 KiB
 * aligned), n_w_stages of W (2 KiB of codes of each strip, 256 or 128 of k, and the scales and zero
 * points of their slice), room for y on its way out, and barriers: full ones count bytes, empty
 * ones the warps that are done. */
#pragma once

#include "kernels/cuda/strip_prefill_pieces.cuh"

namespace {

constexpr uint32_t n_w_stages = 3;
constexpr uint32_t k_stage = strip_prefill_k_stage;
constexpr uint32_t shared_align = 1024; /* of swizzled tiles; the launch asks for as much more */
constexpr uint32_t w_strip_codes = 2048;
constexpr uint32_t strip_scales_max = 256;
constexpr uint32_t strip_zeros_max = 128;
constexpr uint32_t shared_max = 232448;

/* A CTA's tile of y: w_groups warpgroups side by side along W, n rows of x. */
template <int w_groups_, int n_, bool can_hand_over_ = false> struct tile_shape {
    static constexpr bool can_hand_over = can_hand_over_;
    static constexpr int n = n_;
    static constexpr int w_groups = w_groups_;
    static constexpr uint32_t n_strips = 4 * w_groups;
    static constexpr uint32_t n_x = n;
    static constexpr uint32_t n_consumer_warps = 4 * w_groups;
    static constexpr uint32_t n_threads = 32 * (n_consumer_warps + 4);
    static constexpr bool has_halves = w_groups == 2 && n == 256;
    static constexpr uint32_t n_boxes = has_halves ? 2 : 1; /* of x that each CTA has copied */
    static constexpr uint32_t x_bytes = n_x * k_stage * 2;
    static constexpr uint32_t w_stage_bytes =
        n_strips * (w_strip_codes + strip_scales_max + strip_zeros_max);
    static constexpr uint32_t y_warpgroup_bytes = 64 * 64 * 2;
    static constexpr uint32_t barriers_bytes = 256;
    static constexpr uint32_t room = shared_max - shared_align - barriers_bytes -
                                     w_groups * y_warpgroup_bytes - n_w_stages * w_stage_bytes;
    static constexpr uint32_t n_x_stages_max =
        can_hand_over || (w_groups == 1 && n > 128) ? 4 : 8; /* a slice, or as it fits */
    static constexpr uint32_t n_x_stages =
        room / x_bytes < n_x_stages_max ? room / x_bytes : n_x_stages_max;

    /* from the 1 KiB aligned base */
    static constexpr uint32_t w = n_x_stages * x_bytes;
    static constexpr uint32_t y = w + n_w_stages * w_stage_bytes;
    static constexpr uint32_t barriers = y + w_groups * y_warpgroup_bytes;
    static constexpr uint32_t x_full = barriers;
    static constexpr uint32_t x_empty = x_full + 8 * n_x_stages;
    static constexpr uint32_t w_full = x_empty + 8 * n_x_stages;
    static constexpr uint32_t w_empty = w_full + 8 * n_w_stages;
    static constexpr uint32_t number = w_empty + 8 * n_w_stages; /* of the cluster, on the line */
    static constexpr uint32_t bytes = barriers + barriers_bytes;
    static constexpr uint32_t scales = n_strips * w_strip_codes; /* of a stage of W */
    static constexpr uint32_t zeros = scales + n_strips * strip_scales_max;
};

/* A place in a ring of stages, and the parity of its phase. */
template <uint32_t n> struct ring {
    uint32_t i = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void step(uint32_t by = 1)
    {
        if ((i += by) == n) {
            i = 0;
            parity ^= 1;
        }
    }
};

/* ---- filling ---- */

/* This CTA's part of a stage's x, for both of the cluster. Where there are no more rows the unit's
 * first come again, whose sums are not stored: to fill a whole box with 0 takes longer. */
template <typename tile>
__device__ __forceinline__ void feed_stage(const strip_prefill_args &args, const CUtensorMap &x_map,
                                           uint32_t stage, uint32_t full, uint32_t i_k,
                                           const unit_place &unit, uint32_t rank)
{
    constexpr uint32_t n_rows = tile::n_x / n_cluster / tile::n_boxes;
    uint32_t n_boxes = unit.is_half ? 1 : tile::n_boxes;
    mbarrier_arrive_expect_tx(full, unit.is_half ? tile::x_bytes / 2 : tile::x_bytes);
    for (uint32_t i = 0; i < n_boxes; i++) {
        uint32_t first_row = (rank * n_boxes + i) * n_rows;
        bool is_there = unit.first_m + first_row < args.m;
        cp_async_bulk_tensor_multicast(stage + first_row * k_stage * 2, &x_map, i_k * k_stage,
                                       unit.first_m + (is_there ? first_row : 0), full,
                                       (1u << n_cluster) - 1);
    }
}

/* One lane: every tile's stages of x. */
template <typename tile>
__device__ __forceinline__ void feed_x(const strip_prefill_args &args, const CUtensorMap &x_map,
                                       uint32_t base)
{
    constexpr uint32_t n_slice_stages = STRIP_SLICE_K / k_stage;
    ring<tile::n_x_stages> place;
    piece now;
#pragma unroll 1
    for (uint32_t i = 0; find_piece<tile>(args, base, i, cluster_ctarank(), now); i++) {
#pragma unroll 1
        for (uint32_t i_k = now.first_slice * n_slice_stages; i_k < now.end_slice * n_slice_stages;
             i_k++) {
            mbarrier_wait_parity(base + tile::x_empty + 8 * place.i, place.parity ^ 1);
            feed_stage<tile>(args, x_map, base + place.i * tile::x_bytes,
                             base + tile::x_full + 8 * place.i, i_k, now.unit, cluster_ctarank());
            place.step();
        }
    }
}

/* What a lane copies of a slice: of one strip its codes, scales or zero points. */
struct slice_part {
    uint32_t copied_bytes; /* 0: nothing */
    uint32_t slice_bytes;  /* of this part in the record, a slice */
    uint32_t bytes_before; /* of the parts before it, a slice */
    uint32_t to;           /* in shared memory, in the first stage */
};

template <typename tile, int bits>
__device__ __forceinline__ slice_part part_of(const strip_prefill_args &args, uint32_t base,
                                              uint32_t lane)
{
    constexpr uint32_t codes_bytes = STRIP_CODES_BYTES_OF(bits);
    uint32_t i = lane % tile::n_strips;
    uint32_t stage = base + tile::w;
    switch (lane / tile::n_strips) {
    case 0:
        return {w_strip_codes, codes_bytes, 0, stage + i * w_strip_codes};
    case 1:
        return {args.job_scale_bytes, args.slice_scale_bytes, codes_bytes,
                stage + tile::scales + i * strip_scales_max};
    case 2:
        return {args.slice_zero_bytes, args.slice_zero_bytes, codes_bytes + args.slice_scale_bytes,
                stage + tile::zeros + i * strip_zeros_max};
    default:
        return {};
    }
}

/* Where it lies for a slice of a strip, or up to 8 bytes before: copies begin at multiples of 16.
 */
template <int bits>
__device__ __forceinline__ const uint8_t *
part_at(const strip_prefill_args &args, const slice_part &part, uint32_t i_strip, uint32_t i_slice)
{
    uint32_t slice_bytes =
        STRIP_CODES_BYTES_OF(bits) + args.slice_scale_bytes + args.slice_zero_bytes;
    uint32_t i_step = i_slice / STRIP_STEP_SLICES;
    uint32_t n = min(STRIP_STEP_SLICES, args.base.n_slices - i_step * STRIP_STEP_SLICES);
    return args.base.records +
           static_cast<uint64_t>(i_step * args.base.n_strips) * args.record_bytes +
           static_cast<uint64_t>(i_strip) * strip_align(n * slice_bytes) + n * part.bytes_before +
           i_slice % STRIP_STEP_SLICES * part.slice_bytes / 16 * 16;
}

/* One warp: every tile's stages of W. Strips beyond the last are the last again: what comes of them
 * is finite if the rest is, and is not stored. */
template <typename tile, int bits>
__device__ __forceinline__ void feed_w(const strip_prefill_args &args, uint32_t base)
{
    constexpr uint32_t n_slice_stages = bits / 4;
    slice_part part = part_of<tile, bits>(args, base, lane_id());
    ring<n_w_stages> place;
    piece now;
#pragma unroll 1
    for (uint32_t i = 0; find_piece<tile>(args, base, i, cluster_ctarank(), now); i++) {
        uint32_t i_strip =
            min(now.unit.i_w * tile::n_strips + lane_id() % tile::n_strips, args.base.n_strips - 1);
#pragma unroll 1
        for (uint32_t i_stage = now.first_slice * n_slice_stages;
             i_stage < now.end_slice * n_slice_stages; i_stage++) {
            uint32_t full = base + tile::w_full + 8 * place.i;
            mbarrier_wait_parity(base + tile::w_empty + 8 * place.i, place.parity ^ 1);
            if (lane_id() == 0) {
                mbarrier_arrive_expect_tx(
                    full, tile::n_strips *
                              (w_strip_codes + args.job_scale_bytes + args.slice_zero_bytes));
            }
            __syncwarp();
            if (part.copied_bytes != 0) {
                const uint8_t *from = part_at<bits>(args, part, i_strip, i_stage / n_slice_stages);
                bool is_codes = part.bytes_before == 0;
                uint32_t half = is_codes ? i_stage % n_slice_stages * w_strip_codes : 0;
                cp_async_bulk(part.to + place.i * tile::w_stage_bytes, from + half,
                              part.copied_bytes, full);
            }
            place.step();
        }
    }
}

} // namespace
