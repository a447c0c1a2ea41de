/* w8a8_gemm.cu - y = x W^T (+ bias) with 8-bit operands on Hopper (sm_90a), for up to 64 rows of x.
 *
 *   e4m3:  y[i, j] = x_scale[i] scale[j] sum_b f32( sum_{k in b} x[i, k] w[j, k] )
 *   group: y[i, j] = sum_b x_scale[i, b] scale[j, b] f32( sum_{k in b} x[i, k] w[j, k] )
 *   int8:  y[i, j] = x_scale[i] scale[j] f32( sum_k (x[i, k] - x_zero[i]) (w[j, k] - zero[j]) )
 *
 * b: the blocks of 128 k, ascending.
 *
 * Operands. The weight is on the side of wgmma that has 64 rows, x on the side that has as many as
 * there are: a warpgroup has 64 rows of W and all of x, and both come to shared memory as they lie
 * in memory (swizzle.h).
 *
 * Work. Such a product is as fast as the weight can be read. A CTA has a run of rows of W, any
 * multiple of 8 up to 256, such that there is one run for each SM, and goes along all of k: no sums
 * are split, so there is nothing to meet, to lock or to order. The price is that a warpgroup whose
 * 64 rows are not all there multiplies what is thrown away; the tensor cores are idle for most of
 * the time as it is. The alternative, tiles of 64 rows by parts of k, needs a second launch to add
 * up the parts.
 *
 * Feed. One warp of its own keeps all of shared memory filled with copies (w8a8_feed.cuh). Since
 * the weight does not depend on any launch, that begins before the launch before has ended.
 *
 * Sums. The tensor core sums e4m3 products with about 14 bits, so a chain is one block of 128 k, to
 * be added to the total in f32; one chain is under way while the one before is added. int32 sums
 * are exact, and are all one chain. */
#include <cuda_runtime.h>

#include "kernels/cuda/any_values.cuh"
#include "kernels/cuda/w8a8.h"
#include "kernels/cuda/w8a8_feed.cuh"
#include "kernels/cuda/wgmma8.cuh"

namespace {

template <w8a8_kind kind> struct traits {
    using element = wgmma_e4m3;
};
template <> struct traits<W8A8_INT8> {
    using element = wgmma_s8;
};

/* What a thread has of the 64 x n sums of a warpgroup: rows g and g + 8 of the warp's 16, columns
 * 8 j + 2 t and one more. Element 4 j + 2 h + i is row g + 8 h, column 8 j + 2 t + i. */
template <w8a8_kind kind, int n_rows> struct fragment {
    using sum = typename traits<kind>::element::sum;
    sum values[n_rows / 2];
};

struct consumer {
    uint32_t lane;
    uint32_t first_row; /* of the warp, in the CTA's run of rows */
    ring_place issue;   /* the stage that is multiplied, and the block in it */
    uint32_t i_issue_block;
    uint32_t i_done; /* the stage whose sums are added, and the block in it */
    uint32_t i_done_block;
};

/* ---- a block of k ------------------------------------------------------------------------------
 */

/* Starts the chain of one block; the first of a stage waits for it. */
template <w8a8_kind kind, int n_rows>
__device__ __forceinline__ void start_block(const w8a8_gemm_args &args, const shared_map &map,
                                            consumer &at, bool is_sum,
                                            fragment<kind, n_rows> &chain)
{
    using multiplier = wgmma8<typename traits<kind>::element, n_rows>;
    uint32_t base = shared_base();
    if (at.i_issue_block == 0) {
        mbarrier_wait_parity(base + map.x_full + 8 * at.issue.i, at.issue.parity);
        mbarrier_wait_parity(base + map.w_full + 8 * at.issue.i, at.issue.parity);
    }
    uint32_t first_atom = at.i_issue_block * args.n_block_groups + (at.first_row & ~63u) / 8;
    uint64_t a =
        wgmma8_descriptor(base + at.issue.i * map.w_stage_bytes + first_atom * SWIZZLE_ATOM_BYTES,
                          SWIZZLE_ATOM_BYTES);
    uint64_t b = wgmma8_descriptor(base + map.x + at.issue.i * map.x_stage_bytes +
                                       at.i_issue_block * n_rows * SWIZZLE_K,
                                   SWIZZLE_ATOM_BYTES);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        multiplier::multiply(chain.values, a + 2 * i, b + 2 * i, i > 0 || is_sum);
    }
    wgmma_commit();
    if (++at.i_issue_block == args.x.stage_blocks) {
        at.i_issue_block = 0;
        ring_on(at.issue, args.n_stages);
    }
}

