/* strip_parts.cu - see strip_parts.h: how the work of strip_wide.cu and strip_batch.cu is cut, its
 * launches, and the last of them, where parts of y are left.
 *
 * Work. A CTA has up to 256 rows of W that share a tile of x, and either all four quarters of k in
 * turn or one of them, whichever keeps the busiest SM shorter at work. In the first case quarters
 * are added up in shared memory, or, where there is no room, wait in memory where nobody else looks
 * at them; in the other one they meet there, in f32. They are not multiplied by atomics or
 * clusters, so their order is fixed (a cluster of four would leave 12 of 132 SMs idle).
 *
 * They are added up in a launch of its own: that the CTA which comes last to a strip adds up its
 * parts was tried, and took 139 us instead of 103 for 64 rows and 4-bit codes of 28672 x 8192. */
#include <cuda_runtime.h>

#include "kernels/cuda/device_table.cuh"
#include "kernels/cuda/div_up.cuh"
#include "kernels/cuda/overlap_launch.cuh"
#include "kernels/cuda/strip_parts.cuh"
#include "kernels/cuda/strip_parts.h"
#include "kernels/layout/strip.h"

namespace {

/* Columns of y a launch: what bounds the workspace, and keeps parts in the L2 cache. */
constexpr uint32_t n_launch_strips_max = 32768 / STRIP_N;

constexpr uint32_t n_warpgroups_min = 2; /* one by itself leaves the tensor cores idle too long */

constexpr uint32_t n_reduce_threads = 256; /* a warp has 8 rows of a strip */

/* A block's parts in order, from 0. With all there, which is the rule, every load is on its way
 * before the first is used. */
__device__ __forceinline__ float4 sum_parts(const strip_parts_args &args, uint32_t i_strip,
                                            uint32_t i_block)
{
    float4 totals = make_float4(0, 0, 0, 0);
    if (args.n_parts == n_parts_max) {
        float4 parts[n_parts_max];
#pragma unroll
        for (uint32_t i = 0; i < n_parts_max; i++) {
            parts[i] = *part_at(args, i, i_strip, i_block);
        }
#pragma unroll
        for (uint32_t i = 0; i < n_parts_max; i++) {
            add(totals, parts[i]);
        }
        return totals;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < args.n_parts; i++) {
        add(totals, *part_at(args, i, i_strip, i_block));
    }
    return totals;
}

/* The next product may begin once this one's parts are there: let begin earlier, a chain of small
 * products takes up to a quarter longer. */
__global__ void __launch_bounds__(n_reduce_threads)
    reduce_parts(const __grid_constant__ strip_parts_args args)
{
    uint32_t i_warp = (blockIdx.x * n_reduce_threads + threadIdx.x) / 32;
    uint32_t i_strip = i_warp / row_blocks(args.m);
    uint32_t i_block = i_warp % row_blocks(args.m);
    if (i_strip >= args.n_launch_strips) {
        return;
    }
    lane_columns columns = load_columns(args, i_strip);
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    store_block(args, columns, i_block, sum_parts(args, i_strip, i_block));
}

device_table devices;

uint32_t lanes_of(uint32_t n_slices)
{
    return n_slices < STRIP_STEP_SLICES ? n_slices : STRIP_STEP_SLICES;
}

uint32_t parts_of(uint32_t n_slices)
{
    return div_up(lanes_of(n_slices), STRIP_PART_LANES);
}

/* More than half of what an SM has: no two CTAs on one while another has none. */
constexpr uint32_t shared_bytes_min = 115 * 1024;
constexpr uint32_t shared_bytes_max = 227 * 1024;

uint32_t shared_bytes(const strip_parts_kernel &kernel, uint32_t n_warps)
{
    uint32_t n_bytes = kernel.shared_bytes + n_warps * kernel.warp_bytes;
    return n_bytes > shared_bytes_min ? n_bytes : shared_bytes_min;
}

/* What fits. */
uint32_t warpgroups_max(const strip_parts_kernel &kernel)
{
    uint32_t n = strip_parts_warpgroups_max;
    while (shared_bytes(kernel, 4 * n) > shared_bytes_max) {
        n--;
    }
    return n;
}

/* How the work is cut: strips of a tile, and CTAs along k: one that has all parts in turn, or one
 * for each. */
struct cut {
    uint32_t n_strips;
    uint32_t n_splits;
};

/* The time of the busiest CTA decides, counted in slices of a warpgroup. Each round of a slice
 * costs it as much again as one warpgroup; parts of k cost a launch and their way through memory.
 */
uint32_t cost_of(const strip_parts_args &args, uint32_t n_sms, const cut &how)
{
    constexpr uint32_t reduce_cost = 12;
    uint32_t n_tiles = div_up(args.n_launch_strips, how.n_strips);
    uint32_t n_rounds = div_up(n_tiles, n_sms / how.n_splits);
    uint32_t n_slices = div_up(args.base.n_slices, how.n_splits);
    return n_rounds * n_slices * (how.n_strips / 4 + 1) + (how.n_splits > 1 ? reduce_cost : 0);
}

cut choose_cut(const strip_parts_kernel &kernel, const strip_parts_args &args, uint32_t n_sms)
{
    uint32_t n_max = warpgroups_max(kernel);
    cut best = {4 * n_max, 1};
    for (uint32_t n_splits : {1u, args.n_parts}) {
        for (uint32_t n = n_max; n >= n_warpgroups_min; n--) {
            cut how = {4 * n, n_splits};
            if (cost_of(args, n_sms, how) < cost_of(args, n_sms, best)) {
                best = how;
            }
        }
    }
    return best;
}

cudaError_t launch(void (*function)(strip_parts_args), const launch_shape &shape,
                   strip_parts_args *args, bool may_overlap, void *stream)
{
    void *parameters[] = {args};
    return overlap_launch(reinterpret_cast<const void *>(function), shape, may_overlap, parameters,
                          stream);
}

/* The launch's columns of y, once x is laid out. */
cudaError_t multiply_and_reduce(const strip_parts_kernel &kernel, strip_parts_args *args,
                                uint32_t n_sms, void *stream)
{
    cut how = choose_cut(kernel, *args, n_sms);
    uint32_t n_ctas = n_sms / how.n_splits; /* a part of k */
    args->n_tiles = div_up(args->n_launch_strips, how.n_strips);
    n_ctas = n_ctas < args->n_tiles ? n_ctas : args->n_tiles;
    launch_shape multiply = {
        {how.n_splits, n_ctas}, 32 * how.n_strips, shared_bytes(kernel, how.n_strips)};
    cudaError_t r = launch(kernel.multiply, multiply, args, true, stream);
    if (r != cudaSuccess || how.n_splits == 1) {
        return r;
    }
    uint32_t n_warps = args->n_launch_strips * row_blocks(args->m);
    launch_shape reduce = {{div_up(n_warps, n_reduce_threads / 32)}, n_reduce_threads, 0};
    return launch(reduce_parts, reduce, args, true, stream);
}

uint64_t x_tiles_bytes(uint32_t n_rows, uint32_t n_slices, uint32_t x_row_bytes)
{
    return static_cast<uint64_t>(n_slices) * n_rows * x_row_bytes;
}

/* All of them with as much shared memory as there is, though two kinds use none: an SM that has to
 * divide its memory anew for the next launch waits until the one before is over there. */
cudaError_t load_function(void (*function)(strip_parts_args), uint32_t n_shared_bytes)
{
    const void *pointer = reinterpret_cast<const void *>(function);
    cudaError_t r = cudaFuncSetAttribute(pointer, cudaFuncAttributePreferredSharedMemoryCarveout,
                                         cudaSharedmemCarveoutMaxShared);
    return r != cudaSuccess
               ? r
               : cudaFuncSetAttribute(pointer, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(n_shared_bytes));
}

} // namespace

