/* strip_wide.cu - weight-only integer GEMM for up to 64 rows of x on Hopper (sm_90a), with the bits
 * of strip_gemm.cu.
 *
 *   y[i, j] = sum_g scale[j, g] * sum_{k in g} x[i, k] * (code[j, k] - zero[j, g])
 *
 * Two launches. The first lays x out as wgmma wants it in shared memory: for each slice of 256 k a
 * tile of four blocks of 64 k, rows of 128 bytes swizzled by 128, k permuted within blocks of 32 as
 * the weight's layout has it (strip.h), and behind them the sums over x that each group starts
 * from. Permutation, misaligned rows and ragged ends of x are over with here.
 *
 * The second multiplies. A warpgroup has 64 rows of W, a strip a warp: the words of the layout are
 * A fragments of wgmma just as they are of mma.sync, dequantised in registers. B is the tile of x,
 * which all warpgroups of a CTA share.
 *
 * Warps. One to four warpgroups multiply; each lane feeds itself with weights by cp.async as in
 * strip_gemm.cu. One further warp copies tiles of x, a bulk copy each, ahead of all: full barriers
 * count its bytes, empty ones the warps that are done with a tile.
 *
 * Sums. A group's chain starts from -(offset + zero) * sum(x); s = fma(chain, scale, s); slices
 * that strip_gemm.cu gives to one warp follow one another, then their sum is added to the total. So
 * k is walked in the order (slice mod 16, slice / 16), and every bit is that of strip_gemm.cu.
 *
 * Shared memory: n_x_stages tiles of x (rows of x x 512 bytes and the sums, 1 KiB aligned), then
 * n_stages x warp x (codes + scales + zeros), then the barriers. */
#include <cuda_runtime.h>

#include "kernels/cuda/strip_wide.h"
#include "kernels/cuda/strip_x.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace {

constexpr int n_x_stages = 3;
constexpr int n_groups = 2; /* of 128 in a slice: the only size this kernel takes */
constexpr uint32_t row_bytes = STRIP_UNIT_K * 2;

/* A tile of x: the blocks, then (n_groups, n_rows) f32 sums. */
__host__ __device__ constexpr uint32_t tile_sums_offset(uint32_t n_rows)
{
    return n_units * n_rows * row_bytes;
}

__host__ __device__ constexpr uint32_t tile_bytes(uint32_t n_rows)
{
    return tile_sums_offset(n_rows) + n_groups * n_rows * static_cast<uint32_t>(sizeof(float));
}

__host__ __device__ constexpr uint32_t tile_stride(uint32_t n_rows)
{
    return (tile_bytes(n_rows) + 1023) / 1024 * 1024;
}

/* Rows of x a tile has: what wgmma is compiled for. */
uint32_t tile_rows(uint32_t m)
{
    return m <= 16 ? 16 : m <= 32 ? 32 : 64;
}

/* ---- laying x out ------------------------------------------------------------------------------
 */

/* A warp has 8 rows of x and a slice: the B fragments of mma.sync are what goes side by side. */
template <typename traits, bool has_zeros>
__global__ void __launch_bounds__(256) lay_out_x(const __grid_constant__ strip_wide_args args)
{
    warp_id id = this_warp();
    uint32_t i_slice = blockIdx.x;
    uint32_t n_rows = id.n_warps * 8;
    uint8_t *tile = args.x_tiles + static_cast<uint64_t>(i_slice) * tile_stride(n_rows);
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    x_slice<n_groups> x;
    uint32_t i_row = 8 * id.warp + id.g;
    const void *row = i_row < args.m ? args.rows.x[i_row] : nullptr;
    load_fragments(args.base, id, i_slice, row, x);
    sum_groups<traits, n_groups, has_zeros>(x);
#pragma unroll
    for (int i = 0; i < n_tiles_k; i++) {
        uint8_t *block = tile + i / 4 * n_rows * row_bytes + i_row * row_bytes;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t chunk = (i % 4 * 2 + half) ^ id.g;
            *reinterpret_cast<uint32_t *>(block + chunk * 16 + id.t * 4) = x.fragments[i][half];
        }
    }
    if (id.g == 0) {
        float *sums = reinterpret_cast<float *>(tile + tile_sums_offset(n_rows));
#pragma unroll
        for (int i_group = 0; i_group < n_groups; i_group++) {
            float *pair = sums + i_group * n_rows + 8 * id.warp + 2 * id.t;
            pair[0] = x.starts[i_group][0];
            pair[1] = x.starts[i_group][1];
        }
    }
}

