/* w8a8_prefill.cu - y = x W^T (+ bias) with 8-bit operands on Hopper (sm_90a), for more rows of x
 * than w8a8_gemm.cu takes, with its bits.
 *
 * Tiles. A CTA makes tiles of 128 rows of W by 128 or 256 of x, along all of k. They are dealt out
 * in turn, those of the same rows of W one after another. That two CTAs share what they read of x,
 * a cluster, was tried and gained nothing.
 *
 * Warps. Two warpgroups multiply, 64 rows of W each; while one adds a chain to its totals, the
 * tensor cores run the other's. One thread of a third warpgroup starts all copies; its registers go
 * to the others.
 *
 * Registers. Totals of 64 x 256 take 128 of a thread's registers, so a chain (one block of 128 k,
 * see w8a8_gemm.cu) is of 64 x 128: the two halves of x take turns.
 *
 * Shared memory: n_stages x (W: 16 KiB; x: 32 KiB and its scales), two barriers a stage. */
#include <cuda_runtime.h>

#include "kernels/cuda/w8a8.h"
#include "kernels/cuda/w8a8_finish.cuh"
#include "kernels/layout/swizzle.h"

namespace {

constexpr uint32_t tile_n = 128;
constexpr uint32_t half_m = W8A8_PREFILL_ROWS;
constexpr uint32_t n_consumer_warps = 8;
constexpr uint32_t n_threads = 384;
constexpr uint32_t w_bytes = tile_n * SWIZZLE_K;
constexpr uint32_t half_bytes = half_m * SWIZZLE_K;
constexpr uint32_t half_scales_bytes = half_m * sizeof(float);
constexpr uint32_t n_stages = 4;

struct shared_stage {
    static constexpr uint32_t w = 0;
    static constexpr uint32_t x = w_bytes;
    static constexpr uint32_t bytes = w_bytes + 2 * half_bytes;
};

struct shared_map {
    static constexpr uint32_t scales = n_stages * shared_stage::bytes; /* of x, a stage */
    static constexpr uint32_t full = scales + n_stages * 2 * half_scales_bytes;
    static constexpr uint32_t empty = full + 8 * n_stages;
    static constexpr uint32_t total_bytes = empty + 8 * n_stages;
};

__device__ __forceinline__ uint32_t shared_base()
{
    extern __shared__ __align__(1024) uint8_t shared[];
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

__host__ __device__ constexpr uint32_t div_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* ---- the order of tiles ------------------------------------------------------------------------
 */

/* How x is cut: tiles of n_halves x 128 rows. */
struct tiling {
    uint32_t n_halves;
    uint32_t n_m_tiles;
    uint32_t n_tiles;
};

__host__ __device__ inline tiling tiling_of(const w8a8_gemm_args &args, uint32_t n_halves)
{
    tiling cut;
    cut.n_halves = n_halves;
    cut.n_m_tiles = div_up(args.x.n_rows, n_halves * half_m);
    cut.n_tiles = cut.n_m_tiles * div_up(args.n, tile_n);
    return cut;
}

struct tile {
    uint32_t first_n;
    uint32_t first_m;
    uint32_t n_halves; /* of x that are there */
};

__device__ __forceinline__ tile tile_at(const w8a8_gemm_args &args, const tiling &cut, uint32_t i)
{
    tile at;
    at.first_n = i / cut.n_m_tiles * tile_n;
    at.first_m = i % cut.n_m_tiles * cut.n_halves * half_m;
    at.n_halves = min(cut.n_halves, (args.x.n_rows - at.first_m) / half_m);
    return at;
}

/* A place in the ring, and the parity of its phase. */
struct ring_place {
    uint32_t i;
    uint32_t parity;
};

__device__ __forceinline__ void ring_on(ring_place &place)
{
    if (++place.i == n_stages) {
        place.i = 0;
        place.parity ^= 1;
    }
}

/* ---- feeding -----------------------------------------------------------------------------------
 */

/* Rows of W that are not there are not brought: what is multiplied instead is not stored. */
__device__ __forceinline__ uint32_t w_bytes_of(const w8a8_gemm_args &args, const tile &at)
{
    uint32_t n_left = div_up(args.n, SWIZZLE_ROWS) - at.first_n / SWIZZLE_ROWS;
    return min(n_left, tile_n / SWIZZLE_ROWS) * SWIZZLE_ATOM_BYTES;
}

template <w8a8_kind kind>
__device__ __forceinline__ void copy_block(const w8a8_gemm_args &args, const tile &at,
                                           uint32_t i_block, uint32_t i_stage)
{
    constexpr uint32_t scales_bytes = kind == W8A8_FP8_GROUP ? half_scales_bytes : 0;
    uint32_t full = shared_base() + shared_map::full + 8 * i_stage;
    uint32_t stage = shared_base() + i_stage * shared_stage::bytes;
    uint32_t n_bytes = w_bytes_of(args, at);
    mbarrier_arrive_expect_tx(full, n_bytes + at.n_halves * (half_bytes + scales_bytes));
    uint64_t i_atom =
        static_cast<uint64_t>(i_block) * div_up(args.n, SWIZZLE_ROWS) + at.first_n / SWIZZLE_ROWS;
    cp_async_bulk(stage + shared_stage::w, args.codes + i_atom * SWIZZLE_ATOM_BYTES, n_bytes, full);
    const uint8_t *x = args.x.stages + static_cast<uint64_t>(i_block) * args.x.stage_bytes;
    cp_async_bulk(stage + shared_stage::x, x + at.first_m * SWIZZLE_K, at.n_halves * half_bytes,
                  full);
    if constexpr (kind == W8A8_FP8_GROUP) {
        cp_async_bulk(shared_base() + shared_map::scales + i_stage * 2 * half_scales_bytes,
                      x + args.x.n_rows * SWIZZLE_K + at.first_m * sizeof(float),
                      at.n_halves * half_scales_bytes, full);
    }
}

template <w8a8_kind kind>
__device__ __forceinline__ void feed(const w8a8_gemm_args &args, const tiling &cut)
{
    uint32_t n_k_blocks = div_up(args.k, SWIZZLE_K);
    ring_place place = {0, 0};
    griddepcontrol_wait();
    for (uint32_t i = blockIdx.x; i < cut.n_tiles; i += gridDim.x) {
        tile at = tile_at(args, cut, i);
        for (uint32_t i_block = 0; i_block < n_k_blocks; i_block++) {
            mbarrier_wait_parity(shared_base() + shared_map::empty + 8 * place.i, place.parity ^ 1);
            copy_block<kind>(args, at, i_block, place.i);
            ring_on(place);
        }
    }
}

/* ---- multiplying -------------------------------------------------------------------------------
 */

template <w8a8_kind kind> struct fragment {
    typename traits<kind>::element::sum values[half_m / 2];
};

struct consumer {
    uint32_t lane;
    uint32_t warp;
    ring_place place;
};

template <w8a8_kind kind>
__device__ __forceinline__ void multiply_half(const consumer &at, uint32_t i_half, bool is_sum,
                                              fragment<kind> &sums)
{
    using multiplier = wgmma8<typename traits<kind>::element, half_m>;
    uint32_t stage = shared_base() + at.place.i * shared_stage::bytes;
    uint64_t a = wgmma8_descriptor(stage + shared_stage::w + at.warp / 4 * 64 * SWIZZLE_K,
                                   SWIZZLE_ATOM_BYTES);
    uint64_t b =
        wgmma8_descriptor(stage + shared_stage::x + i_half * half_bytes, SWIZZLE_ATOM_BYTES);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        multiplier::multiply(sums.values, a + 2 * i, b + 2 * i, i > 0 || is_sum);
    }
    wgmma_commit();
}

/* Adds a chain to the totals of its half. */
template <w8a8_kind kind>
__device__ __forceinline__ void add_half(const consumer &at, uint32_t i_half, float scale,
                                         const fragment<kind> &chain, fragment<kind> &total)
{
    if constexpr (kind == W8A8_FP8_GROUP) {
        uint32_t scales = shared_base() + shared_map::scales +
                          (at.place.i * 2 + i_half) * half_scales_bytes + at.lane % 4 * 8;
#pragma unroll
        for (uint32_t j = 0; j < half_m / 8; j++) {
            uint2 pair = ld_shared_v2(scales + j * 32);
            float even = __uint_as_float(pair.x) * scale, odd = __uint_as_float(pair.y) * scale;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t i = 4 * j + 2 * h;
                total.values[i] = fmaf(chain.values[i], even, total.values[i]);
                total.values[i + 1] = fmaf(chain.values[i + 1], odd, total.values[i + 1]);
            }
        }
    } else {
#pragma unroll
        for (uint32_t i = 0; i < half_m / 2; i++) {
            total.values[i] += chain.values[i];
        }
    }
}