/* total = fma(chain, x_scale * scale, total): NUMERICS.md. */
template <int n_rows>
__device__ __forceinline__ void add_scaled(uint32_t x_scales, float upper, float lower,
                                           const fragment<W8A8_FP8_GROUP, n_rows> &chain,
                                           fragment<W8A8_FP8_GROUP, n_rows> &total)
{
#pragma unroll
    for (int j = 0; j < n_rows / 8; j++) {
        uint2 pair = ld_shared_v2(x_scales + j * 32);
        float even = __uint_as_float(pair.x), odd = __uint_as_float(pair.y);
        total.values[4 * j] = fmaf(chain.values[4 * j], even * upper, total.values[4 * j]);
        total.values[4 * j + 1] =
            fmaf(chain.values[4 * j + 1], odd * upper, total.values[4 * j + 1]);
        total.values[4 * j + 2] =
            fmaf(chain.values[4 * j + 2], even * lower, total.values[4 * j + 2]);
        total.values[4 * j + 3] =
            fmaf(chain.values[4 * j + 3], odd * lower, total.values[4 * j + 3]);
    }
}

/* Where the scales of a thread's rows lie in shared memory, from the first block of k on. */
struct row_scales {
    uint32_t upper;
    uint32_t lower;
};

/* Adds a chain that has ended to the total, and gives its stage back once all of it is done. */
template <w8a8_kind kind, int n_rows>
__device__ __forceinline__ void
end_block(const w8a8_gemm_args &args, const shared_map &map, consumer &at, row_scales &scales,
          fragment<kind, n_rows> &chain, fragment<kind, n_rows> &total)
{
    uint32_t base = shared_base();
    if constexpr (kind != W8A8_INT8) {
        wgmma_changed(chain.values);
    }
    if constexpr (kind == W8A8_FP8) {
#pragma unroll
        for (int i = 0; i < n_rows / 2; i++) {
            total.values[i] += chain.values[i];
        }
    } else if constexpr (kind == W8A8_FP8_GROUP) {
        uint32_t x_scales = base + map.x + at.i_done * map.x_stage_bytes +
                            args.x.stage_blocks * n_rows * SWIZZLE_K +
                            at.i_done_block * n_rows * 4 + at.lane % 4 * 8;
        add_scaled<n_rows>(x_scales, __uint_as_float(ld_shared(scales.upper)),
                           __uint_as_float(ld_shared(scales.lower)), chain, total);
        scales.upper += 4;
        scales.lower += 4;
    }
    if (++at.i_done_block == args.x.stage_blocks) {
        __syncwarp();
        if (at.lane == 0) {
            mbarrier_arrive(base + map.empty + 8 * at.i_done);
        }
        at.i_done_block = 0;
        at.i_done = at.i_done + 1 == args.n_stages ? 0 : at.i_done + 1;
    }
}

/* The stage that k ends in may hold fewer blocks than others: both sides go on to the next. */
template <w8a8_kind kind, int n_rows>
__device__ __forceinline__ void end_stage(const w8a8_gemm_args &args, const shared_map &map,
                                          consumer &at)
{
    if (at.i_done_block == 0) {
        return;
    }
    __syncwarp();
    if (at.lane == 0) {
        mbarrier_arrive(shared_base() + map.empty + 8 * at.i_done);
    }
    at.i_done_block = 0;
    at.i_done = at.i_done + 1 == args.n_stages ? 0 : at.i_done + 1;
    at.i_issue_block = 0;
    ring_on(at.issue, args.n_stages);
}

/* Chains under way at a time, at most: as many as there are registers for. */
template <int n_rows, int n_warpgroups>
constexpr int n_chains_max = n_rows <= 16                        ? 4
                             : n_rows == 32 || n_warpgroups <= 2 ? 2
                                                                 : 1;

