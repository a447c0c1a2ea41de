/* strip_batch.cu - weight-only GEMM for 17 to 64 rows of x on Hopper (sm_90a), with the bits of
 * strip_gemm.cu and one pass over the weight: launching.
 *
 *   y[i, j] = sum_g scale[j, g] * sum_{k in g} x[i, k] * (code[j, k] - zero[j, g])
 *
 * Launches: x is laid out (strip_batch_x.cuh) and multiplied (strip_batch_kernel.cuh); where the
 * work is cut along k, what came of the parts is added up (strip_batch_parts.cuh).
 *
 * Operands. A warpgroup has 64 rows of W, a strip a warp: the words of the layout are A fragments
 * of wgmma just as they are of mma.sync, dequantised in registers. B is a tile of x in shared
 * memory.
 *
 * Work. A CTA has up to 256 rows of W that share a tile of x, and either all four quarters of k in
 * turn or one of them, whichever keeps the busiest SM shorter at work. In the first case a quarter
 * waits in memory where nobody else looks at it; in the other one quarters meet there, in f32.
 *
 * Feed. Each lane copies its own codes by cp.async, as in strip_gemm.cu, and for its warp a piece
 * of the scales. Warp 0 also has tiles of x copied, ahead of all; full barriers count the bytes,
 * empty ones the warps that are done with a tile.
 *
 * Sums. As in strip_gemm.cu, which has a warp for each of the 16 lanes of a sum: here they come one
 * after the other, each of a quarter is added to those before it, in order, then the quarters. */
#include <cuda_runtime.h>

#include "kernels/cuda/device_table.cuh"
#include "kernels/cuda/strip_batch.h"
#include "kernels/cuda/strip_batch_instance.h"
#include "kernels/cuda/strip_batch_parts.cuh"
#include "kernels/cuda/strip_batch_x.cuh"