/* One block of k, of one half: int8 sums go on, others are a chain of their own. */
template <w8a8_kind kind>
__device__ __forceinline__ void make_half(const consumer &at, uint32_t i_half, uint32_t i_block,
                                          float scale, fragment<kind> &total)
{
    if constexpr (kind == W8A8_INT8) {
        multiply_half<kind>(at, i_half, i_block > 0, total);
        wgmma_wait<0>();
        wgmma_changed(total.values);
    } else {
        fragment<kind> chain;
        multiply_half<kind>(at, i_half, false, chain);
        wgmma_wait<0>();
        wgmma_changed(chain.values);
        add_half<kind>(at, i_half, scale, chain, total);
    }
}

/* The scale of the tile's rows for a block of k: tiles never straddle two. */
template <w8a8_kind kind>
__device__ __forceinline__ float block_scale(const w8a8_gemm_args &args, const tile &at,
                                             uint32_t i_block)
{
    if constexpr (kind != W8A8_FP8_GROUP) {
        return 1.0f;
    }
    uint32_t i_column = at.first_n / args.group_n;
    uint32_t i_row = min(i_block, div_up(args.k, SWIZZLE_K) - 1);
    return load(args.scales, static_cast<dtype>(args.scale_dtype),
                static_cast<uint64_t>(i_row) * args.scale_columns + i_column);
}