/* ---- the order of slices -----------------------------------------------------------------------
 */

/* Slice i of every step, then slice i + 1 of every step: i is the warp of strip_gemm.cu. */
struct slice_walk {
    uint32_t i;
    uint32_t i_step;
};

__device__ __forceinline__ uint32_t slice_of(const slice_walk &walk)
{
    return walk.i_step * STRIP_STEP_SLICES + walk.i;
}

/* True when that was the last slice of its i. */
__device__ __forceinline__ bool walk_on(const strip_args &args, slice_walk &walk)
{
    walk.i_step++;
    if (slice_of(walk) < args.n_slices) {
        return false;
    }
    walk.i_step = 0;
    walk.i++;
    return true;
}

__device__ __forceinline__ bool is_walk_over(const strip_args &args, const slice_walk &walk)
{
    return walk.i >= STRIP_STEP_SLICES || walk.i >= args.n_slices;
}

/* ---- the barriers ------------------------------------------------------------------------------
 */

/* A place in a ring of n_x_stages, and the parity of its phase. */
struct ring_place {
    uint32_t i;
    uint32_t parity;
};

__device__ __forceinline__ void ring_on(ring_place &place)
{
    if (++place.i == n_x_stages) {
        place.i = 0;
        place.parity ^= 1;
    }
}

struct shared_map {
    uint32_t x;       /* the tiles */
    uint32_t weights; /* the stages */
    uint32_t full;    /* n_x_stages barriers */
    uint32_t empty;
};

template <int n_rows, bool has_zeros>
__device__ __forceinline__ shared_map map_shared(uint32_t n_warps)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    uint32_t x = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    uint32_t weights = x + n_x_stages * tile_stride(n_rows);
    uint32_t full = weights + n_stages * n_warps * sizes<n_groups, has_zeros>::stage;
    return {x, weights, full, full + n_x_stages * 8};
}

/* One thread: copy the tiles of x, as often as the CTA has tiles of y. */
template <int n_rows>
__device__ __forceinline__ void feed_x(const strip_wide_args &args, const shared_map &map)
{
    griddepcontrol_wait();
    ring_place place = {0, 0};
    for (uint32_t i_tile = blockIdx.x; i_tile < args.n_tiles; i_tile += gridDim.x) {
        for (slice_walk walk = {0, 0}; !is_walk_over(args.base, walk); walk_on(args.base, walk)) {
            mbarrier_wait_parity(map.empty + 8 * place.i, place.parity ^ 1);
            mbarrier_arrive_expect_tx(map.full + 8 * place.i, tile_bytes(n_rows));
            cp_async_bulk(map.x + place.i * tile_stride(n_rows),
                          args.x_tiles +
                              static_cast<uint64_t>(slice_of(walk)) * tile_stride(n_rows),
                          tile_bytes(n_rows), map.full + 8 * place.i);
            ring_on(place);
        }
    }
}

/* ---- multiplying -------------------------------------------------------------------------------
 */

/* The feed of one warp: its strip in every tile of the CTA, slices in the order of the walk. */
struct cursor {
    uint32_t i_tile;
    slice_walk walk;
};

__device__ __forceinline__ uint32_t strip_of(const strip_wide_args &args, const warp_id &id,
                                             uint32_t i_tile)
{
    return i_tile * 4 * args.n_warpgroups + id.warp;
}

/* The next slice into a stage; strips beyond the weight's copy nothing. */
template <bool has_zeros>
__device__ __forceinline__ void fetch(const strip_wide_args &args, const warp_id &id, cursor &at,
                                      uint32_t stage)
{
    uint32_t i_strip = strip_of(args, id, at.i_tile);
    if (at.i_tile < args.n_tiles) {
        if (i_strip < args.base.n_strips) {
            slice_source from =
                source_of<n_groups, has_zeros>(args.base, id, i_strip, at.walk.i_step, at.walk.i);
            copy_slice<n_groups, has_zeros>(from, id, stage);
        }
        walk_on(args.base, at.walk);
        if (is_walk_over(args.base, at.walk)) {
            at.walk = {0, 0};
            at.i_tile += gridDim.x;
        }
    }
    cp_async_commit();
}

