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
 * Feed. Two warps of their own keep all of shared memory filled with copies (w8a8_feed.cuh). Since
 * the weight does not depend on any launch, its copies begin before the launch before has ended.
 * All CTAs read all of x, and from 32 rows on that limits them rather than the weight: then two of
 * them share what comes out of the L2 cache.
 *
 * Sums. The tensor core sums e4m3 products with about 14 bits, so a chain is one block of 128 k, to
 * be added to the total in f32; one chain is under way while the one before is added. int32 sums
 * are exact, and are all one chain. */
#include <cuda_runtime.h>

#include "kernels/cuda/device_table.cuh"
#include "kernels/cuda/div_up.cuh"
#include "kernels/cuda/overlap_launch.cuh"
#include "kernels/cuda/w8a8.h"
#include "kernels/cuda/w8a8_gather.cuh"
#include "kernels/cuda/w8a8_multiply.cuh"

namespace {

/* ---- the scales of a group of k ---- */

constexpr int consumers_barrier = 1;
constexpr uint32_t n_holding_lanes = 31;

/* All consumers bring the scales of a run of rows to shared memory, those of a row of scales side
 * by side; the thread's own are returned. */
__device__ __forceinline__ row_scales load_scales(const w8a8_gemm_args &args, const shared_map &map,
                                                  const consumer &at, uint32_t first_row)
{
    uint32_t n_k_blocks = n_k_blocks_of(args.k);
    uint32_t first_column = first_row / args.group_n;
    uint32_t last_row = min(first_row + args.n_block_groups * SWIZZLE_ROWS, args.n) - 1;
    uint32_t n_columns = last_row / args.group_n - first_column + 1;
    bar_sync(consumers_barrier, n_consumers(args));
    for (uint32_t i = threadIdx.x; i < n_columns * n_k_blocks; i += n_consumers(args)) {
        uint32_t i_column = i / n_k_blocks, i_k_block = i % n_k_blocks;
        float scale =
            load(args.scales, static_cast<dtype>(args.scale_dtype),
                 static_cast<uint64_t>(i_k_block) * args.scale_columns + first_column + i_column);
        st_shared(shared_base() + map.scales + 4 * i, __float_as_uint(scale));
    }
    bar_sync(consumers_barrier, n_consumers(args));
    uint32_t upper = min(first_row + at.first_row + at.lane / 4, last_row);
    uint32_t lower = min(first_row + at.first_row + at.lane / 4 + 8, last_row);
    uint32_t base = shared_base() + map.scales;
    return {base + (upper / args.group_n - first_column) * n_k_blocks * 4,
            base + (lower / args.group_n - first_column) * n_k_blocks * 4};
}

/* ---- rows ---- */

/* A thread's rows of W: this one and the next but seven. */
struct row_pair {
    column columns[2];
};

/* Before the sums are made: memory is slow to answer, and has time to now. */
template <w8a8_kind kind>
__device__ __forceinline__ row_pair load_rows(const w8a8_gemm_args &args, uint32_t i_n)
{
    return {column_of<kind>(args, min(i_n, args.n - 1)),
            column_of<kind>(args, min(i_n + 8, args.n - 1))};
}

/* What is known of the rows of x, by all lanes but the first of the warp that feeds x. */
template <w8a8_kind kind>
__device__ __forceinline__ void hold_rows(const w8a8_gemm_args &args, const shared_map &map,
                                          uint32_t lane, known_rows &rows)
{
    griddepcontrol_wait();
    for (uint32_t i = lane - 1; i < args.m; i += n_holding_lanes) {
        rows.y[i] = args.y[i];
        rows.scales[i] = args.x.scales[i];
        if constexpr (kind == W8A8_INT8) {
            rows.zeros[i] = args.x.zeros[i];
            rows.sums[i] = args.zeros != nullptr ? args.x.sums[i] : 0;
        }
    }
    mbarrier_arrive(shared_base() + map.known);
}

/* ---- the kernel ---- */

/* Are CTAs pairs? With 64 rows of x and scales of groups, warpgroups that are one or two have
 * enough to do with adding chains; waiting for those of another CTA made them slower. */
__host__ __device__ constexpr bool is_pair(w8a8_kind kind, int n_rows, int n_warpgroups)
{
    return n_rows == 32 || (n_rows == 64 && (kind != W8A8_FP8_GROUP || n_warpgroups > 2));
}

template <w8a8_kind kind, int n_rows, int n_warpgroups>
__device__ __forceinline__ void consume(const w8a8_gemm_args &args, const shared_map &map,
                                        const known_rows &known)
{
    uint32_t lane = threadIdx.x % 32;
    uint32_t i_part = threadIdx.x / n_part_consumers(args);
    uint32_t warp = threadIdx.x % n_part_consumers(args) / 32;
    constexpr bool has_pair = is_pair(kind, n_rows, n_warpgroups);
    uint32_t n_refills = has_pair ? n_refills_of<has_pair>(args) : 0;
    consumer at = {lane, warp * 16, i_part * n_rows, has_pair, n_refills, {0, 0}, 0, 0, 0};
    for (uint32_t i = blockIdx.x; is_in_turn<has_pair>(args, i); i += gridDim.x) {
        if (has_pair && i >= n_row_blocks_of(args)) {
            pass_turn(args, map, at);
            break;
        }
        uint32_t first_row = i * args.n_block_groups * SWIZZLE_ROWS;
        row_scales scales = {};
        if constexpr (kind == W8A8_FP8_GROUP) {
            scales = load_scales(args, map, at, first_row);
        }
        uint32_t first_n = first_row + at.first_row;
        row_pair rows = load_rows<kind>(args, first_n + lane / 4);
        fragment<kind, n_rows> total = {};
        multiply_rows<kind, n_rows, n_warpgroups>(args, map, at, scales, total);
        mbarrier_wait_parity(shared_base() + map.known, 0);
        /* Rows behind the CTA's run, and those of it that are not there, are thrown away. */
        uint32_t end_n = min(first_row + args.n_block_groups * SWIZZLE_ROWS, args.n);
        store_sums<kind, n_rows>(args, known, rows.columns, {first_n, end_n, at.first_m, lane},
                                 total.values);
    }
}

__device__ __forceinline__ void init_barriers(const w8a8_gemm_args &args, const shared_map &map,
                                              uint32_t n_holders)
{
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < args.n_stages; i++) {
            mbarrier_init(shared_base() + map.w_full + 8 * i, 1);
            mbarrier_init(shared_base() + map.x_full + 8 * i, 1);
            mbarrier_init(shared_base() + map.empty + 8 * i, n_consumers(args) / 32);
            mbarrier_init(shared_base() + map.x_empty + 8 * i, 2 * n_consumers(args) / 32);
        }
        mbarrier_init(shared_base() + map.known, n_holders);
        fence_mbarrier_init();
    }
    __syncthreads();
}

