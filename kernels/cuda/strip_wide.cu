/* strip_wide.cu - weight-only integer GEMM for up to 64 rows of x on Hopper (sm_90a), with the bits
 * of strip_gemm.cu.
 *
 *   y[i, j] = sum_g scale[j, g] * sum_{k in g} x[i, k] * (code[j, k] - zero[j, g])
 *
 * Launches: x is laid out (strip_wide_x.cuh) and multiplied (strip_wide_multiply.cuh); where the
 * work is cut along k, what came of the parts is added up (strip_wide_reduce.cuh).
 *
 * Operands. A warpgroup has 64 rows of W, a strip a warp: the words of the layout are A fragments
 * of wgmma just as they are of mma.sync, dequantised in registers. B is a tile of x in shared
 * memory.
 *
 * Work. A CTA has up to 256 rows of W that share a tile of x, and either all four quarters of k in
 * turn or one of them, whichever keeps the busiest SM shorter at work. In the first case quarters
 * are added up in shared memory, or, where 64 rows leave no room, wait in memory where nobody else
 * looks at them; in the other one they meet there, in f32. They are not multiplied by atomics or
 * clusters, so their order is fixed (a cluster of four would leave 12 of 132 SMs idle).
 *
 * Feed. Each lane feeds itself with weights by cp.async as in strip_gemm.cu. Warp 0 also copies
 * tiles of x, ahead of all; full barriers count the bytes, empty ones the warps that are done with
 * a tile. Not taken, since each was measured and no faster: warps of their own for that, which cost
 * the others registers; bulk copies of W, whose pieces of 1 and 2 KiB one warp cannot ask for fast
 * enough; two strips a warp in eight warps, too few to hide what each of them waits for; a tile of
 * x for two CTAs at once.
 *
 * Budget of a slice of 256 rows of W and 64 of x, in cycles of an SM: tensor cores 2048, shared
 * memory about 2400 (products 1024, since each warpgroup reads the tile of x anew, codes 512, x
 * 256, first values and sums the rest), dequantisation 1040 (7 operations for 8 codes, at half
 * rate), W from memory 1730. It takes twice that, since a warp does one after the other. So what a
 * group starts from is read once for two rows of W, and all of a group is dequantised before its
 * products. Two warpgroups of two strips a warp, which overlap these, were slower: two warps a
 * scheduler are too few.
 *
 * Sums. A group's chain starts from -(offset + zero) * sum(x); s = fma(chain, scale, s) over the
 * slices that strip_gemm.cu gives to one warp, a lane of the sum; lanes of a quarter are added in
 * order, then the quarters. Every bit is that of strip_gemm.cu. */
#include <cuda_runtime.h>

#include "kernels/cuda/device_table.cuh"
#include "kernels/cuda/strip_wide.h"
#include "kernels/cuda/strip_wide_multiply.cuh"
#include "kernels/cuda/strip_wide_reduce.cuh"

namespace {

/* Columns of y a launch: what bounds the workspace, and keeps parts in the L2 cache. */
constexpr uint32_t n_launch_strips_max = 32768 / STRIP_N;

using kernel_function = void (*)(strip_wide_args);

struct instance {
    uint8_t x_dtype;
    uint8_t n_rows;
    bool has_zeros;
    kernel_function lay_out;
    kernel_function multiply;
    kernel_function reduce;
    uint32_t shared_bytes; /* of a CTA, and of each warp */
    uint32_t warp_bytes;
};

template <typename traits, int n_rows, bool has_zeros>
constexpr instance make_instance(uint8_t x_dtype)
{
    using map = shared_map<n_rows, has_zeros>;
    return {x_dtype,
            n_rows,
            has_zeros,
            lay_out_x<traits, has_zeros>,
            strip_wide<traits, n_rows, has_zeros>,
            reduce_parts<traits>,
            map::warps,
            map::warp_bytes};
}

#define INSTANCES(traits, dtype)                                                                   \
    make_instance<traits, 32, false>(dtype), make_instance<traits, 32, true>(dtype),               \
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

device_table devices;

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
    return div_up(lanes_of(n_slices), STRIP_PART_LANES);
}

/* More than half of what an SM has: no two CTAs on one while another has none. */
constexpr uint32_t shared_bytes_min = 115 * 1024;

