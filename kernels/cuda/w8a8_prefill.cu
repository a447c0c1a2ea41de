/* w8a8_prefill.cu - y = x W^T (+ bias) with 8-bit operands on Hopper (sm_90a), for more rows of x
 * than w8a8_gemm.cu takes, with its bits.
 *
 * Operands. Here x is on the side of wgmma that has 64 rows, since there are enough of them: a
 * thread then has two rows of x, whose scales it reads once a block of k, and y comes out in rows.
 *
 * Tiles. A CTA makes tiles of 128 rows of x by 256 of W, or by 192, 128 or 64 at the end, along all
 * of k. Two CTAs, a cluster, have the same rows of W where they can, and each brings half of them
 * to both. That halves what of W is read from the L2 cache; on an H200 with nothing else to do it
 * is not seen in the time. Two CTAs that share x instead take 1.4 times as long.
 *
 * Warps. Two warpgroups multiply, 64 rows of x each. Of a third one, whose registers go to the
 * others, a thread starts the copies of W, one those of x, a warp brings what is known of the
 * columns of y, and one scales of W that change along k.
 *
 * Sums. 64 x 256 take 128 of a thread's registers, which leaves room for a chain (one block of 128
 * k, see w8a8_gemm.cu) of 64 x 128: w8a8_prefill_multiply.cuh.
 *
 * Shared memory: 4 to 8 stages x (x: 16 KiB and its scales; W: 8 to 32 KiB), room for parts of y,
 * what is known of the columns, and barriers. */
#include <cuda_runtime.h>

#include "kernels/cuda/device_table.cuh"
#include "kernels/cuda/sm90a.cuh"
#include "kernels/cuda/w8a8.h"
#include "kernels/cuda/w8a8_prefill_store.cuh"

namespace {

constexpr uint32_t n_threads = 384;

template <w8a8_kind kind, bool is_one_chain>
__device__ __forceinline__ void consume(const w8a8_gemm_args &args, const tiling &cut)
{
    consumer at = consumer_of(cut);
    uint32_t parity = 0;
    for_tiles(args, cut, [&](const tile &tile) {
        row_numbers rows = read_rows<kind>(args, tile.first_m + own_warp() * 16 + own_lane() / 4);
        fragment<kind> total = {};
        multiply<kind, is_one_chain>(args, tile, at, total);
        mbarrier_wait_parity(shared_base() + shared_map::columns_full, parity);
        store_tile<kind>(args, at, tile, rows, total);
        __syncwarp();
        if (own_lane() == 0) {
            mbarrier_arrive(shared_base() + shared_map::columns_empty);
        }
        parity ^= 1;
    });
}

template <w8a8_kind kind>
__device__ __forceinline__ void produce(const w8a8_gemm_args &args, const tiling &cut)
{
    uint32_t warp = threadIdx.x / 32 - n_consumer_warps;
    if (warp == 0 && threadIdx.x % 32 == 0) {
        /* The weight does not depend on the launch before: its copies start at once. */
        feed(args, cut, [&](const tile &at, uint32_t i_block, uint32_t i_stage) {
            copy_w(args, cut, at, i_block, i_stage);
        });
    } else if (warp == 1 && threadIdx.x % 32 == 0) {
        griddepcontrol_wait();
        feed(args, cut, [&](const tile &at, uint32_t i_block, uint32_t i_stage) {
            copy_x<kind>(args, cut, at, i_block, i_stage);
        });
    } else if (warp == 2) {
        bring_columns<kind>(args, cut);
    } else if (warp == 3 && kind == W8A8_FP8_GROUP) {
        bring_w_scales(args, cut);
    }
    __syncwarp();
}

template <w8a8_kind kind> __device__ __forceinline__ void init_barriers(const tiling &cut)
{
    constexpr uint32_t n_feeders = kind == W8A8_FP8_GROUP ? 3 : 2;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < cut.n_stages; i++) {
            mbarrier_init(shared_base() + shared_map::full + 8 * i, n_feeders);
            mbarrier_init(shared_base() + shared_map::empty + 8 * i, cut.n_ctas * n_consumer_warps);
        }
        mbarrier_init(shared_base() + shared_map::columns_full, 32);
        mbarrier_init(shared_base() + shared_map::columns_empty, n_consumer_warps);
        fence_mbarrier_init();
    }
}

/* All threads of the cluster, each behind what it did. */
__device__ __forceinline__ void meet(const tiling &cut)
{
    if (cut.n_ctas > 1) {
        cluster_sync();
    } else {
        __syncthreads();
    }
}

template <w8a8_kind kind, bool is_one_chain>
__global__ void __launch_bounds__(n_threads, 1)
    w8a8_prefill(const __grid_constant__ w8a8_gemm_args args, const tiling cut)
{
    if (!is_sm90a) {
        return;
    }
    init_barriers<kind>(cut);
    meet(cut);
    griddepcontrol_launch_dependents();
    if (threadIdx.x >= 32 * n_consumer_warps) {
        setmaxnreg_dec<40>();
        produce<kind>(args, cut);
    } else {
        setmaxnreg_inc<232>();
        griddepcontrol_wait(); /* scales of x are read here */
        consume<kind, is_one_chain>(args, cut);
    }
    __syncwarp();
    if (cut.n_ctas > 1) {
        cluster_sync(); /* the other CTA may still write to this one's shared memory */
    }
}

