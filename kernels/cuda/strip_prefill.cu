/* strip_prefill.cu - weight-only GEMM for many rows of x on Hopper (sm_90a).
 *
 *   y[i, j] = sum_g scale[j, g] * sum_{k in g} x[i, k] * (code[j, k] - zero[j, g])
 *
 * Operands. Rows of W are on the side of wgmma that has 64 of them, rows of x, up to 256, on the
 * other, in shared memory as they are. Two kernels: in strip_prefill_kernel.cuh those warps that
 * multiply widen codes themselves, into fragments in registers, and nothing is stored again; in
 * strip_staged_kernel.cuh (float codes with exact weights, whose second set of sums leaves few
 * registers) other warps do, into shared memory.
 *
 * Sums, of one of two kinds. With weights rounded, a weight is (code - zero) * scale in the type of
 * x, and the tensor core has all of k in one chain: the fast kind, and as exact as a 16-bit product
 * of the dequantised weight. With exact weights the tensor core has a group of k in a chain of its
 * own, from 0, and s = fma(chain, scale, s) in f32. That costs a second set of sums in registers,
 * which bounds the tile, and an fma for each element and group, beside which the tensor cores
 * slow down: a quarter more time for groups of 128. The two warpgroups taking turns, so that one
 * adds while the other multiplies, changes nothing.
 *
 * Tiles. CTAs stay and take tiles of y one after the other. Pairs of CTAs share tiles of x, which
 * the copy engine brings to both at once. Tiles are taken in bands of x, so that what runs at one
 * time reads the same few tiles of W and x, from the L2 cache. Of each kind there are tiles of
 * several sizes, and the one that should be through first is taken. Those of 64 rows of W have one
 * warpgroup, which widens each code once and has its multiprocessor's schedulers to itself: few
 * rows of x take the time of the instructions that widen, one after the other. A last wave that
 * most SMs have nothing of is shared out: the largest tile can be halved, and any in registers be
 * begun by one cluster and ended by another (strip_prefill_pieces.cuh).
 *
 * Bits are the same for every tile of a kind: each element's sum is one chain, in one order, over
 * all of k, whoever has which part. It is not the order of strip_gemm.cu: its 16 lanes of k would
 * need as many more sums. Hence the classes of NUMERICS.md.
 *
 * x whose rows do not lie as the copy engine wants them, or that is to be permuted, is copied
 * first. */
#include <math.h>

#include <cuda_runtime.h>

#include "ipc/base/dtype.h"
#include "kernels/cuda/device_table.cuh"
#include "kernels/cuda/div_up.cuh"
#include "kernels/cuda/strip_prefill.h"
#include "kernels/cuda/strip_prefill_instance.h"
#include "kernels/cuda/strip_prefill_x.cuh"
#include "kernels/layout/strip.h"

