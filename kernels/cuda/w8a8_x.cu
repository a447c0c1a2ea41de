/* w8a8_x.cu - rows of x to 8-bit codes, laid out for w8a8_gemm.cu (w8a8_args.h); codes and scales
 * have the bits of kernels/quant/quant.c.
 *
 * A thread takes 16 elements along k: a unit of the swizzled tile, one 16-byte store. Eight lanes
 * side by side share a group of 128. Where a whole row shares a scale, each thread block that has a
 * part of the row goes over all of it first, which is cheaper than a launch that meets. Rows that
 * come quantised are copied. Rows from m on are zeros. */
#include <cuda_runtime.h>

#include "kernels/cuda/any_values.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/quantise_rules.cuh"
#include "kernels/cuda/w8a8.h"
#include "kernels/layout/swizzle.h"

namespace {

constexpr uint32_t n_threads = 512;
constexpr uint32_t unit_k = 16;
constexpr uint32_t group_lanes = SWIZZLE_K / unit_k;
constexpr uint32_t n_ctas_wanted = 264; /* twice the SMs of an H200 */

/* ---- reading -----------------------------------------------------------------------------------
 */

__device__ __forceinline__ void widen(const uint4 (&words)[2], dtype type, float (&values)[unit_k])
{
    const uint32_t *pairs = &words[0].x;
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        uint32_t bits = pairs[i / 2] >> i % 2 * 16 & 0xffffu;
        values[i] = type == DTYPE_BF16 ? __uint_as_float(bits << 16)
                                       : __half2float(__ushort_as_half((unsigned short)bits));
    }
}

/* Elements of a row from i_k on; 0 from k on. */
__device__ __forceinline__ void load_unit(const void *row, dtype type, uint32_t i_k, uint32_t k,
                                          float (&values)[unit_k])
{
    bool is_whole = i_k + unit_k <= k && reinterpret_cast<uintptr_t>(row) % 16 == 0;
    if (is_whole && type != DTYPE_F32) {
        const uint4 *from =
            reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(row) + i_k);
        uint4 words[2] = {from[0], from[1]};
        widen(words, type, values);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        values[i] = i_k + i < k ? load(row, type, i_k + i) : 0.0f;
    }
}

__device__ __forceinline__ uint4 load_codes(const void *row, uint32_t i_k, uint32_t k)
{
    const uint8_t *codes = static_cast<const uint8_t *>(row) + i_k;
    if (i_k + unit_k <= k && reinterpret_cast<uintptr_t>(codes) % 16 == 0) {
        return *reinterpret_cast<const uint4 *>(codes);
    }
    uint4 unit = {};
    uint32_t *words = &unit.x;
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        words[i / 4] |= i_k + i < k ? static_cast<uint32_t>(codes[i]) << i % 4 * 8 : 0u;
    }
    return unit;
}

/* ---- extents -----------------------------------------------------------------------------------
 */

__device__ __forceinline__ extent join(const extent &a, const extent &b)
{
    return {max(a.magnitude, b.magnitude), min(a.low, b.low), max(a.high, b.high)};
}

/* Over a run of lanes, aligned to their number. */
template <uint32_t n_lanes> __device__ __forceinline__ extent join_lanes(extent one)
{
#pragma unroll
    for (uint32_t i = 1; i < n_lanes; i *= 2) {
        extent other = {__shfl_xor_sync(0xffffffffu, one.magnitude, i),
                        __shfl_xor_sync(0xffffffffu, one.low, i),
                        __shfl_xor_sync(0xffffffffu, one.high, i)};
        one = join(one, other);
    }
    return one;
}

__device__ __forceinline__ extent extent_of(const float (&values)[unit_k])
{
    extent one = {0, 0, 0};
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        extend(one, values[i]);
    }
    return one;
}

/* Of a whole row; the same for every thread. */
__device__ extent row_extent(const w8a8_lay_out_args &args, const void *row)
{
    __shared__ extent of_warps[n_threads / 32];
    extent one = {0, 0, 0};
#pragma unroll 4
    for (uint32_t i_k = threadIdx.x * unit_k; i_k < args.k; i_k += n_threads * unit_k) {
        float values[unit_k];
        load_unit(row, static_cast<dtype>(args.x_dtype), i_k, args.k, values);
        one = join(one, extent_of(values));
    }
    one = join_lanes<32>(one);
    if (threadIdx.x % 32 == 0) {
        of_warps[threadIdx.x / 32] = one;
    }
    __syncthreads();
    for (uint32_t i = 0; i < n_threads / 32; i++) {
        one = join(one, of_warps[i]);
    }
    return one;
}

