/* finish_rows.h - between C and the device code (nvcc) that ends a product whose sums are in
 * memory. */
#pragma once

#include <stdint.h>

#include "ipc/base/dtype.h"
#include "kernels/cuda/rows.h"

/* y[i][j] = sums[i][j] + bias[j], rounded once to y's type; a NaN is that of the GPU's own
 * instructions, 0x7fff or 0x7fffffff. */
struct finish_rows {
    const void *sums; /* (m, n), stride elements apart */
    uint64_t stride;
    const void *bias; /* (n) of bias_dtype; unused with DTYPE_NONE */
    uint32_t m, n;
    enum dtype sums_dtype; /* F32, F16, BF16 */
    enum dtype bias_dtype;
    enum dtype y_dtype; /* F32, F16, BF16 */
    void *first_y;      /* of rows y_stride_bytes apart; NULL: up to CUDA_ROWS_MAX, each at y[i] */
    uint64_t y_stride_bytes;
    void *y[CUDA_ROWS_MAX];
};

#ifdef __cplusplus
extern "C" {
#endif

/* finish_rows_enqueue() - 0 or a cudaError_t. finish_rows_load() - the same. */
int finish_rows_enqueue(const struct finish_rows *finish, void *stream);
int finish_rows_load(void);

#ifdef __cplusplus
}
#endif
