/* strip_prefill_kernel.cuh - the kernel of strip_prefill.cu that has weights in registers. Two
 * warpgroups multiply; of a third one, one warp feeds x, one W (strip_prefill_feed.cuh). */
#pragma once

#include "kernels/cuda/strip_prefill_instance.h"
#include "kernels/cuda/strip_prefill_store.cuh"

namespace {

template <typename tile> __device__ __forceinline__ void make_barriers(uint32_t base)
{
    for (uint32_t i = 0; i < tile::n_x_stages; i++) {
        mbarrier_init(base + tile::x_full + 8 * i, 1);
        mbarrier_init(base + tile::x_empty + 8 * i, tile::n_consumer_warps * n_cluster);
    }
    for (uint32_t i = 0; i < n_w_stages; i++) {
        mbarrier_init(base + tile::w_full + 8 * i, 1);
        mbarrier_init(base + tile::w_empty + 8 * i, tile::n_consumer_warps);
    }
    fence_mbarrier_init();
}

/* What is stored of a unit: n rows of x a warpgroup. */
template <typename tile, int n_> struct stored_part {
    static constexpr int n = n_;
    static constexpr uint32_t y = tile::y;
    static constexpr uint32_t y_warpgroup_bytes = tile::y_warpgroup_bytes;
};

template <typename format, typename tile, int n_blocks, int n>
__device__ __forceinline__ void consume_piece(const strip_prefill_args &args, uint32_t base,
                                              uint32_t i_piece, const piece &now, walk<tile> &at)
{
    float sums[n / 2] = {};
    if constexpr (tile::can_hand_over) {
        bool is_begun = now.first_slice > 0;
        uint32_t i_before = is_begun ? number_on_line<tile>(base) - 1 : 0;
        take_over(args, handed_index(i_before, cluster_ctarank(), this_warpgroup()), is_begun,
                  sums);
    }
    if constexpr (n_blocks == 0) {
        multiply_rounded<format, tile, n>(args, base, now, at, sums);
    } else {
        multiply_tile<typename format::wide, format::bits, tile, n_blocks>(
            args, base, now.end_slice - now.first_slice, at, sums);
    }
    piece done = now;
    if constexpr (n_blocks != 0) { /* whose two sets of sums leave no registers for it */
        forget_origin(i_piece);
        done = {};
        (void)find_piece<tile>(args, base, i_piece, cluster_ctarank(), done);
    }
    if (tile::can_hand_over && done.end_slice < args.base.n_slices) {
        uint32_t i_cluster = number_on_line<tile>(base);
        hand_over(args, handed_index(i_cluster, cluster_ctarank(), this_warpgroup()),
                  store_barrier + this_warpgroup(), sums);
        return;
    }
    y_part part;
    part.warpgroup_n = done.unit.i_w * tile::n_strips * STRIP_N + this_strip<tile>() / 4 * 64;
    part.first_n = part.warpgroup_n + this_strip<tile>() % 4 * STRIP_N;
    part.first_m = done.unit.first_m;
    store_tile<stored_part<tile, n>>(args, base, part, sums);
}

template <typename format, typename tile, int n_blocks>
__device__ __forceinline__ void consume(const strip_prefill_args &args, uint32_t base)
{
    walk<tile> at = {};
    at.zeros[0] = at.zeros[1] =
        base_zero_of<typename format::wide, format::bits>(1u << (format::bits - 1));
    piece now;
#pragma unroll 1
    for (uint32_t i = 0; find_piece<tile>(args, base, i, cluster_ctarank(), now); i++) {
        if (now.end_slice == 0) {
            continue;
        }
        if constexpr (tile::has_halves) {
            if (now.unit.is_half) {
                consume_piece<format, tile, n_blocks, tile::n / 2>(args, base, i, now, at);
                continue;
            }
        }
        consume_piece<format, tile, n_blocks, tile::n>(args, base, i, now, at);
    }
}

template <typename format, typename tile, int n_blocks>
__global__ void __launch_bounds__(tile::n_threads, 1)
    strip_prefill(const __grid_constant__ strip_prefill_args args,
                  const __grid_constant__ CUtensorMap x_map)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ uint8_t shared[];
    uint32_t base = (static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + shared_align - 1) /
                    shared_align * shared_align;
    if (threadIdx.x == 0) {
        uint32_t number = take_number<tile>(args);
        make_barriers<tile>(base);
        put_number<tile>(base, number);
    }
    __syncthreads();
    cluster_sync();
    uint32_t warp = threadIdx.x / 32;
    if (warp >= tile::n_consumer_warps) {
        if constexpr (tile::w_groups == 2) {
            setmaxnreg_dec<n_blocks == 0 ? 40 : 24>();
        }
        if (warp == tile::n_consumer_warps && threadIdx.x % 32 == 0) {
            feed_x<tile>(args, x_map, base);
        } else if (warp == tile::n_consumer_warps + 1) {
            feed_w<tile, format::bits>(args, base);
        }
    } else {
        if constexpr (tile::w_groups == 2) { /* one alone has enough registers */
            setmaxnreg_inc<n_blocks == 0 ? 232 : 240>();
        }
        consume<format, tile, n_blocks>(args, base);
    }
    __syncwarp();
    cluster_sync(); /* until here others may arrive at this CTA's barriers */
#endif
}

template <typename format, typename tile, int n_blocks>
constexpr strip_prefill_instance make_instance(uint8_t i_tile)
{
    return {strip_prefill<format, tile, n_blocks>,
            tile::bytes + shared_align,
            tile::n_threads,
            tile::n_x / n_cluster / tile::n_boxes,
            format::wide::is_bf16 ? DTYPE_BF16 : DTYPE_F16,
            static_cast<uint8_t>(format::bits),
            format::scaling,
            n_blocks == 0 ? 0 : 8 / n_blocks,
            i_tile};
}

/* As in strip_prefill_tiles. */
using exact_0 = tile_shape<2, 192>;
using exact_1 = tile_shape<2, 128>;
using exact_2 = tile_shape<1, 128>;
using rounded_4 = tile_shape<2, 256, true>;
using rounded_5 = tile_shape<2, 192, true>;
using rounded_6 = tile_shape<1, 64>;
using rounded_7 = tile_shape<1, 128>;
using rounded_8 = tile_shape<1, 192>;
using rounded_9 = tile_shape<1, 256>;

/* Groups of 128, 64 and 32. */
#define EXACT(format, tile, i_tile)                                                                \
    make_instance<format, tile, 4>(i_tile), make_instance<format, tile, 2>(i_tile),                \
        make_instance<format, tile, 1>(i_tile)

#define STRIP_PREFILL_EXACT(format)                                                                \
    EXACT(format, exact_0, 0), EXACT(format, exact_1, 1), EXACT(format, exact_2, 2)
#define STRIP_PREFILL_ROUNDED(format)                                                              \
    make_instance<format, rounded_4, 0>(4), make_instance<format, rounded_5, 0>(5),                \
        make_instance<format, rounded_6, 0>(6), make_instance<format, rounded_7, 0>(7),            \
        make_instance<format, rounded_8, 0>(8), make_instance<format, rounded_9, 0>(9)

} // namespace