uint64_t strip_parts_workspace_bytes(uint32_t n_rows, uint32_t n, uint32_t k, uint32_t x_row_bytes)
{
    uint32_t n_slices = div_up(k, STRIP_SLICE_K);
    uint32_t n_strips = div_up(n, STRIP_N);
    n_strips = n_strips < n_launch_strips_max ? n_strips : n_launch_strips_max;
    uint64_t n_columns = static_cast<uint64_t>(n_strips) * STRIP_N;
    return x_tiles_bytes(n_rows, n_slices, x_row_bytes) +
           parts_of(n_slices) * n_columns * n_rows * sizeof(float);
}

int strip_parts_load()
{
    cudaError_t r = device_table_add(devices);
    return r != cudaSuccess ? r : load_function(reduce_parts, 0);
}

int strip_parts_load_kernel(const strip_parts_kernel &kernel)
{
    uint32_t n_shared_bytes = shared_bytes(kernel, 4 * warpgroups_max(kernel));
    cudaError_t r = load_function(kernel.lay_out, 0);
    return r != cudaSuccess ? r : load_function(kernel.multiply, n_shared_bytes);
}

int strip_parts_enqueue(const strip_parts_kernel &kernel, strip_parts_args *args, bool may_overlap,
                        void *stream)
{
    uint32_t n_sms = 0;
    cudaError_t r = device_table_sms(devices, &n_sms);
    if (r != cudaSuccess) {
        return r;
    }
    uint32_t n_slices = args->base.n_slices;
    uint64_t tiles_bytes = x_tiles_bytes(kernel.n_rows, n_slices, kernel.x_row_bytes);
    args->parts = reinterpret_cast<float *>(args->x_tiles + tiles_bytes);
    args->factor = kernel.factor;
    args->n_lanes = lanes_of(n_slices);
    args->n_parts = parts_of(n_slices);
    launch_shape lay_out = {{n_slices, kernel.n_rows / 8}, 32, 0};
    r = launch(kernel.lay_out, lay_out, args, may_overlap, stream);
    for (uint32_t first = 0; r == cudaSuccess && first < args->base.n_strips;
         first += n_launch_strips_max) {
        uint32_t n_left = args->base.n_strips - first;
        args->first_strip = first;
        args->n_launch_strips = n_left < n_launch_strips_max ? n_left : n_launch_strips_max;
        r = multiply_and_reduce(kernel, args, n_sms, stream);
    }
    return r;
}