namespace {

static_assert(sizeof(strip_prefill_tiles) / sizeof(strip_prefill_tiles[0]) == STRIP_PREFILL_TILES,
              "a tile each");
constexpr uint32_t n_cluster = strip_prefill_cluster;
constexpr uint32_t n_band_rows = 1536;
device_table devices;

/* How a product is cut for the clusters at work. Whole tiles that clusters take in turn; and what
 * would be left over for a last wave that few of them have anything of either in halves, where
 * tiles can be halved, or on the line of strip_prefill_pieces.cuh; or all in halves. */
struct units {
    uint32_t n_w;
    uint32_t n_x; /* in halves if there are no whole ones */
    uint32_t n_whole;
    uint32_t n_halves;
    uint32_t n_round; /* those that are not on the line */
    uint32_t n_line_slices;
};

/* What is cut, and for whom. */
struct work {
    uint32_t m;
    uint32_t n;
    uint32_t n_slices;
    uint32_t n_clusters;
};

/* Handing sums over takes so long, whatever k: us. */
constexpr double handing_cost = 18;

double cost_of(const strip_prefill_tile &tile, const units &cut, const work &all)
{
    double n_halves = div_up(cut.n_halves, all.n_clusters);
    if (cut.n_line_slices == 0) {
        return div_up(cut.n_whole, all.n_clusters) * tile.cost + n_halves * tile.half_cost;
    }
    double n_wholes =
        cut.n_round / all.n_clusters + static_cast<double>(cut.n_line_slices) / all.n_slices;
    return n_wholes * tile.cost + handing_cost * (8192 / STRIP_SLICE_K) / all.n_slices;
}

/* The last full wave and what is left over. */
units line_of(units cut, const work &all)
{
    cut.n_round = (cut.n_whole / all.n_clusters - 1) * all.n_clusters;
    cut.n_line_slices = div_up((cut.n_whole - cut.n_round) * all.n_slices, all.n_clusters);
    return cut;
}

/* What is left over, in halves. */
units with_halves(units cut, const work &all)
{
    uint32_t n_rest = cut.n_whole % all.n_clusters;
    cut.n_whole -= n_rest;
    cut.n_halves = 2 * n_rest;
    cut.n_round = cut.n_whole + cut.n_halves;
    return cut;
}

units all_halves(const strip_prefill_tile &tile, units cut, const work &all)
{
    cut.n_x = div_up(all.m, tile.n_x / 2);
    cut.n_whole = 0;
    cut.n_halves = cut.n_round = cut.n_w * cut.n_x;
    return cut;
}

units units_of(const strip_prefill_tile &tile, const work &all)
{
    uint32_t n_w = div_up(all.n, tile.n_w * n_cluster);
    uint32_t n_x = div_up(all.m, tile.n_x);
    units best = {n_w, n_x, n_w * n_x, 0, n_w * n_x, 0};
    units others[3];
    uint32_t n_others = 0;
    bool is_over = best.n_whole > all.n_clusters && best.n_whole % all.n_clusters != 0;
    if (is_over && tile.can_hand_over && all.n_clusters <= strip_prefill_handing_clusters) {
        others[n_others++] = line_of(best, all);
    }
    if (is_over && tile.half_cost != 0) {
        others[n_others++] = with_halves(best, all);
    }
    if (tile.half_cost != 0) {
        others[n_others++] = all_halves(tile, best, all);
    }
    for (uint32_t i = 0; i < n_others; i++) {
        best = cost_of(tile, others[i], all) < cost_of(tile, best, all) ? others[i] : best;
    }
    return best;
}

template <typename visitor> void for_all_instances(visitor &&visit)
{
    for (const strip_prefill_instances &some :
         {strip_prefill_u4_instances(), strip_prefill_u8_instances(),
          strip_prefill_e4m3_instances(), strip_prefill_e2m1_instances(),
          strip_staged_e4m3_instances(), strip_staged_e2m1_instances()}) {
        for (uint32_t i = 0; i < some.n; i++) {
            visit(some.all[i]);
        }
    }
}

const strip_prefill_instance *find_instance(const strip_args &args, uint32_t i_tile)
{
    const strip_prefill_instance *found = nullptr;
    uint8_t scaling = args.row_scales != nullptr ? STRIP_PREFILL_NO_SCALES : args.scaling;
    for_all_instances([&](const strip_prefill_instance &one) {
        if (one.x_dtype == args.x_dtype && one.code_bits == args.code_bits &&
            one.scaling == scaling &&
            (one.n_slice_groups == 0 || one.n_slice_groups == args.n_slice_groups) &&
            one.i_tile == i_tile) {
            found = &one;
        }
    });
    return found;
}

uint32_t slice_scale_bytes(const strip_args &args)
{
    switch (args.scaling) {
    case STRIP_SCALES_STRIP:
        return 2 * sizeof(float);
    case STRIP_SCALES_E8M0:
        return STRIP_N * 8;
    case STRIP_SCALES_E4M3:
        return STRIP_N * 16;
    default:
        return 2 * STRIP_N * args.n_slice_groups;
    }
}

/* f16 has e4m3, a code or a scale, as 2^-8 of its value, unless an f32 scale has made that up. */
float sum_factor(const strip_args &args, bool is_rounded)
{
    bool has_e4m3 = args.row_scales != nullptr || args.scaling == STRIP_SCALES_E4M3 ||
                    (args.scaling == STRIP_SCALES_STRIP && !is_rounded);
    return args.x_dtype == DTYPE_F16 && has_e4m3 ? 256.0f : 1.0f;
}

using encode_function = CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                     const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                     const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                     CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
encode_function encode_map;

cudaError_t find_encoder()
{
    void *function = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaError_t r = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                     cudaEnableDefault, &result);
    if (r != cudaSuccess || result != cudaDriverEntryPointSuccess) {
        return r != cudaSuccess ? r : cudaErrorNotSupported;
    }
    encode_map = reinterpret_cast<encode_function>(function);
    return cudaSuccess;
}

/* x as tiles of 64 of k; what lies beyond its rows and columns is read as 0. */
cudaError_t make_x_map(const strip_prefill_args &args, uint32_t n_rows, CUtensorMap *map)
{
    cuuint64_t size[2] = {args.base.k, args.m};
    cuuint64_t stride[1] = {args.x_stride_bytes};
    cuuint32_t box[2] = {strip_prefill_k_stage, n_rows};
    cuuint32_t step[2] = {1, 1};
    CUresult r = encode_map(map,
                            args.base.x_dtype == DTYPE_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                            : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                            2, const_cast<void *>(args.x), size, stride, box, step,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t launch(const strip_prefill_instance &one, strip_prefill_args *args,
                   const CUtensorMap &x_map, uint32_t n_clusters, void *stream)
{
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = n_cluster;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = n_clusters * n_cluster;
    config.blockDim = one.n_threads;
    config.dynamicSmemBytes = one.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &cluster;
    config.numAttrs = 1;
    void *parameters[] = {args, const_cast<CUtensorMap *>(&x_map)};
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(one.function), parameters);
}

/* x, should it have to be copied, then what is handed over. */
uint64_t copied_bytes(uint32_t m, uint32_t k)
{
    return div_up(m, 128) * 128 * copied_stride_bytes(k);
}

bool is_x_ready(const strip_prefill_args &args)
{
    return args.base.perm == nullptr &&
           (reinterpret_cast<uintptr_t>(args.x) | args.x_stride_bytes) % 16 == 0;
}

} // namespace