/* ---- launching ---- */

using kernel_function = void (*)(w8a8_gemm_args, tiling);

/* By kind, and e4m3 in one chain. */
const kernel_function functions[W8A8_N_KINDS + 1] = {
    w8a8_prefill<W8A8_FP8, false>, w8a8_prefill<W8A8_FP8_GROUP, false>,
    w8a8_prefill<W8A8_INT8, true>, w8a8_prefill<W8A8_FP8, true>};

device_table devices;

/* e4m3 in one chain. */
bool is_fast(const w8a8_gemm_args &args)
{
    return args.kind == W8A8_FP8 && args.is_fast;
}

/* What a tile of so many columns costs: seen on an H200. Large ones read less. */
struct width {
    uint32_t n_columns, cost;
};

constexpr width widths[] = {{quarter_n, 13}, {half_n, 18}, {3 * quarter_n, 25}};
constexpr uint32_t large_cost = 32;

bool has_width(const w8a8_gemm_args &args, uint32_t n_columns)
{
    return n_columns == half_n || !is_fast(args);
}

/* How many of n parts, dealt in turn, cluster i_cluster gets. */
uint32_t n_dealt(uint32_t n, uint32_t i_cluster, uint32_t n_clusters)
{
    return n > i_cluster ? div_up(n - i_cluster, n_clusters) : 0;
}

/* How long the busiest cluster is busy: it is the first one, or the first that gets a large part
 * less. */
uint32_t cost_of(const tiling &cut, uint32_t n_clusters, uint32_t rest_cost)
{
    uint32_t most = 0;
    for (uint32_t i : {0u, cut.n_large % n_clusters}) {
        uint32_t n_large = n_dealt(cut.n_large, i, n_clusters);
        uint32_t n_rest = n_dealt(cut.n_parts, i, n_clusters) - n_large;
        uint32_t cost = large_cost * n_large + rest_cost * n_rest;
        most = cost > most ? cost : most;
    }
    return most;
}

/* With large tiles for the first large_n columns. */
void cut_at(tiling &cut, uint32_t n, uint32_t large_n, uint32_t rest_n)
{
    uint32_t rest = n > large_n ? n - large_n : 0;
    cut.large_n = large_n;
    cut.rest_n = rest_n;
    cut.n_large = cut.n_m_parts * (large_n / n_columns_max);
    cut.n_parts = cut.n_large + cut.n_m_parts * div_up(rest, rest_n);
}

/* The cut that keeps the busiest SM busy for the shortest time, with a number of rounds of large
 * tiles, and what is left by the width that suits it. */
tiling choose_tiling(const w8a8_gemm_args &args, uint32_t n_sms)
{
    uint32_t n_m_tiles = args.x.n_rows / tile_m;
    tiling cut = {}, best = {};
    cut.n_ctas = n_m_tiles % 2 == 0 ? 2 : 1;
    cut.n_m_parts = n_m_tiles / cut.n_ctas;
    uint32_t n_clusters = n_sms / cut.n_ctas, best_cost = UINT32_MAX;
    uint32_t n_large_all = div_up(args.n, n_columns_max);
    for (uint32_t n_rounds = 0, n_large = 0; n_large < n_large_all; n_rounds++) {
        n_large = n_rounds * n_clusters / cut.n_m_parts;
        n_large = n_large < n_large_all ? n_large : n_large_all;
        for (const width &rest : widths) {
            cut_at(cut, args.n, n_large * n_columns_max, rest.n_columns);
            uint32_t cost = cost_of(cut, n_clusters, rest.cost);
            if (has_width(args, rest.n_columns) && cost <= best_cost) {
                best_cost = cost;
                best = cut;
            }
        }
    }
    uint32_t n_columns = best.n_large > 0 ? n_columns_max : best.rest_n;
    best.stage_bytes = x_bytes + n_columns * SWIZZLE_K;
    best.n_stages = stages_bytes / best.stage_bytes;
    return best;
}

} // namespace

int w8a8_prefill_load(void)
{
    cudaError_t r = device_table_add(devices);
    for (kernel_function function : functions) {
        if (r == cudaSuccess) {
            r = cudaFuncSetAttribute(reinterpret_cast<const void *>(function),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     shared_map::total_bytes);
        }
    }
    return r;
}

int w8a8_prefill_enqueue(struct w8a8_gemm_args *args, bool may_overlap, void *stream)
{
    uint32_t n_sms = 0;
    cudaError_t r = device_table_sms(devices, &n_sms);
    if (r != cudaSuccess) {
        return r;
    }
    tiling cut = choose_tiling(*args, n_sms);
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = may_overlap ? 1 : 0;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {cut.n_ctas, 1, 1};
    cudaLaunchConfig_t config = {};
    uint32_t n_clusters = n_sms / cut.n_ctas;
    config.gridDim = cut.n_ctas * (cut.n_parts < n_clusters ? cut.n_parts : n_clusters);
    config.blockDim = n_threads;
    config.dynamicSmemBytes = shared_map::total_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = attributes;
    config.numAttrs = 2;
    void *parameters[] = {args, &cut};
    kernel_function function =
        functions[is_fast(*args) ? static_cast<uint32_t>(W8A8_N_KINDS) : args->kind];
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(function), parameters);
}