/* Until the barriers of both CTAs are there. By whole warps. */
template <bool has_pair> __device__ __forceinline__ void pair_wait()
{
    if constexpr (has_pair) {
        cluster_wait();
    }
}

/* x laid out by w8a8_x.cu. */
template <w8a8_kind kind, int n_rows, int n_warpgroups>
__global__ void __launch_bounds__(128 * n_warpgroups + 64, 1)
    w8a8_gemm(const __grid_constant__ w8a8_gemm_args args)
{
    __shared__ known_rows known;
    shared_map map = map_of(args);
    constexpr bool has_pair = is_pair(kind, n_rows, n_warpgroups);
    init_barriers(args, map, n_holding_lanes);
    if constexpr (has_pair) {
        cluster_arrive_relaxed();
    }
    griddepcontrol_launch_dependents();
    if (threadIdx.x < n_consumers(args)) {
        pair_wait<has_pair>();
        consume<kind, n_rows, n_warpgroups>(args, map, known);
    } else if (threadIdx.x < n_consumers(args) + 32) {
        if (threadIdx.x == n_consumers(args)) {
            feed_w(args, map);
        }
        __syncwarp();
        pair_wait<has_pair>();
    } else {
        pair_wait<has_pair>();
        if (threadIdx.x == n_consumers(args) + 32) {
            feed_x<has_pair>(args, map);
        } else {
            hold_rows<kind>(args, map, threadIdx.x % 32, known);
        }
        __syncwarp();
    }
    if constexpr (has_pair) {
        cluster_arrive_relaxed();
        cluster_wait(); /* until here the other one copies to this one's shared memory */
    }
}