/* A run of n chains, ended in the order in which they were started. */
template <w8a8_kind kind, int n_rows, int n>
__device__ __forceinline__ void multiply_run(const w8a8_gemm_args &args, const shared_map &map,
                                             consumer &at, row_scales &scales,
                                             fragment<kind, n_rows> &total)
{
    fragment<kind, n_rows> chains[n];
#pragma unroll
    for (int i = 0; i < n; i++) {
        start_block<kind, n_rows>(args, map, at, false, chains[i]);
    }
    wgmma_wait<n - 1>();
    end_block<kind, n_rows>(args, map, at, scales, chains[0], total);
    if constexpr (n > 1) {
        wgmma_wait<n - 2>();
        end_block<kind, n_rows>(args, map, at, scales, chains[1], total);
    }
    if constexpr (n > 2) {
        wgmma_wait<n - 3>();
        end_block<kind, n_rows>(args, map, at, scales, chains[2], total);
        wgmma_wait<n - 4>();
        end_block<kind, n_rows>(args, map, at, scales, chains[3], total);
    }
}

/* All of k, for one run of rows. */
template <w8a8_kind kind, int n_rows, int n_warpgroups>
__device__ __forceinline__ void multiply_rows(const w8a8_gemm_args &args, const shared_map &map,
                                              consumer &at, row_scales scales,
                                              fragment<kind, n_rows> &total)
{
    uint32_t n_k_blocks = n_k_blocks_of(args.k);
    uint32_t i = 0;
    if constexpr (kind == W8A8_INT8) {
        for (; i < n_k_blocks; i++) {
            start_block<kind, n_rows>(args, map, at, i > 0, total);
            if (i > 0) {
                wgmma_wait<1>();
                end_block<kind, n_rows>(args, map, at, scales, total, total);
            }
        }
        wgmma_wait<0>();
        wgmma_changed(total.values);
        end_block<kind, n_rows>(args, map, at, scales, total, total);
    } else {
        constexpr int n_max = n_chains_max<n_rows, n_warpgroups>;
        if constexpr (n_max == 4) {
            /* Several warpgroups cover each other's waits with two chains; four would hold back
             * too many stages. */
            bool is_alone = n_consumers() == 128;
            for (; is_alone && i + 4 <= n_k_blocks; i += 4) {
                multiply_run<kind, n_rows, 4>(args, map, at, scales, total);
            }
        }
        if constexpr (n_max >= 2) {
            for (; i + 2 <= n_k_blocks; i += 2) {
                multiply_run<kind, n_rows, 2>(args, map, at, scales, total);
            }
        }
        for (; i < n_k_blocks; i++) {
            multiply_run<kind, n_rows, 1>(args, map, at, scales, total);
        }
    }
    end_stage<kind, n_rows>(args, map, at);
}

/* ---- the scales of a group of k ----------------------------------------------------------------
 */

constexpr int consumers_barrier = 1;

/* All consumers bring the scales of a run of rows to shared memory, those of a row of scales side
 * by side; the thread's own are returned. */
__device__ __forceinline__ row_scales load_scales(const w8a8_gemm_args &args, const shared_map &map,
                                                  const consumer &at, uint32_t first_row)
{
    uint32_t n_k_blocks = n_k_blocks_of(args.k);
    uint32_t first_column = first_row / args.group_n;
    uint32_t last_row = min(first_row + args.n_block_groups * SWIZZLE_ROWS, args.n) - 1;
    uint32_t n_columns = last_row / args.group_n - first_column + 1;
    bar_sync(consumers_barrier, n_consumers());
    for (uint32_t i = threadIdx.x; i < n_columns * n_k_blocks; i += n_consumers()) {
        uint32_t i_column = i / n_k_blocks, i_k_block = i % n_k_blocks;
        float scale =
            load(args.scales, static_cast<dtype>(args.scale_dtype),
                 static_cast<uint64_t>(i_k_block) * args.scale_columns + first_column + i_column);
        st_shared(shared_base() + map.scales + 4 * i, __float_as_uint(scale));
    }
    bar_sync(consumers_barrier, n_consumers());
    uint32_t upper = min(first_row + at.first_row + at.lane / 4, last_row);
    uint32_t lower = min(first_row + at.first_row + at.lane / 4 + 8, last_row);
    uint32_t base = shared_base() + map.scales;
    return {base + (upper / args.group_n - first_column) * n_k_blocks * 4,
            base + (lower / args.group_n - first_column) * n_k_blocks * 4};
}

/* ---- the end -----------------------------------------------------------------------------------
 */