template <w8a8_kind kind>
__device__ __forceinline__ void store_half(const w8a8_gemm_args &args, const consumer &at,
                                           uint32_t first_n, uint32_t first_m,
                                           const fragment<kind> &total)
{
    uint32_t upper = first_n + at.warp * 16 + at.lane / 4;
    const column columns[2] = {column_of<kind>(args, min(upper, args.n - 1)),
                               column_of<kind>(args, min(upper + 8, args.n - 1))};
    store_sums<kind, half_m>(args, columns, numbers_of(args.x),
                             {upper, args.n, first_m + at.lane % 4 * 2}, total.values);
}

template <w8a8_kind kind> __device__ __forceinline__ void release(consumer &at)
{
    __syncwarp();
    if (at.lane == 0) {
        mbarrier_arrive(shared_base() + shared_map::empty + 8 * at.place.i);
    }
    ring_on(at.place);
}

template <w8a8_kind kind>
__device__ __forceinline__ void consume(const w8a8_gemm_args &args, const tiling &cut)
{
    uint32_t n_k_blocks = div_up(args.k, SWIZZLE_K);
    consumer at = {threadIdx.x % 32, threadIdx.x / 32, {0, 0}};
    for (uint32_t i = blockIdx.x; i < cut.n_tiles; i += gridDim.x) {
        tile tile = tile_at(args, cut, i);
        fragment<kind> totals[2] = {};
        float scale = block_scale<kind>(args, tile, 0);
        for (uint32_t i_block = 0; i_block < n_k_blocks; i_block++) {
            float next_scale = block_scale<kind>(args, tile, i_block + 1);
            mbarrier_wait_parity(shared_base() + shared_map::full + 8 * at.place.i,
                                 at.place.parity);
            make_half<kind>(at, 0, i_block, scale, totals[0]);
            if (tile.n_halves == 2) {
                make_half<kind>(at, 1, i_block, scale, totals[1]);
            }
            release<kind>(at);
            scale = next_scale;
        }
        store_half<kind>(args, at, tile.first_n, tile.first_m, totals[0]);
        if (tile.n_halves == 2) {
            store_half<kind>(args, at, tile.first_n, tile.first_m + half_m, totals[1]);
        }
    }
}