namespace {

/* Columns of y a launch: what bounds the workspace, and keeps parts in the L2 cache. */
constexpr uint32_t n_launch_strips_max = 32768 / STRIP_N;

constexpr uint32_t n_warpgroups_min = 2; /* one by itself leaves the tensor cores idle too long */

device_table devices;

template <typename visitor> void for_all_instances(visitor &&visit)
{
    for (const strip_batch_instances &some :
         {strip_batch_u4_instances(), strip_batch_u8_instances(), strip_batch_float_instances()}) {
        for (uint32_t i = 0; i < some.n; i++) {
            visit(some.all[i]);
        }
    }
}

const strip_batch_instance *find_instance(const strip_batch_args &args)
{
    const strip_batch_instance *found = nullptr;
    for_all_instances([&](const strip_batch_instance &one) {
        if (one.x_dtype == args.base.x_dtype && one.code_bits == args.base.code_bits &&
            one.scaling == args.base.scaling && one.n_groups == args.base.n_slice_groups &&
            one.n_rows == tile_rows(args.m)) {
            found = &one;
        }
    });
    return found;
}

uint32_t div_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

uint32_t lanes_of(uint32_t n_slices)
{
    return n_slices < STRIP_STEP_SLICES ? n_slices : STRIP_STEP_SLICES;
}

uint32_t parts_of(uint32_t n_slices)
{
    return div_up(lanes_of(n_slices), STRIP_BATCH_PART_LANES);
}

/* More than half of what an SM has: no two CTAs on one while another has none. */
constexpr uint32_t shared_bytes_min = 115 * 1024;
constexpr uint32_t shared_bytes_max = 227 * 1024;

uint32_t shared_bytes(const strip_batch_instance &one, uint32_t n_warps)
{
    uint32_t n_bytes = one.shared_bytes + n_warps * one.warp_bytes;
    return n_bytes > shared_bytes_min ? n_bytes : shared_bytes_min;
}

/* What fits, with scales of small groups. */
uint32_t warpgroups_max(const strip_batch_instance &one)
{
    uint32_t n = strip_batch_warpgroups_max;
    while (shared_bytes(one, 4 * n) > shared_bytes_max) {
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
uint32_t cost_of(const strip_batch_args &args, uint32_t n_sms, const cut &how)
{
    constexpr uint32_t reduce_cost = 12;
    uint32_t n_tiles = div_up(args.n_launch_strips, how.n_strips);
    uint32_t n_rounds = div_up(n_tiles, n_sms / how.n_splits);
    uint32_t n_slices = div_up(args.base.n_slices, how.n_splits);
    return n_rounds * n_slices * (how.n_strips / 4 + 1) + (how.n_splits > 1 ? reduce_cost : 0);
}

cut choose_cut(const strip_batch_args &args, const strip_batch_instance &one, uint32_t n_sms)
{
    cut best = {4 * n_warpgroups_min, 1};
    for (uint32_t n_splits : {1u, args.n_parts}) {
        for (uint32_t n = warpgroups_max(one); n >= n_warpgroups_min; n--) {
            cut how = {4 * n, n_splits};
            if (cost_of(args, n_sms, how) < cost_of(args, n_sms, best)) {
                best = how;
            }
        }
    }
    return best;
}

struct launch_shape {
    dim3 grid;
    uint32_t n_threads;
    uint32_t shared_bytes;
};

cudaError_t launch(void (*function)(strip_batch_args), const launch_shape &shape,
                   strip_batch_args *args, bool may_overlap, void *stream)
{
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = may_overlap ? 1 : 0;
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = shape.n_threads;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &overlap;
    config.numAttrs = 1;
    void *parameters[] = {args};
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(function), parameters);
}

/* The launch's columns of y, once x is laid out. */
cudaError_t multiply_and_reduce(strip_batch_args *args, const strip_batch_instance &one,
                                uint32_t n_sms, void *stream)
{
    cut how = choose_cut(*args, one, n_sms);
    uint32_t n_ctas = n_sms / how.n_splits; /* a part of k */
    args->n_tiles = div_up(args->n_launch_strips, how.n_strips);
    n_ctas = n_ctas < args->n_tiles ? n_ctas : args->n_tiles;
    launch_shape multiply = {
        {how.n_splits, n_ctas}, 32 * how.n_strips, shared_bytes(one, how.n_strips)};
    cudaError_t r = launch(one.multiply, multiply, args, true, stream);
    if (r != cudaSuccess || how.n_splits == 1) {
        return r;
    }
    uint32_t n_warps = args->n_launch_strips * row_blocks(args->m);
    launch_shape reduce = {{div_up(n_warps, n_reduce_threads / 32)}, n_reduce_threads, 0};
    return launch(one.reduce, reduce, args, true, stream);
}

uint64_t x_tiles_bytes(uint32_t m, uint32_t n_slices)
{
    return static_cast<uint64_t>(n_slices) * n_slice_tiles * tile_bytes(tile_rows(m));
}

uint32_t slice_bytes_of(const strip_batch_instance &one, bool has_zeros)
{
    return STRIP_CODES_BYTES_OF(one.code_bits) + one.scale_bytes +
           (has_zeros ? one.zero_bytes : 0u);
}

} // namespace

uint64_t strip_batch_workspace_bytes(uint32_t m, uint32_t n, uint32_t k)
{
    uint32_t n_slices = div_up(k, STRIP_SLICE_K);
    uint32_t n_strips = div_up(n, STRIP_N);
    n_strips = n_strips < n_launch_strips_max ? n_strips : n_launch_strips_max;
    uint64_t n_columns = static_cast<uint64_t>(n_strips) * STRIP_N;
    return x_tiles_bytes(m, n_slices) +
           parts_of(n_slices) * n_columns * row_blocks(m) * 8 * sizeof(float);
}

int strip_batch_load(void)
{
    cudaError_t r = device_table_add(devices);
    for_all_instances([&](const strip_batch_instance &one) {
        for (auto function : {one.lay_out, one.reduce}) {
            struct cudaFuncAttributes attributes; /* asking for them loads the code */
            if (r == cudaSuccess) {
                r = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(function));
            }
        }
        if (r == cudaSuccess) {
            r = cudaFuncSetAttribute(reinterpret_cast<const void *>(one.multiply),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes(one, 4 * warpgroups_max(one))));
        }
    });
    return r;
}

int strip_batch_enqueue(struct strip_batch_args *args, bool may_overlap, void *stream)
{
    uint32_t n_sms = 0;
    cudaError_t r = device_table_sms(devices, &n_sms);
    const strip_batch_instance *one = find_instance(*args);
    if (r != cudaSuccess || one == nullptr) {
        return r != cudaSuccess ? r : cudaErrorInvalidValue;
    }
    uint64_t parts_offset = x_tiles_bytes(args->m, args->base.n_slices);
    args->parts = reinterpret_cast<float *>(args->x_tiles + parts_offset);
    args->slice_bytes = slice_bytes_of(*one, args->base.has_zeros != 0);
    args->n_lanes = lanes_of(args->base.n_slices);
    args->n_parts = parts_of(args->base.n_slices);
    launch_shape lay_out = {{args->base.n_slices, one->n_rows / 8u}, 32, 0};
    r = launch(one->lay_out, lay_out, args, may_overlap, stream);
    for (uint32_t first = 0; r == cudaSuccess && first < args->base.n_strips;
         first += n_launch_strips_max) {
        uint32_t n_left = args->base.n_strips - first;
        args->first_strip = first;
        args->n_launch_strips = n_left < n_launch_strips_max ? n_left : n_launch_strips_max;
        r = multiply_and_reduce(args, *one, n_sms, stream);
    }
    return r;
}