uint64_t strip_prefill_workspace_bytes(uint32_t m, uint32_t k)
{
    return copied_bytes(m, k) + strip_prefill_handed_all_bytes;
}

bool strip_prefill_has_tile(const struct strip_prefill_args *args, uint32_t i_tile, bool is_rounded)
{
    return strip_prefill_tiles[i_tile].is_rounded == is_rounded &&
           find_instance(args->base, i_tile) != nullptr;
}

uint32_t strip_prefill_best_tile(const struct strip_prefill_args *args, bool is_rounded)
{
    uint32_t n_sms = 0;
    (void)device_table_sms(devices, &n_sms);
    work all = {args->m, args->base.n, args->base.n_slices, n_sms / n_cluster};
    uint32_t best = 0;
    double best_cost = HUGE_VAL;
    for (uint32_t i = 0; i < STRIP_PREFILL_TILES; i++) {
        const strip_prefill_tile &tile = strip_prefill_tiles[i];
        double cost = cost_of(tile, units_of(tile, all), all);
        if (cost < best_cost && strip_prefill_has_tile(args, i, is_rounded)) {
            best = i;
            best_cost = cost;
        }
    }
    return best;
}

int strip_prefill_load(void)
{
    cudaError_t r = device_table_add(devices);
    if (r == cudaSuccess) {
        r = find_encoder();
    }
    for_all_instances([&](const strip_prefill_instance &one) {
        if (r == cudaSuccess) {
            r = cudaFuncSetAttribute(reinterpret_cast<const void *>(one.function),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(one.shared_bytes));
        }
    });
    struct cudaFuncAttributes attributes; /* asking for them loads the code */
    if (r == cudaSuccess) {
        r = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(copy_x));
    }
    return r;
}

int strip_prefill_enqueue(struct strip_prefill_args *args, uint32_t i_tile, void *workspace,
                          void *stream)
{
    uint32_t n_sms = 0;
    cudaError_t r = device_table_sms(devices, &n_sms);
    const strip_prefill_instance *one = find_instance(args->base, i_tile);
    if (r == cudaSuccess && one == nullptr) {
        r = cudaErrorInvalidValue;
    }
    if (r == cudaSuccess && !is_x_ready(*args)) {
        r = enqueue_copy_x(args, workspace, stream);
    }
    const strip_prefill_tile &tile = strip_prefill_tiles[i_tile];
    CUtensorMap x_map;
    if (r == cudaSuccess) {
        r = make_x_map(*args, one->n_box_rows, &x_map);
    }
    if (r != cudaSuccess) {
        return r;
    }
    work all = {args->m, args->base.n, args->base.n_slices, n_sms / n_cluster};
    units cut = units_of(tile, all);
    args->n_w_units = cut.n_w;
    args->n_x_tiles = cut.n_x;
    args->n_whole_units = cut.n_whole;
    args->n_units = cut.n_whole + cut.n_halves;
    args->n_round_units = cut.n_round;
    args->n_line_slices = cut.n_line_slices;
    args->handed = static_cast<uint8_t *>(workspace) + copied_bytes(args->m, args->base.k);
    if (cut.n_line_slices != 0) {
        r = cudaMemsetAsync(args->handed, 0, strip_prefill_handed_words_bytes,
                            static_cast<cudaStream_t>(stream));
    }
    args->n_band_tiles = div_up(n_band_rows, cut.n_whole != 0 ? tile.n_x : tile.n_x / 2);
    /* Whole slices: behind the end of k x is read as 0. */
    args->n_k_stages = args->base.n_slices * (STRIP_SLICE_K / strip_prefill_k_stage);
    args->slice_scale_bytes = slice_scale_bytes(args->base);
    args->slice_zero_bytes = args->base.has_zeros ? 16 * args->base.n_slice_groups : 0;
    args->slice_bytes = STRIP_CODES_BYTES_OF(args->base.code_bits) + args->slice_scale_bytes +
                        args->slice_zero_bytes;
    args->job_scale_bytes =
        args->base.row_scales != nullptr ? 0 : div_up(args->slice_scale_bytes, 16) * 16;
    args->record_bytes = strip_align(STRIP_STEP_SLICES * args->slice_bytes);
    args->sum_factor = sum_factor(args->base, tile.is_rounded);
    uint32_t n_clusters = args->n_units < all.n_clusters ? args->n_units : all.n_clusters;
    return r != cudaSuccess ? r : launch(*one, args, x_map, n_clusters, stream);
}
