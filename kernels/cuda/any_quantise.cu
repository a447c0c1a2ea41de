/* any_quantise.cu - rows of x to codes and scales, with the bits of kernels/quant/quant.c.
 *
 * A thread block owns the elements of a row that share a scale: it finds the largest and the
 * smallest, whose order does not matter, in shared memory (two integers), then writes what each
 * code stands for. Magnitudes are compared as integers, where every NaN is above infinity. */
#include "kernels/cuda/any_quantise.h"

#include <cuda_runtime.h>

#include "kernels/cuda/any_values.cuh"
#include "kernels/cuda/quantise_rules.cuh"

#define THREADS 256u

static __device__ struct extent extent_of(const void *row, enum dtype dtype, uint32_t begin,
                                          uint32_t end)
{
    __shared__ struct extent shared;
    if (threadIdx.x == 0) {
        shared = {0, 0, 0};
    }
    __syncthreads();
    for (uint32_t i = begin + threadIdx.x; i < end; i += THREADS) {
        int bits = __float_as_int(load(row, dtype, i));
        atomicMax(&shared.magnitude, bits & MAGNITUDE_MASK);
        atomicMin(&shared.low, ordered(bits));
        atomicMax(&shared.high, ordered(bits));
    }
    __syncthreads();
    return shared;
}

/* What the code of x stands for: with INT8 the code less the zero point. */
static __device__ float quantised(uint32_t act, const struct grid &grid, float x)
{
    return act <= FP8_GROUP ? e4m3_value(e4m3_code(grid, x)) : int8_value(grid, x);
}

/* The scale of rows that come quantised, and what a code of theirs stands for. */
static __device__ struct grid given_grid(const struct any_quantise &quantise, uint32_t i_row,
                                         uint32_t i_group)
{
    bool is_static = quantise.rule.act == FP8_TENSOR || quantise.rule.act == INT8_TENSOR;
    float scale = is_static ? quantise.rule.act_scale : quantise.scale_rows[i_row][i_group];
    return {scale, quantise.rule.act == INT8_TENSOR ? (float)quantise.rule.act_zero : 0.0f};
}

static __device__ float given(const struct any_quantise &quantise, const struct grid &grid,
                              const void *row, uint32_t i)
{
    return quantise.x_dtype == DTYPE_I8 ? __fsub_rn((float)((const int8_t *)row)[i], grid.zero)
                                        : e4m3_value(((const uint8_t *)row)[i]);
}

static __global__ void __launch_bounds__(THREADS)
    any_quantise(const __grid_constant__ struct any_quantise quantise)
{
    const void *row = quantise.rows[blockIdx.y];
    float *values = quantise.values + (uint64_t)blockIdx.y * quantise.k;
    uint32_t begin = blockIdx.x * quantise.group_k;
    uint32_t end = min(begin + quantise.group_k, quantise.k);
    bool is_given = quantise.x_dtype == DTYPE_I8 || quantise.x_dtype == DTYPE_F8_E4M3;
    struct grid grid;
    if (is_given) {
        grid = given_grid(quantise, blockIdx.y, blockIdx.x);
    } else {
        grid = grid_of(quantise.rule, extent_of(row, quantise.x_dtype, begin, end));
    }
    for (uint32_t i = begin + threadIdx.x; i < end; i += THREADS) {
        values[i] = is_given ? given(quantise, grid, row, i)
                             : quantised(quantise.rule.act, grid, load(row, quantise.x_dtype, i));
    }
    if (threadIdx.x == 0) {
        quantise.scales[(uint64_t)blockIdx.y * quantise.n_scales + blockIdx.x] = grid.scale;
    }
}

int any_quantise_enqueue(const struct any_quantise *quantise, void *stream)
{
    any_quantise<<<dim3(quantise->n_scales, quantise->m), THREADS, 0, (cudaStream_t)stream>>>(
        *quantise);
    return cudaPeekAtLastError();
}

int any_quantise_load(void)
{
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, any_quantise);
}
