/* stage_rows.cu - rows of x from CPU memory to the GPU's, ahead of the product.
 *
 * A thread copies 16 bytes where the row allows it, else one: the rows of a launch are on their way
 * over the bus all at once, so that the price is about one trip. The copy engine would take one
 * command a row. */
#include "gk/cuda.h"

#include <cuda_runtime.h>
#include <string.h>

#include "kernels/cuda/rows.h"

#define THREADS    256u
#define UNIT_BYTES 16u

struct stage {
    const void *rows[CUDA_ROWS_MAX];
    uint8_t *target;
    uint64_t row_bytes;
    uint64_t stride_bytes;
};

static __global__ void __launch_bounds__(THREADS) stage_rows(const __grid_constant__ stage stage)
{
    const uint8_t *row = (const uint8_t *)stage.rows[blockIdx.y];
    uint8_t *target = stage.target + blockIdx.y * stage.stride_bytes;
    uint64_t first = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * UNIT_BYTES;
    if ((uintptr_t)row % UNIT_BYTES == 0 && first + UNIT_BYTES <= stage.row_bytes) {
        *(uint4 *)(target + first) = *(const uint4 *)(row + first);
        return;
    }
    for (uint64_t i = first; i < min(first + UNIT_BYTES, stage.row_bytes); i++) {
        target[i] = row[i];
    }
}

int gk_cuda_stage_rows(const void *const *rows, uint32_t m, uint64_t row_bytes, void *target,
                       uint64_t stride_bytes, void *stream)
{
    struct stage stage = {};
    memcpy(stage.rows, rows, m * sizeof(rows[0]));
    stage.target = (uint8_t *)target;
    stage.row_bytes = row_bytes;
    stage.stride_bytes = stride_bytes;
    uint64_t block_bytes = THREADS * UNIT_BYTES;
    dim3 grid((unsigned)((row_bytes + block_bytes - 1) / block_bytes), m);
    stage_rows<<<grid, THREADS, 0, (cudaStream_t)stream>>>(stage);
    return cudaPeekAtLastError();
}

int gk_cuda_stage_load(void)
{
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, stage_rows);
}
