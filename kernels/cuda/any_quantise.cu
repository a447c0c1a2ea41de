/* any_quantise.cu - rows of x to codes and scales, with the bits of kernels/quant/quant.c.
 *
 * A thread block owns the elements of a row that share a scale: it finds the largest and the
 * smallest, whose order does not matter, in shared memory (two integers), then writes what each
 * code stands for. Magnitudes are compared as integers, where every NaN is above infinity. */
#include "kernels/cuda/any_quantise.h"

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "kernels/cuda/any_values.cuh"

#define THREADS        256u
#define INFINITY_BITS  0x7f800000
#define MAGNITUDE_MASK 0x7fffffff

/* enum gk_act; gk.h is C. any_gemm_simple_row.c holds them equal. */
enum { FP8_TENSOR = 1, FP8_TOKEN, FP8_GROUP, INT8_TENSOR, INT8_TOKEN, INT8_TOKEN_ZERO };

static __device__ float nan_value(void)
{
    return __int_as_float(0x7fc00000);
}

/* Integers in the order of the floats whose bits they are, and back. */
static __device__ int ordered(int bits)
{
    return bits < 0 ? bits ^ MAGNITUDE_MASK : bits;
}

/* Of the block's elements: the largest magnitude, and the smallest and largest of them and 0. */
struct extent {
    int magnitude;
    int low;
    int high;
};

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

/* A scale and a zero point. */
struct grid {
    float scale;
    float zero;
};

static __device__ float fp8_scale(float largest, bool is_pow2)
{
    if (__float_as_int(largest) >= INFINITY_BITS) {
        return nan_value();
    }
    float scale = fmaxf(__fdiv_rn(largest, 448.0f), 1.0f / (448.0f * 512.0f));
    return is_pow2 ? __int_as_float((__float_as_int(scale) + 0x7fffff) & INFINITY_BITS) : scale;
}

static __device__ float int8_scale(float range, float n_steps)
{
    bool is_finite = (__float_as_int(range) & MAGNITUDE_MASK) < INFINITY_BITS;
    return is_finite ? fmaxf(__fdiv_rn(range, n_steps), 0x1p-40f) : nan_value();
}

static __device__ struct grid int8_zero_grid(const struct extent &extent)
{
    float low = __int_as_float(ordered(extent.low));
    float high = __int_as_float(ordered(extent.high));
    float scale = int8_scale(__fsub_rn(high, low), 255.0f);
    float zero = __fsub_rn(-128.0f, __fdiv_rn(low, scale));
    return {scale, rintf(fminf(fmaxf(zero, -128.0f), 127.0f))};
}

static __device__ struct grid grid_of(const struct any_quantise &quantise,
                                      const struct extent &extent)
{
    float largest = __int_as_float(extent.magnitude);
    switch (quantise.act) {
    case FP8_TENSOR:
        return {quantise.act_scale, 0.0f};
    case FP8_TOKEN:
    case FP8_GROUP:
        return {fp8_scale(largest, quantise.is_pow2 != 0), 0.0f};
    case INT8_TENSOR:
        return {largest != largest ? nan_value() : quantise.act_scale, (float)quantise.act_zero};
    case INT8_TOKEN:
        return {int8_scale(largest, 127.0f), 0.0f};
    default:
        return int8_zero_grid(extent);
    }
}

/* What the code of x stands for: with INT8 the code less the zero point. */
static __device__ float quantised(const struct any_quantise &quantise, const struct grid &grid,
                                  float x)
{
    float value = __fdiv_rn(x, grid.scale);
    if (quantise.act <= FP8_GROUP) {
        return e4m3_value(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3));
    }
    value = value == value ? value : 0.0f;
    value = fminf(fmaxf(value, __fsub_rn(-128.0f, grid.zero)), __fsub_rn(127.0f, grid.zero));
    return rintf(value);
}

/* The scale of rows that come quantised, and what a code of theirs stands for. */
static __device__ struct grid given_grid(const struct any_quantise &quantise, uint32_t i_row,
                                         uint32_t i_group)
{
    bool is_static = quantise.act == FP8_TENSOR || quantise.act == INT8_TENSOR;
    float scale = is_static ? quantise.act_scale : quantise.scale_rows[i_row][i_group];
    return {scale, quantise.act == INT8_TENSOR ? (float)quantise.act_zero : 0.0f};
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
        grid = grid_of(quantise, extent_of(row, quantise.x_dtype, begin, end));
    }
    for (uint32_t i = begin + threadIdx.x; i < end; i += THREADS) {
        values[i] = is_given ? given(quantise, grid, row, i)
                             : quantised(quantise, grid, load(row, quantise.x_dtype, i));
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