template <w8a8_kind kind>
__global__ void __launch_bounds__(n_threads, 1)
    w8a8_prefill(const __grid_constant__ w8a8_gemm_args args, const tiling cut)
{
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < n_stages; i++) {
            mbarrier_init(shared_base() + shared_map::full + 8 * i, 1);
            mbarrier_init(shared_base() + shared_map::empty + 8 * i, n_consumer_warps);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    griddepcontrol_launch_dependents();
    if (threadIdx.x >= 32 * n_consumer_warps) {
        setmaxnreg_dec<40>();
        if (threadIdx.x == 32 * n_consumer_warps) {
            feed<kind>(args, cut);
        }
    } else {
        setmaxnreg_inc<232>();
        griddepcontrol_wait(); /* scales of x are read here */
        consume<kind>(args, cut);
    }
}

/* ---- launching ---------------------------------------------------------------------------------
 */

using kernel_function = void (*)(w8a8_gemm_args, tiling);

const kernel_function functions[W8A8_N_KINDS] = {
    w8a8_prefill<W8A8_FP8>, w8a8_prefill<W8A8_FP8_GROUP>, w8a8_prefill<W8A8_INT8>};

constexpr int n_devices_max = 64;
uint32_t n_sms_of_device[n_devices_max];

/* The cut that keeps the busiest SM busy for the shortest time: large tiles read less, small ones
 * divide the work more evenly. */
tiling choose_tiling(const w8a8_gemm_args &args, uint32_t n_sms)
{
    tiling small = tiling_of(args, 1), large = tiling_of(args, 2);
    uint32_t small_cost = div_up(small.n_tiles, n_sms) * 9;
    uint32_t large_cost = div_up(large.n_tiles, n_sms) * 16;
    return small_cost < large_cost ? small : large;
}

} // namespace

int w8a8_prefill_load(void)
{
    int device = 0, n_sms = 0;
    cudaError_t r = cudaGetDevice(&device);
    if (r == cudaSuccess) {
        r = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    }
    if (r == cudaSuccess && device >= n_devices_max) {
        r = cudaErrorInvalidDevice;
    }
    for (kernel_function function : functions) {
        if (r == cudaSuccess) {
            r = cudaFuncSetAttribute(reinterpret_cast<const void *>(function),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     shared_map::total_bytes);
        }
    }
    if (r == cudaSuccess) {
        n_sms_of_device[device] = static_cast<uint32_t>(n_sms);
    }
    return r;
}

int w8a8_prefill_enqueue(struct w8a8_gemm_args *args, bool may_overlap, void *stream)
{
    int device;
    cudaError_t r = cudaGetDevice(&device);
    if (r != cudaSuccess) {
        return r;
    }
    uint32_t n_sms = n_sms_of_device[device];
    tiling cut = choose_tiling(*args, n_sms);
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = may_overlap ? 1 : 0;
    cudaLaunchConfig_t config = {};
    config.gridDim = cut.n_tiles < n_sms ? cut.n_tiles : n_sms;
    config.blockDim = n_threads;
    config.dynamicSmemBytes = shared_map::total_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &overlap;
    config.numAttrs = 1;
    void *parameters[] = {args, &cut};
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(functions[args->kind]),
                               parameters);
}
