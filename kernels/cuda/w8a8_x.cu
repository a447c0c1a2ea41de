/* w8a8_x.cu - rows of x to 8-bit codes, laid out for w8a8_gemm.cu (w8a8_args.h); codes and scales
 * have the bits of kernels/quant/quant.c.
 *
 * A thread makes units, each one 16-byte store. What most launches are is w8a8_held_rows.cuh's;
 * here is the rest (w8a8_quantise.cuh): f32 rows, static scales, zero points, k beyond what
 * registers hold. There, where a whole row shares a scale, each thread block that has a part of the
 * row goes over all of it first, which is cheaper than a launch that meets. Rows that come
 * quantised are copied. Rows from m on are zeros. */
#include <cuda_runtime.h>

#include "kernels/cuda/div_up.cuh"
#include "kernels/cuda/overlap_launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/w8a8.h"
#include "kernels/cuda/w8a8_held_rows.cuh"
#include "kernels/cuda/w8a8_place.cuh"
#include "kernels/cuda/w8a8_quantise.cuh"

namespace {

constexpr uint32_t n_threads = 512;
constexpr uint32_t n_ctas_wanted = 264; /* twice the SMs of an H200 */

/* Of a whole row; the same for every thread. */
__device__ extent row_extent(const w8a8_lay_out_args &args, const void *row)
{
    __shared__ extent of_warps[n_threads / 32];
    extent one = {0, 0, 0};
#pragma unroll 4
    for (uint32_t i_k = threadIdx.x * unit_k; i_k < args.k; i_k += n_threads * unit_k) {
        float values[unit_k];
        load_unit(row, static_cast<dtype>(args.x_dtype), i_k, args.k, values);
        one = join(one, extent_of(args.rule, values));
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

/* Scale and zero point of a row; the same for every thread. */
__device__ grid row_grid(const w8a8_lay_out_args &args, uint32_t i_row)
{
    bool is_read = i_row < args.m && has_row_extent(args);
    return is_read ? grid_of(args.rule, row_extent(args, row_of(args, i_row)))
                   : known_grid(args, i_row);
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
        x_unit unit = make_unit(args, grid, i_row, is_inside ? i_k : end_k - unit_k);
        if (is_inside) {
            store_unit(args, i_row, i_k, unit.codes);
            sum += sum_of(unit.codes);
        }
        if (is_inside && args.kind == W8A8_FP8_GROUP && i_k % SWIZZLE_K == 0) {
            *scale_place(args.x, i_row, i_k / SWIZZLE_K) = unit.scale;
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

uint32_t align_up(uint32_t value, uint32_t to)
{
    return div_up(value, to) * to;
}

uint32_t rows_of_tile(uint32_t m)
{
    return m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : m <= 64 ? 64 : align_up(m, W8A8_PREFILL_ROWS);
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
    x.stage_blocks = m > CUDA_ROWS_MAX ? 1 : stage_blocks_of(n);
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
    cudaError_t r = cudaFuncGetAttributes(&attributes, lay_out_x);
    return r != cudaSuccess ? r : load_held_instances();
}

int w8a8_lay_out_enqueue(const struct w8a8_lay_out_args *args, bool may_overlap, void *stream)
{
    void *parameters[] = {const_cast<w8a8_lay_out_args *>(args)};
    const held_instance *held = find_held_instance(*args);
    if (held != nullptr) {
        auto function = args->rule.act == INT8_TOKEN ? held->int8 : held->e4m3;
        launch_shape shape = {dim3(div_up(args->k, held_k_of(*held)), args->x.n_rows),
                              held->n_threads, 0};
        return overlap_launch(reinterpret_cast<const void *>(function), shape, may_overlap,
                              parameters, stream);
    }
    uint32_t n_parts = div_up(args->k, n_threads * unit_k);
    uint32_t n_parts_wanted = div_up(n_ctas_wanted, args->x.n_rows);
    n_parts = args->has_sums ? 1 : n_parts < n_parts_wanted ? n_parts : n_parts_wanted;
    launch_shape shape = {dim3(n_parts, args->x.n_rows), n_threads, 0};
    return overlap_launch(reinterpret_cast<const void *>(lay_out_x), shape, may_overlap, parameters,
                          stream);
}