/* x as it comes, up to 8 rows: w8a8_gather.cuh. */
template <w8a8_kind kind>
__global__ void __launch_bounds__(128 * n_warpgroups_max + 32 + n_gather_threads, 1)
    w8a8_gather_gemm(const __grid_constant__ w8a8_gemm_args args,
                     const __grid_constant__ w8a8_lay_out_args lay_out)
{
    __shared__ gathered_extents extents;
    __shared__ known_rows known;
    shared_map map = map_of(args);
    if (threadIdx.x < args.m) {
        known.y[threadIdx.x] = args.y[threadIdx.x];
    }
    init_barriers(args, map, 1);
    griddepcontrol_launch_dependents();
    if (threadIdx.x < n_consumers(args)) {
        consume<kind, gather_rows_max, n_warpgroups_max>(args, map, known);
    } else if (threadIdx.x == n_consumers(args)) {
        mbarrier_arrive(shared_base() + map.known); /* before the first stage of x comes, it is */
        feed_w(args, map);
    } else if (threadIdx.x >= n_consumers(args) + 32) {
        gatherer at = {threadIdx.x % 32, (threadIdx.x - n_consumers(args)) / 32 - 1, &extents,
                       &known};
        gather_x(args, lay_out, map, at);
    }
}

/* ---- launching ---- */

using kernel_function = void (*)(w8a8_gemm_args);

struct instance {
    uint32_t kind;
    uint32_t n_rows;       /* of x, of a warpgroup */
    uint32_t n_warpgroups; /* at most */
    uint32_t n_ranks;      /* CTAs of a cluster */
    kernel_function function;
};

#define INSTANCE(kind, n_rows, n_warpgroups)                                                       \
    {                                                                                              \
        kind, n_rows, n_warpgroups, is_pair(kind, n_rows, n_warpgroups) ? 2u : 1u,                 \
            w8a8_gemm<kind, n_rows, n_warpgroups>                                                  \
    }
#define INSTANCES(kind)                                                                            \
    INSTANCE(kind, 8, 4), INSTANCE(kind, 16, 4), INSTANCE(kind, 32, 2), INSTANCE(kind, 32, 4),     \
        INSTANCE(kind, 64, 2), INSTANCE(kind, 64, 4)

const instance instances[] = {INSTANCES(W8A8_FP8), INSTANCES(W8A8_FP8_GROUP), INSTANCES(W8A8_INT8)};

using gather_function = void (*)(w8a8_gemm_args, w8a8_lay_out_args);

const gather_function gather_functions[W8A8_N_KINDS] = {
    w8a8_gather_gemm<W8A8_FP8>, w8a8_gather_gemm<W8A8_FP8_GROUP>, w8a8_gather_gemm<W8A8_INT8>};

/* With what is known of rows beside it, leaves room for a CTA of w8a8_x.cu. */
constexpr uint32_t shared_bytes_max = 218 * 1024;
device_table devices;

/* Rows of a CTA: as many CTAs as there are SMs, or whole rounds of them. */
uint32_t choose_block_groups(uint32_t n, uint32_t n_sms)
{
    uint32_t n_groups = n_groups_of(n);
    uint32_t n_rounds = div_up(n_groups, n_sms * n_block_groups_max);
    return div_up(n_groups, n_sms * n_rounds);
}