/* A chain's first value: columns 2t and 2t + 1 of each block of 8 rows of x. */
template <int n_rows, bool has_zeros>
__device__ __forceinline__ void start_chain(uint32_t sums, const warp_id &id, const float2 &offsets,
                                            float (&acc)[n_rows / 2])
{
#pragma unroll
    for (int i = 0; i < n_rows / 8; i++) {
        uint2 pair = ld_shared_v2(sums + i * 32 + id.t * 8);
        float a = __uint_as_float(pair.x);
        float b = __uint_as_float(pair.y);
        acc[4 * i] = has_zeros ? offsets.x * a : a;
        acc[4 * i + 1] = has_zeros ? offsets.x * b : b;
        acc[4 * i + 2] = has_zeros ? offsets.y * a : a;
        acc[4 * i + 3] = has_zeros ? offsets.y * b : b;
    }
}

template <typename traits, int n_rows, bool has_zeros>
__device__ __forceinline__ void multiply_slice(const strip_wide_args &args, const warp_id &id,
                                               uint32_t stage, uint32_t x,
                                               float (&sums)[n_rows / 2])
{
    bool is_bf16 = args.base.scale_dtype == DTYPE_BF16;
    uint32_t pairs[n_groups];
    read_scales<n_groups>(scales_of<n_groups>(stage, id), pairs);
    constexpr int n_group_units = n_units / n_groups;
#pragma unroll
    for (int i_group = 0; i_group < n_groups; i_group++) {
        float2 offsets = make_float2(0, 0);
        if constexpr (has_zeros) {
            offsets = read_offsets<traits>(zeros_of<n_groups>(stage, id), i_group);
        }
        float acc[n_rows / 2];
        start_chain<n_rows, has_zeros>(x + tile_sums_offset(n_rows) + i_group * n_rows * 4, id,
                                       offsets, acc);
        uint32_t a[n_group_units][4][4];
#pragma unroll
        for (int i = 0; i < n_group_units; i++) {
            int i_unit = i_group * n_group_units + i;
            uint4 v = ld_shared_v4(stage + i_unit * STRIP_UNIT_BYTES);
            const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                dequant<traits>(words[j], a[i][j]);
            }
            wgmma_fence();
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint64_t b = wgmma_descriptor(x + i_unit * n_rows * row_bytes + j * 32);
                wgmma<typename traits::wgmma_element, n_rows>::multiply(acc, a[i][j], b);
            }
            wgmma_commit();
        }
        wgmma_wait<0>();
        float2 scales = widen_pair(pairs[i_group], is_bf16);
#pragma unroll
        for (int i = 0; i < n_rows / 2; i++) {
            sums[i] = fmaf(acc[i], i % 4 < 2 ? scales.x : scales.y, sums[i]);
        }
    }
}

template <typename traits, int n_rows>
__device__ __forceinline__ void store_tile(const strip_wide_args &args, const warp_id &id,
                                           uint32_t i_strip, const float (&totals)[n_rows / 2])
{
    uint32_t i_n = i_strip * STRIP_N + id.g;
#pragma unroll
    for (int i = 0; i < n_rows / 8; i++) {
        uint32_t i_m = 8 * i + 2 * id.t;
        store_y<traits>(args.base, args.rows.y, args.m, i_n, i_m, totals[4 * i]);
        store_y<traits>(args.base, args.rows.y, args.m, i_n, i_m + 1, totals[4 * i + 1]);
        store_y<traits>(args.base, args.rows.y, args.m, i_n + 8, i_m, totals[4 * i + 2]);
        store_y<traits>(args.base, args.rows.y, args.m, i_n + 8, i_m + 1, totals[4 * i + 3]);
    }
}

