/* finish_rows.cu - bias and rounding for kernels that leave f32 sums in the workspace: a thread an
 * element, rows wherever the table says. */
#include "kernels/cuda/finish_rows.h"

#include <cuda_runtime.h>

#include "kernels/cuda/any_values.cuh"

#define THREADS 256u

static __global__ void __launch_bounds__(THREADS)
    finish_rows(const __grid_constant__ struct finish_rows finish)
{
    uint32_t i_n = blockIdx.x * THREADS + threadIdx.x;
    if (i_n >= finish.n) {
        return;
    }
    float sum = finish.sums[blockIdx.y * finish.stride + i_n];
    if (finish.bias_dtype != DTYPE_NONE) {
        sum += load(finish.bias, finish.bias_dtype, i_n);
    }
    store(finish.y[blockIdx.y], finish.y_dtype, i_n, sum);
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