/* What a row of W (a column of y) adds to its finished sums. */
struct column {
    float scale;
    float column_scale;
    float bias;
    int32_t zero;
    int32_t code_sum;
};

template <w8a8_kind kind>
__device__ __forceinline__ column column_of(const w8a8_gemm_args &args, uint32_t i_n)
{
    column one = {1.0f, 1.0f, 0.0f, 0, 0};
    uint32_t i_scale = i_n / args.group_n;
    if constexpr (kind != W8A8_FP8_GROUP) {
        one.scale = load(args.scales, static_cast<dtype>(args.scale_dtype), i_scale);
    }
    if (args.column_scales != nullptr) {
        one.column_scale = args.column_scales[i_n];
    }
    if (args.bias != nullptr) {
        one.bias = load(args.bias, static_cast<dtype>(args.bias_dtype), i_n);
    }
    if constexpr (kind == W8A8_INT8) {
        one.zero = args.zeros != nullptr ? args.zeros[i_scale] - 128 : 0;
        one.code_sum = args.code_sums[i_n];
    }
    return one;
}

/* The contract's last steps, in its order. */
template <w8a8_kind kind>
__device__ __forceinline__ float finish(const w8a8_gemm_args &args, const column &one, uint32_t i_m,
                                        typename traits<kind>::element::sum sum)
{
    float value;
    if constexpr (kind == W8A8_INT8) {
        int32_t x_zero = args.x.zeros[i_m];
        uint32_t k_zeros = static_cast<uint32_t>(x_zero * one.zero) * args.k;
        uint32_t exact = static_cast<uint32_t>(sum) - static_cast<uint32_t>(x_zero * one.code_sum) -
                         static_cast<uint32_t>(one.zero * args.x.sums[i_m]) + k_zeros;
        value = __int2float_rn(static_cast<int32_t>(exact));
    } else {
        value = sum;
    }
    if constexpr (kind != W8A8_FP8_GROUP) {
        value = __fmul_rn(value, one.scale);
    }
    if (args.column_scales != nullptr) {
        value = args.is_column_divisor ? __fdiv_rn(value, one.column_scale)
                                       : __fmul_rn(value, one.column_scale);
    }
    value = __fmul_rn(value, args.x.scales[i_m]);
    return args.bias != nullptr ? __fadd_rn(value, one.bias) : value;
}

template <w8a8_kind kind, int n_rows>
__device__ __forceinline__ void store_rows(const w8a8_gemm_args &args, const consumer &at,
                                           uint32_t first_row, const fragment<kind, n_rows> &total)
{
    uint32_t end_row = min(first_row + args.n_block_groups * SWIZZLE_ROWS, args.n);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t i_n = first_row + at.first_row + at.lane / 4 + 8 * h;
        if (i_n >= end_row) {
            continue;
        }
        column one = column_of<kind>(args, i_n);
#pragma unroll
        for (int j = 0; j < n_rows / 4; j++) {
            uint32_t i_m = j / 2 * 8 + at.lane % 4 * 2 + j % 2;
            if (i_m < args.m) {
                store(args.y[i_m], static_cast<dtype>(args.y_dtype), i_n,
                      finish<kind>(args, one, i_m, total.values[j / 2 * 4 + 2 * h + j % 2]));
            }
        }
    }
}

/* ---- the kernel --------------------------------------------------------------------------------
 */

template <w8a8_kind kind, int n_rows, int n_warpgroups>
__device__ __forceinline__ void consume(const w8a8_gemm_args &args, const shared_map &map)
{
    uint32_t warp = threadIdx.x / 32;
    consumer at = {threadIdx.x % 32, warp * 16, {0, 0}, 0, 0, 0};
    for (uint32_t i = blockIdx.x; i < n_row_blocks_of(args); i += gridDim.x) {
        uint32_t first_row = i * args.n_block_groups * SWIZZLE_ROWS;
        row_scales scales = {};
        if constexpr (kind == W8A8_FP8_GROUP) {
            scales = load_scales(args, map, at, first_row);
        }
        fragment<kind, n_rows> total = {};
        multiply_rows<kind, n_rows, n_warpgroups>(args, map, at, scales, total);
        store_rows<kind, n_rows>(args, at, first_row, total);
    }
}

