/* strip_prefill_kernel.cuh - the kernel of strip_prefill.cu that has weights in registers. Two
 * warpgroups multiply; of a third one, one warp feeds x, one W (strip_prefill_feed.cuh). */
#pragma once

#include "kernels/cuda/strip_prefill_instance.h"
#include "kernels/cuda/strip_prefill_store.cuh"

namespace {

constexpr uint32_t n_threads = strip_prefill_threads;

template <typename tile> __device__ __forceinline__ void make_barriers(uint32_t base)
{
    for (uint32_t i = 0; i < tile::n_x_stages; i++) {
        mbarrier_init(base + tile::x_full + 8 * i, 1);
        mbarrier_init(base + tile::x_empty + 8 * i, n_consumer_warps * n_cluster);
    }
    for (uint32_t i = 0; i < n_w_stages; i++) {
        mbarrier_init(base + tile::w_full + 8 * i, 1);
        mbarrier_init(base + tile::w_empty + 8 * i, n_consumer_warps);
    }
    fence_mbarrier_init();
}

template <typename wide, int bits, typename tile, int n_blocks>
__device__ __forceinline__ void consume(const strip_prefill_args &args, uint32_t base,
                                        uint32_t rank)
{
    walk<tile> at = {};
    at.zeros[0] = at.zeros[1] = base_zero_of<wide, bits>(1u << (bits - 1));
    for (uint32_t i = blockIdx.x / n_cluster; i < args.n_units; i += gridDim.x / n_cluster) {
        tile_place place = place_of(args, i, rank);
        float sums[tile::n / 2] = {};
        if constexpr (n_blocks == 0) {
            multiply_rounded<wide, bits>(args, base, at, sums);
        } else {
            multiply_tile<wide, bits, tile, n_blocks>(args, base, at, sums);
        }
        y_part part;
        part.warpgroup_n = place.i_w * tile::n_strips * STRIP_N + this_strip<tile>() / 4 * 64;
        part.first_n = part.warpgroup_n + this_strip<tile>() % 4 * STRIP_N;
        part.first_m = place.i_x * tile::n_x + this_first_x<tile>();
        store_tile<tile>(args, base, part, sums);
    }
}

template <typename wide, int bits, typename tile, int n_blocks>
__global__ void __launch_bounds__(n_threads, 1)
    strip_prefill(const __grid_constant__ strip_prefill_args args,
                  const __grid_constant__ CUtensorMap x_map)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ uint8_t shared[];
    uint32_t base = (static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + shared_align - 1) /
                    shared_align * shared_align;
    uint32_t rank = cluster_ctarank();
    if (threadIdx.x == 0) {
        make_barriers<tile>(base);
    }
    __syncthreads();
    cluster_sync();
    uint32_t warp = threadIdx.x / 32;
    if (warp >= n_consumer_warps) {
        setmaxnreg_dec<24>();
        if (warp == n_consumer_warps && threadIdx.x % 32 == 0) {
            feed_x<tile>(args, x_map, base, rank);
        } else if (warp == n_consumer_warps + 1) {
            feed_w<tile, bits>(args, base, rank);
        }
    } else {
        setmaxnreg_inc<240>();
        consume<wide, bits, tile, n_blocks>(args, base, rank);
    }
    __syncwarp();
    cluster_sync(); /* until here others may arrive at this CTA's barriers */
#endif
}

template <typename wide, int bits, typename tile, int n_blocks>
constexpr strip_prefill_instance make_instance(uint8_t x_dtype, uint8_t i_tile)
{
    return {strip_prefill<wide, bits, tile, n_blocks>,
            tile::bytes + shared_align,
            n_threads,
            tile::n_x / n_cluster,
            x_dtype,
            static_cast<uint8_t>(bits),
            STRIP_SCALES_PAIRS,
            n_blocks == 0 ? 0 : 8 / n_blocks,
            i_tile};
}

/* Groups of 128, 64 and 32. */
#define EXACT(wide, bits, tile, dtype, i_tile)                                                     \
    make_instance<wide, bits, tile, 4>(dtype, i_tile),                                             \
        make_instance<wide, bits, tile, 2>(dtype, i_tile),                                         \
        make_instance<wide, bits, tile, 1>(dtype, i_tile)

/* As in strip_prefill_tiles. */
using exact_0 = tile_shape<2, 192>;
using exact_1 = tile_shape<2, 128>;
using exact_2 = tile_shape<1, 64>;
using rounded_0 = tile_shape<2, 256>;
using rounded_1 = tile_shape<2, 128>;
using rounded_2 = tile_shape<1, 64>;

#define STRIP_PREFILL_INSTANCES(wide, bits, dtype)                                                 \
    EXACT(wide, bits, exact_0, dtype, 0), EXACT(wide, bits, exact_1, dtype, 1),                    \
        EXACT(wide, bits, exact_2, dtype, 2), make_instance<wide, bits, rounded_0, 0>(dtype, 4),   \
        make_instance<wide, bits, rounded_1, 0>(dtype, 5),                                         \
        make_instance<wide, bits, rounded_2, 0>(dtype, 6)

} // namespace