/* One warp's part in all tiles of the CTA. */
template <typename traits, int n_rows, bool has_zeros>
__device__ __forceinline__ void multiply(const strip_wide_args &args, const warp_id &id,
                                         const shared_map &map)
{
    constexpr uint32_t stage_bytes = sizes<n_groups, has_zeros>::stage;
    uint32_t stages = map.weights + id.warp * n_stages * stage_bytes + id.lane * 16;
    cursor at = {blockIdx.x, {0, 0}};
    for (int i = 0; i < n_stages - 1; i++) {
        fetch<has_zeros>(args, id, at, stages + i * stage_bytes);
    }
    uint32_t i_stage = 0;
    ring_place place = {0, 0};
    for (uint32_t i_tile = blockIdx.x; i_tile < args.n_tiles; i_tile += gridDim.x) {
        float totals[n_rows / 2] = {};
        float sums[n_rows / 2] = {};
        slice_walk walk = {0, 0};
        while (!is_walk_over(args.base, walk)) {
            cp_async_wait<n_stages - 2>();
            fetch<has_zeros>(args, id, at,
                             stages + (i_stage == 0 ? n_stages - 1 : i_stage - 1) * stage_bytes);
            mbarrier_wait_parity(map.full + 8 * place.i, place.parity);
            multiply_slice<traits, n_rows, has_zeros>(args, id, stages + i_stage * stage_bytes,
                                                      map.x + place.i * tile_stride(n_rows), sums);
            if (id.lane == 0) {
                mbarrier_arrive(map.empty + 8 * place.i);
            }
            ring_on(place);
            i_stage = i_stage == n_stages - 1 ? 0 : i_stage + 1;
            if (walk_on(args.base, walk)) {
#pragma unroll
                for (int i = 0; i < n_rows / 2; i++) {
                    totals[i] += sums[i];
                    sums[i] = 0;
                }
            }
        }
        store_tile<traits, n_rows>(args, id, strip_of(args, id, i_tile), totals);
    }
}

/* Registers: four warpgroups and the feeding warp leave 112 a thread, two 224. */
template <int n_rows> constexpr uint32_t warpgroups_max = n_rows == 64 ? 2 : 4;

template <typename traits, int n_rows, bool has_zeros>
__global__ void __launch_bounds__(128 * warpgroups_max<n_rows> + 32, 1)
    strip_wide(const __grid_constant__ strip_wide_args args)
{
    warp_id id = this_warp();
    uint32_t n_multipliers = 4 * args.n_warpgroups;
    shared_map map = map_shared<n_rows, has_zeros>(n_multipliers);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < n_x_stages; i++) {
            mbarrier_init(map.full + 8 * i, 1);
            mbarrier_init(map.empty + 8 * i, n_multipliers);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    griddepcontrol_launch_dependents();
    if (id.warp < n_multipliers) {
        multiply<traits, n_rows, has_zeros>(args, id, map);
    } else if (id.lane == 0) {
        feed_x<n_rows>(args, map);
    }
}

/* ---- launching ---------------------------------------------------------------------------------
 */

using kernel_function = void (*)(strip_wide_args);

struct instance {
    uint8_t x_dtype;
    uint8_t n_rows;
    bool has_zeros;
    kernel_function lay_out;
    kernel_function multiply;
    uint32_t stage_bytes; /* of a warp */
    uint32_t n_warpgroups_max;
};

template <typename traits, int n_rows, bool has_zeros>
constexpr instance make_instance(uint8_t x_dtype)
{
    return {x_dtype,
            n_rows,
            has_zeros,
            lay_out_x<traits, has_zeros>,
            strip_wide<traits, n_rows, has_zeros>,
            sizes<n_groups, has_zeros>::stage,
            warpgroups_max<n_rows>};
}

#define INSTANCES(traits, dtype)                                                                   \
    make_instance<traits, 16, false>(dtype), make_instance<traits, 16, true>(dtype),               \
        make_instance<traits, 32, false>(dtype), make_instance<traits, 32, true>(dtype),           \
        make_instance<traits, 64, false>(dtype), make_instance<traits, 64, true>(dtype)

const instance instances[] = {INSTANCES(traits_bf16, DTYPE_BF16), INSTANCES(traits_f16, DTYPE_F16)};