template <w8a8_kind kind, int n_rows, int n_warpgroups>
__global__ void __launch_bounds__(128 * n_warpgroups + n_feed_threads, 1)
    w8a8_gemm(const __grid_constant__ w8a8_gemm_args args)
{
    shared_map map = map_of(args);
    uint32_t n_consumer_warps = n_consumers() / 32;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < args.n_stages; i++) {
            mbarrier_init(shared_base() + map.w_full + 8 * i, 1);
            mbarrier_init(shared_base() + map.x_full + 8 * i, 1);
            mbarrier_init(shared_base() + map.empty + 8 * i, n_consumer_warps);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    griddepcontrol_launch_dependents();
    if (threadIdx.x / 32 < n_consumer_warps) {
        consume<kind, n_rows, n_warpgroups>(args, map);
    } else if (threadIdx.x == n_consumers()) {
        feed_w(args, map);
    } else if (threadIdx.x == n_consumers() + 32) {
        feed_x(args, map);
    }
}

/* ---- launching ---------------------------------------------------------------------------------
 */

using kernel_function = void (*)(w8a8_gemm_args);

struct instance {
    uint32_t kind;
    uint32_t n_rows;
    uint32_t n_warpgroups; /* at most */
    kernel_function function;
};

#define INSTANCE(kind, n_rows, n_warpgroups)                                                       \
    {                                                                                              \
        kind, n_rows, n_warpgroups, w8a8_gemm<kind, n_rows, n_warpgroups>                          \
    }
#define INSTANCES(kind)                                                                            \
    INSTANCE(kind, 8, 4), INSTANCE(kind, 16, 4), INSTANCE(kind, 32, 4), INSTANCE(kind, 64, 2),     \
        INSTANCE(kind, 64, 4)

const instance instances[] = {INSTANCES(W8A8_FP8), INSTANCES(W8A8_FP8_GROUP), INSTANCES(W8A8_INT8)};

constexpr uint32_t shared_bytes_max = 220 * 1024; /* leaves room for a block of w8a8_x.cu */
constexpr int n_devices_max = 64;
uint32_t n_sms_of_device[n_devices_max];

uint32_t div_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* Rows of a CTA: as many CTAs as there are SMs, or whole rounds of them. */
uint32_t choose_block_groups(uint32_t n, uint32_t n_sms)
{
    uint32_t n_groups = n_groups_of(n);
    uint32_t n_rounds = div_up(n_groups, n_sms * n_block_groups_max);
    return div_up(n_groups, n_sms * n_rounds);
}

uint32_t choose_stages(w8a8_gemm_args args)
{
    args.n_stages = n_stages_max;
    while (args.n_stages > 2 && map_of(args).total_bytes > shared_bytes_max) {
        args.n_stages--;
    }
    return args.n_stages;
}

} // namespace

int w8a8_gemm_load(void)
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
        if (r == cudaSuccess) {
            r = cudaFuncSetAttribute(reinterpret_cast<const void *>(one.function),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes_max));
        }
    }
    if (r == cudaSuccess) {
        n_sms_of_device[device] = static_cast<uint32_t>(n_sms);
    }
    return r;
}

int w8a8_gemm_enqueue(struct w8a8_gemm_args *args, bool may_overlap, void *stream)
{
    int device;
    cudaError_t r = cudaGetDevice(&device);
    if (r != cudaSuccess) {
        return r;
    }
    args->n_block_groups = choose_block_groups(args->n, n_sms_of_device[device]);
    args->n_stages = choose_stages(*args);
    uint32_t n_row_blocks = div_up(n_groups_of(args->n), args->n_block_groups);
    uint32_t n_warpgroups = div_up(args->n_block_groups * SWIZZLE_ROWS, n_wgmma_rows);
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = may_overlap ? 1 : 0;
    cudaLaunchConfig_t config = {};
    config.gridDim =
        n_row_blocks < n_sms_of_device[device] ? n_row_blocks : n_sms_of_device[device];
    config.blockDim = 128 * n_warpgroups + n_feed_threads;
    config.dynamicSmemBytes = map_of(*args).total_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &overlap;
    config.numAttrs = 1;
    void *parameters[] = {args};
    for (const instance &one : instances) {
        if (one.kind == args->kind && one.n_rows == args->x.n_rows &&
            n_warpgroups <= one.n_warpgroups) {
            return cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(one.function),
                                       parameters);
        }
    }
    return cudaErrorInvalidValue;
}