/* A warpgroup that is alone, with 64 rows of W at most, would be long at 64 rows of x. With scales
 * of groups two are longer still. */
uint32_t choose_m_parts(const w8a8_gemm_args &args)
{
    bool is_alone = args.n_block_groups * SWIZZLE_ROWS <= n_wgmma_rows;
    return is_alone && args.x.n_rows == 64 && args.kind != W8A8_FP8_GROUP ? 2 : 1;
}

uint32_t choose_stages(w8a8_gemm_args args)
{
    args.n_stages = n_stages_max;
    while (args.n_stages > 2 && map_of(args).total_bytes > shared_bytes_max) {
        args.n_stages--;
    }
    return args.n_stages;
}

const instance *find_instance(const w8a8_gemm_args &args)
{
    for (const instance &one : instances) {
        if (one.kind == args.kind && one.n_rows * args.n_m_parts == args.x.n_rows &&
            n_consumers(args) <= 128 * one.n_warpgroups) {
            return &one;
        }
    }
    return nullptr;
}

/* The run of rows of a CTA, and its stages. */
cudaError_t cut(w8a8_gemm_args *args, uint32_t *ret_n_ctas)
{
    uint32_t n_sms = 0;
    cudaError_t r = device_table_sms(devices, &n_sms);
    if (r == cudaSuccess) {
        args->n_block_groups = choose_block_groups(args->n, n_sms);
        args->n_m_parts = choose_m_parts(*args);
        args->n_stages = choose_stages(*args);
        uint32_t n_row_blocks = n_row_blocks_of(*args);
        *ret_n_ctas = n_row_blocks < n_sms ? n_row_blocks : n_sms;
    }
    return r;
}

cudaError_t launch(const void *function, uint32_t n_ctas, uint32_t n_ranks, uint32_t n_feed_threads,
                   const w8a8_gemm_args &args, bool may_overlap, void **parameters, void *stream)
{
    launch_shape shape = {align_up(n_ctas, n_ranks), n_consumers(args) + n_feed_threads,
                          map_of(args).total_bytes, n_ranks};
    return overlap_launch(function, shape, may_overlap, parameters, stream);
}

cudaError_t allow_shared(const void *function)
{
    return cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(shared_bytes_max));
}

} // namespace

int w8a8_gemm_load(void)
{
    cudaError_t r = device_table_add(devices);
    for (const instance &one : instances) {
        r = r != cudaSuccess ? r : allow_shared(reinterpret_cast<const void *>(one.function));
    }
    for (gather_function function : gather_functions) {
        r = r != cudaSuccess ? r : allow_shared(reinterpret_cast<const void *>(function));
    }
    return r;
}

int w8a8_gemm_enqueue(struct w8a8_gemm_args *args, bool may_overlap, void *stream)
{
    uint32_t n_ctas;
    cudaError_t r = cut(args, &n_ctas);
    if (r != cudaSuccess) {
        return r;
    }
    const instance *one = find_instance(*args);
    void *parameters[] = {args};
    return one == nullptr ? cudaErrorInvalidValue
                          : launch(reinterpret_cast<const void *>(one->function), n_ctas,
                                   one->n_ranks, 64, *args, may_overlap, parameters, stream);
}

int w8a8_gather_gemm_enqueue(struct w8a8_gemm_args *args, struct w8a8_lay_out_args *lay_out,
                             bool may_overlap, void *stream)
{
    uint32_t n_ctas;
    cudaError_t r = cut(args, &n_ctas);
    if (r != cudaSuccess) {
        return r;
    }
    void *parameters[] = {args, lay_out};
    return launch(reinterpret_cast<const void *>(gather_functions[args->kind]), n_ctas, 1,
                  32 + n_gather_threads, *args, may_overlap, parameters, stream);
}