const instance *find_instance(const strip_wide_args &args)
{
    for (const instance &one : instances) {
        if (one.x_dtype == args.base.x_dtype && one.n_rows == tile_rows(args.m) &&
            one.has_zeros == (args.base.has_zeros != 0)) {
            return &one;
        }
    }
    return nullptr;
}

constexpr int n_devices_max = 64;
uint32_t n_sms_of_device[n_devices_max];

uint32_t shared_bytes(const instance &one, uint32_t n_warpgroups)
{
    return n_x_stages * tile_stride(one.n_rows) + n_stages * 4 * n_warpgroups * one.stage_bytes +
           2 * n_x_stages * 8;
}

/* Warpgroups a CTA: more share a tile of x, fewer leave more CTAs. Bytes into the busiest SM
 * decide: rounds of tiles, each reading all of x and its rows of the weight. */
uint32_t choose_warpgroups(const instance &one, uint32_t n_strips, uint32_t n_sms)
{
    uint32_t best = 1;
    uint64_t best_bytes = UINT64_MAX;
    for (uint32_t n = 1; n <= one.n_warpgroups_max; n *= 2) {
        uint32_t n_tiles = (n_strips + 4 * n - 1) / (4 * n);
        uint64_t n_rounds = (n_tiles + n_sms - 1) / n_sms;
        uint64_t bytes = n_rounds * (one.n_rows * 2 * 2 + 64 * n); /* of 2 k */
        if (bytes < best_bytes) {
            best = n;
            best_bytes = bytes;
        }
    }
    return best;
}

cudaError_t launch(kernel_function function, dim3 grid, uint32_t n_threads, uint32_t shared,
                   strip_wide_args *args, bool may_overlap, void *stream)
{
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = may_overlap ? 1 : 0;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = n_threads;
    config.dynamicSmemBytes = shared;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &overlap;
    config.numAttrs = 1;
    void *parameters[] = {args};
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(function), parameters);
}

} // namespace

uint64_t strip_wide_workspace_bytes(uint32_t m, uint32_t k)
{
    return static_cast<uint64_t>((k + STRIP_SLICE_K - 1) / STRIP_SLICE_K) *
           tile_stride(tile_rows(m));
}

int strip_wide_load(void)
{
    int device = 0, n_sms = 0;
    cudaError_t r = cudaGetDevice(&device);
    if (r == cudaSuccess) {
        r = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    }
    if (r == cudaSuccess && device >= n_devices_max) {
        r = cudaErrorInvalidDevice;
    }
    for (const instance &one : instances) {
        uint32_t bytes = shared_bytes(one, one.n_warpgroups_max);
        struct cudaFuncAttributes attributes;
        if (r == cudaSuccess) {
            r = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(one.lay_out));
        }
        if (r == cudaSuccess) {
            r = cudaFuncSetAttribute(reinterpret_cast<const void *>(one.multiply),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes));
        }
    }
    if (r == cudaSuccess) {
        n_sms_of_device[device] = static_cast<uint32_t>(n_sms);
    }
    return r;
}

int strip_wide_enqueue(struct strip_wide_args *args, bool may_overlap, void *stream)
{
    int device;
    cudaError_t r = cudaGetDevice(&device);
    const instance *one = find_instance(*args);
    if (r != cudaSuccess || one == nullptr) {
        return r != cudaSuccess ? r : cudaErrorInvalidValue;
    }
    uint32_t n_sms = n_sms_of_device[device];
    args->n_warpgroups = choose_warpgroups(*one, args->base.n_strips, n_sms);
    uint32_t n_tile_strips = 4 * args->n_warpgroups;
    args->n_tiles = (args->base.n_strips + n_tile_strips - 1) / n_tile_strips;
    r = launch(one->lay_out, args->base.n_slices, one->n_rows / 8 * 32, 0, args, may_overlap,
               stream);
    if (r != cudaSuccess) {
        return r;
    }
    uint32_t n_ctas = args->n_tiles < n_sms ? args->n_tiles : n_sms;
    return launch(one->multiply, n_ctas, 128 * args->n_warpgroups + 32,
                  shared_bytes(*one, args->n_warpgroups), args, true, stream);
}