uint32_t shared_bytes(const instance &one, uint32_t n_warps)
{
    uint32_t n_bytes = one.shared_bytes + n_warps * one.warp_bytes;
    return n_bytes > shared_bytes_min ? n_bytes : shared_bytes_min;
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
uint32_t cost_of(const strip_wide_args &args, uint32_t n_sms, const cut &how)
{
    constexpr uint32_t reduce_cost = 12;
    uint32_t n_tiles = div_up(args.n_launch_strips, how.n_strips);
    uint32_t n_rounds = div_up(n_tiles, n_sms / how.n_splits);
    uint32_t n_slices = div_up(args.base.n_slices, how.n_splits);
    return n_rounds * n_slices * (how.n_strips / 4 + 1) + (how.n_splits > 1 ? reduce_cost : 0);
}

cut choose_cut(const strip_wide_args &args, uint32_t n_sms)
{
    cut best = {4 * n_warpgroups_max, 1};
    for (uint32_t n_splits : {1u, args.n_parts}) {
        for (uint32_t n = n_warpgroups_max; n >= n_warpgroups_min; n--) {
            cut one = {4 * n, n_splits};
            if (cost_of(args, n_sms, one) < cost_of(args, n_sms, best)) {
                best = one;
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

cudaError_t launch(kernel_function function, const launch_shape &shape, strip_wide_args *args,
                   bool may_overlap, void *stream)
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
cudaError_t multiply_and_reduce(strip_wide_args *args, uint32_t n_sms, void *stream)
{
    cut how = choose_cut(*args, n_sms);
    const instance *one = find_instance(*args);
    uint32_t n_ctas = n_sms / how.n_splits; /* a part of k */
    args->n_tiles = div_up(args->n_launch_strips, how.n_strips);
    n_ctas = n_ctas < args->n_tiles ? n_ctas : args->n_tiles;
    launch_shape multiply = {
        {how.n_splits, n_ctas}, 32 * how.n_strips, shared_bytes(*one, how.n_strips)};
    cudaError_t r = launch(one->multiply, multiply, args, true, stream);
    if (r != cudaSuccess || how.n_splits == 1) {
        return r;
    }
    uint32_t n_warps = args->n_launch_strips * row_blocks(args->m);
    launch_shape reduce = {{div_up(n_warps, n_reduce_threads / 32)}, n_reduce_threads, 0};
    return launch(one->reduce, reduce, args, true, stream);
}

uint64_t x_tiles_bytes(uint32_t m, uint32_t n_slices)
{
    return static_cast<uint64_t>(n_slices) * n_groups * tile_bytes(tile_rows(m));
}

} // namespace

uint64_t strip_wide_workspace_bytes(uint32_t m, uint32_t n, uint32_t k)
{
    uint32_t n_slices = div_up(k, STRIP_SLICE_K);
    uint32_t n_strips = div_up(n, STRIP_N);
    n_strips = n_strips < n_launch_strips_max ? n_strips : n_launch_strips_max;
    uint64_t n_columns = static_cast<uint64_t>(n_strips) * STRIP_N;
    return x_tiles_bytes(m, n_slices) +
           parts_of(n_slices) * n_columns * row_blocks(m) * 8 * sizeof(float);
}

int strip_wide_load(void)
{
    cudaError_t r = device_table_add(devices);
    for (const instance &one : instances) {
        for (kernel_function function : {one.lay_out, one.reduce}) {
            struct cudaFuncAttributes attributes; /* asking for them loads the code */
            if (r == cudaSuccess) {
                r = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(function));
            }
        }
        if (r == cudaSuccess) {
            r = cudaFuncSetAttribute(reinterpret_cast<const void *>(one.multiply),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes(one, 4 * n_warpgroups_max)));
        }
    }
    return r;
}

int strip_wide_enqueue(struct strip_wide_args *args, bool may_overlap, void *stream)
{
    uint32_t n_sms = 0;
    cudaError_t r = device_table_sms(devices, &n_sms);
    const instance *one = find_instance(*args);
    if (r != cudaSuccess || one == nullptr) {
        return r != cudaSuccess ? r : cudaErrorInvalidValue;
    }
    uint64_t parts_offset = x_tiles_bytes(args->m, args->base.n_slices);
    args->parts = reinterpret_cast<float *>(args->x_tiles + parts_offset);
    args->n_lanes = lanes_of(args->base.n_slices);
    args->n_parts = parts_of(args->base.n_slices);
    launch_shape lay_out = {{args->base.n_slices, one->n_rows / 8u}, 32, 0};
    r = launch(one->lay_out, lay_out, args, may_overlap, stream);
    for (uint32_t first = 0; r == cudaSuccess && first < args->base.n_strips;
         first += n_launch_strips_max) {
        uint32_t n_left = args->base.n_strips - first;
        args->first_strip = first;
        args->n_launch_strips = n_left < n_launch_strips_max ? n_left : n_launch_strips_max;
        r = multiply_and_reduce(args, n_sms, stream);
    }
    return r;
}
