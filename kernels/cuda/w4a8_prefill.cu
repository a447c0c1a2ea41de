/* w4a8_prefill.cu - y = x W^T (+ bias) with W in 4-bit integers and x in e4m3, for more than 64
 * rows, on Hopper (sm_90a).
 *
 * Operands. W is on the side of wgmma that has 64 rows and comes from registers: strips (strip.h)
 * hold what a lane needs of them, so a warp that multiplies widens its own codes, which never go
 * back to shared memory. x is quantised before (w8a8_x.cu) and lies as wgmma reads it, its k in the
 * order of strips.
 *
 * Tiles. Two CTAs, a cluster, have the same 256 rows of x, or fewer at the end, and 128 rows of W
 * each; each brings half of x to both. Two warpgroups multiply, and while one widens the other's
 * products are under way; a thread of a third one starts the copies of x, a warp those of W.
 *
 * Sums. A chain in the tensor core for each 128 of k, s = fma(chain, scale, s): w4a8_multiply.cuh.
 *
 * Shared memory: 5 stages of x (32 KiB), 3 of W (17 KiB), room for y, and barriers:
 * w4a8_feed.cuh. */
#include <cuda_runtime.h>

#include "kernels/cuda/device_table.cuh"
#include "kernels/cuda/div_up.cuh"
#include "kernels/cuda/sm90a.cuh"
#include "kernels/cuda/w4a8.h"
#include "kernels/cuda/w4a8_store.cuh"

namespace {

constexpr uint32_t n_threads = 32 * n_multiply_warps + 128;
constexpr uint32_t n_band_rows = 2048;

template <bool has_zeros>
__device__ __forceinline__ void consume(const w4a8_args &args, uint32_t rank)
{
    walk place = walk_from_start();
    for_units(args, rank, [&](const unit &at) {
        float total[tile_rows_max / 2] = {};
        if (at.n_rows == tile_rows_max) {
            multiply<tile_rows_max, has_zeros>(args, place, total);
        } else if (at.n_rows == tile_rows_max / 2) {
            multiply<tile_rows_max / 2, has_zeros>(args, place, total);
        } else {
            multiply<tile_rows_min, has_zeros>(args, place, total);
        }
        store_unit(args, at, total);
    });
}

__device__ __forceinline__ void produce(const w4a8_args &args, uint32_t rank)
{
    uint32_t warp = threadIdx.x / 32 - n_multiply_warps;
    if (warp == 0) {
        feed_w(args, rank); /* which does not depend on the launch before */
    } else if (warp == 1 && threadIdx.x % 32 == 0) {
        griddepcontrol_wait();
        feed_x(args, rank);
    }
    __syncwarp();
}

__device__ __forceinline__ void init_barriers()
{
    for (uint32_t i = 0; i < n_x_stages; i++) {
        mbarrier_init(shared_base() + shared_map::x_full + 8 * i, 1);
        mbarrier_init(shared_base() + shared_map::x_empty + 8 * i, n_cluster * n_multiply_warps);
    }
    for (uint32_t i = 0; i < n_w_stages; i++) {
        mbarrier_init(shared_base() + shared_map::w_full + 8 * i, 1);
        mbarrier_init(shared_base() + shared_map::w_empty + 8 * i, n_multiply_warps);
    }
    fence_mbarrier_init();
}

__global__ void __launch_bounds__(n_threads, 1) w4a8_prefill(const __grid_constant__ w4a8_args args)
{
    if (!is_sm90a) {
        return;
    }
    uint32_t rank = cluster_ctarank();
    if (threadIdx.x == 0) {
        init_barriers();
    }
    cluster_sync();
    griddepcontrol_launch_dependents();
    if (threadIdx.x >= 32 * n_multiply_warps) {
        setmaxnreg_dec<40>();
        produce(args, rank);
    } else {
        setmaxnreg_inc<232>();
        griddepcontrol_wait(); /* scales of x are read here */
        if (args.base.has_zeros) {
            consume<true>(args, rank);
        } else {
            consume<false>(args, rank);
        }
    }
    __syncwarp();
    cluster_sync(); /* the other CTA may still write to this one's shared memory */
}

/* ---- launching ---- */

device_table devices;

/* What a unit of so many rows of x costs beside others, about. Large ones widen and read less. */
uint32_t cost_of(uint32_t n_rows)
{
    return n_rows == 256 ? 32 : n_rows == 128 ? 18 : 13;
}

/* Whole tiles of that size as long as they fill rounds of clusters, then parts of them: how long
 * the busiest cluster is busy. */
uint32_t cut(w4a8_args &args, uint32_t tile_rows, uint32_t part_rows, uint32_t n_clusters)
{
    args.tile_rows = tile_rows;
    args.part_rows = part_rows;
    args.n_w_units = div_up(args.base.n_strips, n_strips * n_cluster);
    args.n_x_tiles = div_up(args.m, tile_rows);
    args.n_band_tiles = n_band_rows / tile_rows;
    uint32_t n_all = args.n_w_units * args.n_x_tiles;
    args.n_whole = part_rows == tile_rows ? n_all : n_all / n_clusters * n_clusters;
    uint32_t n_parts = (n_all - args.n_whole) * (tile_rows / part_rows);
    args.n_units = args.n_whole + n_parts;
    return div_up(args.n_whole, n_clusters) * cost_of(tile_rows) +
           div_up(n_parts, n_clusters) * cost_of(part_rows);
}

/* The cut that keeps the busiest cluster busy for the shortest time. */
void choose_cut(w4a8_args &args, uint32_t n_clusters)
{
    uint32_t best_cost = UINT32_MAX, best_tile = 0, best_part = 0;
    for (uint32_t tile_rows = tile_rows_max; tile_rows >= tile_rows_min; tile_rows /= 2) {
        for (uint32_t part_rows = tile_rows; part_rows >= tile_rows_min; part_rows /= 2) {
            uint32_t cost = cut(args, tile_rows, part_rows, n_clusters);
            if (cost < best_cost) {
                best_cost = cost;
                best_tile = tile_rows;
                best_part = part_rows;
            }
        }
    }
    (void)cut(args, best_tile, best_part, n_clusters);
}

} // namespace

int w4a8_load(void)
{
    cudaError_t r = device_table_add(devices);
    if (r == cudaSuccess) {
        r = cudaFuncSetAttribute(reinterpret_cast<const void *>(w4a8_prefill),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, shared_map::bytes);
    }
    return r;
}

int w4a8_enqueue(struct w4a8_args *args, bool may_overlap, void *stream)
{
    uint32_t n_sms = 0;
    cudaError_t r = device_table_sms(devices, &n_sms);
    if (r != cudaSuccess) {
        return r;
    }
    uint32_t n_clusters = n_sms / n_cluster;
    choose_cut(*args, n_clusters);
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = may_overlap ? 1 : 0;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {n_cluster, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = n_cluster * (args->n_units < n_clusters ? args->n_units : n_clusters);
    config.blockDim = n_threads;
    config.dynamicSmemBytes = shared_map::bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = attributes;
    config.numAttrs = 2;
    void *parameters[] = {args};
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(w4a8_prefill), parameters);
}