/* ---- codes -------------------------------------------------------------------------------------
 */

__device__ __forceinline__ uint4 codes_of(const quantise_rule &rule, const grid &grid,
                                          const float (&values)[unit_k])
{
    uint4 unit = {};
    uint32_t *words = &unit.x;
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        uint32_t code = rule.act <= FP8_GROUP ? e4m3_code(grid, values[i])
                                              : static_cast<uint32_t>(static_cast<int32_t>(
                                                    int8_value(grid, values[i]) + grid.zero)) &
                                                    0xffu;
        words[i / 4] |= code << i % 4 * 8;
    }
    return unit;
}

__device__ __forceinline__ int32_t sum_of(const uint4 &unit)
{
    return __dp4a(static_cast<int>(unit.x), 0x01010101, 0) +
           __dp4a(static_cast<int>(unit.y), 0x01010101, 0) +
           __dp4a(static_cast<int>(unit.z), 0x01010101, 0) +
           __dp4a(static_cast<int>(unit.w), 0x01010101, 0);
}

/* Codes from k on stand for no element: they must be 0 bytes, not zero points. */
__device__ __forceinline__ uint4 cut(uint4 unit, uint32_t i_k, uint32_t k)
{
    uint8_t *bytes = reinterpret_cast<uint8_t *>(&unit);
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        bytes[i] = i_k + i < k ? bytes[i] : 0;
    }
    return unit;
}

__device__ __forceinline__ bool is_given(const w8a8_lay_out_args &args)
{
    return args.x_dtype == DTYPE_I8 || args.x_dtype == DTYPE_F8_E4M3;
}

__device__ __forceinline__ bool has_row_scale(const w8a8_lay_out_args &args)
{
    return args.rule.act != FP8_GROUP;
}

/* Scale and zero point of a row, or of nothing but a static scheme. */
__device__ grid row_grid(const w8a8_lay_out_args &args, uint32_t i_row)
{
    bool is_static = args.rule.act == FP8_TENSOR || args.rule.act == INT8_TENSOR;
    if (i_row >= args.m || !has_row_scale(args)) {
        return {1.0f, 0.0f};
    }
    if (is_given(args)) {
        float zero = args.rule.act == INT8_TENSOR ? static_cast<float>(args.rule.act_zero) : 0.0f;
        return {is_static ? args.rule.act_scale : args.scale_rows[i_row][0], zero};
    }
    if (args.rule.act == FP8_TENSOR) {
        return {args.rule.act_scale, 0.0f};
    }
    return grid_of(args.rule, row_extent(args, args.rows[i_row]));
}

/* Where a row's unit lies in the stages, and the scale of its group. */
__device__ __forceinline__ uint8_t *unit_place(const w8a8_x &x, uint32_t i_row, uint32_t i_k)
{
    uint32_t i_block = i_k / SWIZZLE_K;
    uint32_t in_stage = i_block % x.stage_blocks * x.n_rows * SWIZZLE_K +
                        i_row / SWIZZLE_ROWS * SWIZZLE_ATOM_BYTES +
                        swizzle_byte_of(i_row % SWIZZLE_ROWS, i_k % SWIZZLE_K);
    return x.stages + static_cast<uint64_t>(i_block / x.stage_blocks) * x.stage_bytes + in_stage;
}

__device__ __forceinline__ float *scale_place(const w8a8_x &x, uint32_t i_row, uint32_t i_block)
{
    uint8_t *stage = x.stages + static_cast<uint64_t>(i_block / x.stage_blocks) * x.stage_bytes;
    float *scales = reinterpret_cast<float *>(stage + x.stage_blocks * x.n_rows * SWIZZLE_K);
    return scales + i_block % x.stage_blocks * x.n_rows + i_row;
}

/* The unit of a thread, and, with scales a group, the scale. All lanes of a warp come here. */
__device__ __forceinline__ uint4 make_unit(const w8a8_lay_out_args &args, grid grid, uint32_t i_row,
                                           uint32_t i_k)
{
    bool is_inside = i_row < args.m && i_k < args.k;
    uint4 unit = {};
    if (is_given(args)) {
        unit = is_inside ? load_codes(args.rows[i_row], i_k, args.k) : unit;
    } else {
        float values[unit_k] = {};
        if (is_inside) {
            load_unit(args.rows[i_row], static_cast<dtype>(args.x_dtype), i_k, args.k, values);
        }
        if (args.rule.act == FP8_GROUP) {
            grid = grid_of(args.rule, join_lanes<group_lanes>(extent_of(values)));
        }
        unit = is_inside ? cut(codes_of(args.rule, grid, values), i_k, args.k) : unit;
    }
    if (args.kind == W8A8_FP8_GROUP && i_k % SWIZZLE_K == 0) {
        uint32_t i_block = i_k / SWIZZLE_K;
        bool is_group = args.rule.act == FP8_GROUP && is_inside;
        float scale = is_given(args) && is_group ? args.scale_rows[i_row][i_block] : grid.scale;
        *scale_place(args.x, i_row, i_block) = is_group ? scale : 1.0f;
    }
    return unit;
}

