/* strip_wide.cu - weight-only integer GEMM for up to 64 rows of x on Hopper (sm_90a), with the bits
 * of strip_gemm.cu.
 *
 *   y[i, j] = sum_g scale[j, g] * sum_{k in g} x[i, k] * (code[j, k] - zero[j, g])
 *
 * Three launches: x is laid out (strip_wide_x.cuh), multiplied (strip_wide_multiply.cuh), and what
 * came of the parts of k is added up (strip_wide_reduce.cuh).
 *
 * Operands. A warpgroup has 64 rows of W, a strip a warp: the words of the layout are A fragments
 * of wgmma just as they are of mma.sync, dequantised in registers. B is a tile of x in shared
 * memory.
 *
 * Work. At these sizes reading x from the L2 cache, once a CTA, costs as much as reading the weight
 * from memory. So a CTA has many rows of W, up to 256 that share a tile of x, and few of k: a unit
 * of work is a tile of strips and a quarter of k, dealt out in turn. Layers of few rows fill the
 * GPU that way too. Parts of y meet in memory, in f32; they are not multiplied by atomics or
 * clusters, so their order is fixed (a cluster of four would leave 12 of 132 SMs idle).
 *
 * Feed. Each lane feeds itself with weights by cp.async as in strip_gemm.cu. Warp 0 also copies
 * tiles of x, ahead of all; full barriers count the bytes, empty ones the warps that are done with
 * a tile. A warp of its own for that would cost the others a quarter of their registers.
 *
 * Sums. A group's chain starts from -(offset + zero) * sum(x); s = fma(chain, scale, s) over the
 * slices that strip_gemm.cu gives to one warp, a lane of the sum; lanes of a quarter are added in
 * order, then the quarters. Every bit is that of strip_gemm.cu. */
#include <cuda_runtime.h>

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
    return {x_dtype,
            n_rows,
            has_zeros,
            lay_out_x<traits, has_zeros>,
            strip_wide<traits, n_rows, has_zeros>,
            reduce_parts<traits>,
            shared_map<n_rows>::warps,
            warp_bytes<n_rows, has_zeros>};
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

uint32_t shared_bytes(const instance &one, uint32_t n_warpgroups)
{
    return one.shared_bytes + 4 * n_warpgroups * one.warp_bytes;
}

/* Warpgroups a CTA. More share a tile of x, fewer divide the work more evenly: the time of the
 * busiest SM decides. A round of tiles costs it about as much again as one warpgroup. */
uint32_t choose_warpgroups(const strip_wide_args &args, uint32_t n_sms)
{
    uint32_t best = 1;
    uint32_t best_cost = UINT32_MAX;
    for (uint32_t n = 1; n <= n_warpgroups_max; n++) {
        uint32_t n_tiles = div_up(args.n_launch_strips, 4 * n);
        uint32_t cost = div_up(n_tiles, n_sms / args.n_parts) * (n + 1);
        if (cost <= best_cost) {
            best = n;
            best_cost = cost;
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
cudaError_t multiply_and_reduce(const instance &one, strip_wide_args *args, uint32_t n_sms,
                                void *stream)
{
    uint32_t n_warpgroups = choose_warpgroups(*args, n_sms);
    uint32_t n_ctas = n_sms / args->n_parts; /* a part */
    args->n_tiles = div_up(args->n_launch_strips, 4 * n_warpgroups);
    n_ctas = n_ctas < args->n_tiles ? n_ctas : args->n_tiles;
    launch_shape multiply = {
        {args->n_parts, n_ctas}, 128 * n_warpgroups, shared_bytes(one, n_warpgroups)};
    cudaError_t r = launch(one.multiply, multiply, args, true, stream);
    if (r != cudaSuccess) {
        return r;
    }
    uint32_t n_columns = args->n_launch_strips * STRIP_N;
    launch_shape reduce = {
        {div_up(n_columns, n_reduce_threads), div_up(args->m, n_reduce_rows)}, n_reduce_threads, 0};
    return launch(one.reduce, reduce, args, true, stream);
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
    return x_tiles_bytes(m, n_slices) + parts_of(n_slices) * n_columns * m * sizeof(float);
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
        for (kernel_function function : {one.lay_out, one.reduce}) {
            struct cudaFuncAttributes attributes; /* asking for them loads the code */
            if (r == cudaSuccess) {
                r = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(function));
            }
        }
        if (r == cudaSuccess) {
            r = cudaFuncSetAttribute(reinterpret_cast<const void *>(one.multiply),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes(one, n_warpgroups_max)));
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
    uint64_t parts_offset = x_tiles_bytes(args->m, args->base.n_slices);
    args->parts = reinterpret_cast<float *>(args->x_tiles + parts_offset);
    args->n_lanes = lanes_of(args->base.n_slices);
    args->n_parts = parts_of(args->base.n_slices);
    launch_shape lay_out = {args->base.n_slices, one->n_rows / 8u * 32, 0};
    r = launch(one->lay_out, lay_out, args, may_overlap, stream);
    for (uint32_t first = 0; r == cudaSuccess && first < args->base.n_strips;
         first += n_launch_strips_max) {
        uint32_t n_left = args->base.n_strips - first;
        args->first_strip = first;
        args->n_launch_strips = n_left < n_launch_strips_max ? n_left : n_launch_strips_max;
        r = multiply_and_reduce(*one, args, n_sms_of_device[device], stream);
    }
    return r;
}
