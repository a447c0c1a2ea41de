/* finish_rows.cu - bias and rounding for kernels that leave sums in the workspace: a thread an
 * element, rows a stride apart or wherever the table says. */
#include "kernels/cuda/finish_rows.h"

#include <cuda_runtime.h>

#include "kernels/cuda/any_values.cuh"

#define THREADS 256u

/* To nearest, ties to even, as the library does. */
static __device__ void round_to(void *array, enum dtype dtype, uint32_t i, float value)
{
    if (dtype == DTYPE_F32) {
        ((float *)array)[i] = value;
    } else if (dtype == DTYPE_F16) {
        ((__half *)array)[i] = __float2half_rn(value);
    } else {
        ((__nv_bfloat16 *)array)[i] = __float2bfloat16_rn(value);
    }
}

static __device__ void *row_of(const struct finish_rows &finish, uint32_t i_m)
{
    return finish.first_y != nullptr ? (uint8_t *)finish.first_y + i_m * finish.y_stride_bytes
                                     : finish.y[i_m];
}

static __global__ void __launch_bounds__(THREADS)
    finish_rows(const __grid_constant__ struct finish_rows finish)
{
    uint32_t i_n = blockIdx.x * THREADS + threadIdx.x;
    if (i_n >= finish.n) {
        return;
    }
    float sum = load(finish.sums, finish.sums_dtype, blockIdx.y * finish.stride + i_n);
    if (finish.bias_dtype != DTYPE_NONE) {
        sum += load(finish.bias, finish.bias_dtype, i_n);
    }
    round_to(row_of(finish, blockIdx.y), finish.y_dtype, i_n, sum);
}

int finish_rows_enqueue(const struct finish_rows *finish, void *stream)
{
    dim3 grid((finish->n + THREADS - 1) / THREADS, finish->m);
    finish_rows<<<grid, THREADS, 0, (cudaStream_t)stream>>>(*finish);
    return cudaPeekAtLastError();
}

int finish_rows_load(void)
{
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, finish_rows);
}