/* Sums need all units of a row in one thread block: has_sums is launched so. */
__device__ void add_sum(const w8a8_lay_out_args &args, uint32_t i_row, int32_t sum)
{
    __shared__ int32_t total;
    if (threadIdx.x == 0) {
        total = 0;
    }
    __syncthreads();
    atomicAdd(&total, sum);
    __syncthreads();
    if (threadIdx.x == 0) {
        args.x.sums[i_row] = total;
    }
}

__global__ void __launch_bounds__(n_threads)
    lay_out_x(const __grid_constant__ w8a8_lay_out_args args)
{
    uint32_t i_row = blockIdx.y;
    uint32_t end_k = (args.k + SWIZZLE_K - 1) / SWIZZLE_K * SWIZZLE_K;
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    grid grid = row_grid(args, i_row);
    int32_t sum = 0;
    uint32_t step = gridDim.x * n_threads * unit_k;
    for (uint32_t first = blockIdx.x * n_threads * unit_k; first < end_k; first += step) {
        uint32_t i_k = first + threadIdx.x * unit_k;
        if (i_k / (32 * unit_k) * (32 * unit_k) >= end_k) {
            break; /* the whole warp */
        }
        bool is_inside = i_k < end_k;
        uint4 unit = make_unit(args, grid, i_row, is_inside ? i_k : end_k - unit_k);
        if (is_inside) {
            *reinterpret_cast<uint4 *>(unit_place(args.x, i_row, i_k)) = unit;
            sum += sum_of(unit);
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        args.x.scales[i_row] = grid.scale;
        args.x.zeros[i_row] = static_cast<int32_t>(grid.zero);
    }
    if (args.has_sums) {
        add_sum(args, i_row, sum);
    }
}

uint32_t div_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

uint32_t rows_of_tile(uint32_t m)
{
    return m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : 64;
}

/* Stages hold about 16 KiB of the weight: less makes too many copies. Layers of fewer rows have
 * fewer rows for each SM. */
uint32_t stage_blocks_of(uint32_t n)
{
    return n > 12288 ? 1 : n > 6144 ? 2 : 4;
}

} // namespace

struct w8a8_x w8a8_x_of(uint32_t kind, uint32_t m, uint32_t n, uint32_t k, void *workspace)
{
    w8a8_x x = {};
    x.n_rows = rows_of_tile(m);
    x.stage_blocks = stage_blocks_of(n);
    uint32_t block_bytes = x.n_rows * SWIZZLE_K + (kind == W8A8_FP8_GROUP ? x.n_rows * 4 : 0);
    x.stage_bytes = x.stage_blocks * block_bytes;
    uint32_t n_stages = div_up(div_up(k, SWIZZLE_K), x.stage_blocks);
    x.stages = static_cast<uint8_t *>(workspace);
    x.scales =
        reinterpret_cast<float *>(x.stages + static_cast<uint64_t>(n_stages) * x.stage_bytes);
    x.sums = reinterpret_cast<int32_t *>(x.scales + x.n_rows);
    x.zeros = x.sums + x.n_rows;
    return x;
}

uint64_t w8a8_x_bytes(uint32_t kind, uint32_t m, uint32_t n, uint32_t k)
{
    w8a8_x x = w8a8_x_of(kind, m, n, k, nullptr);
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(x.zeros + x.n_rows));
}

int w8a8_lay_out_load(void)
{
    struct cudaFuncAttributes attributes; /* asking for them loads the code */
    return cudaFuncGetAttributes(&attributes, lay_out_x);
}

int w8a8_lay_out_enqueue(const struct w8a8_lay_out_args *args, bool may_overlap, void *stream)
{
    uint32_t n_parts = div_up(args->k, n_threads * unit_k);
    uint32_t n_parts_wanted = div_up(n_ctas_wanted, args->x.n_rows);
    n_parts = args->has_sums ? 1 : n_parts < n_parts_wanted ? n_parts : n_parts_wanted;
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = may_overlap ? 1 : 0;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(n_parts, args->x.n_rows);
    config.blockDim = n_threads;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &overlap;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, lay_out_x, *args);
}
