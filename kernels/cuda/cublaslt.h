/* cublaslt.h - the vendor's dense GEMM library, found at run time: machines without it, or without
 * a GPU, run the same program. */
#pragma once

#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/dtype.h"

#define CUBLASLT_WORKSPACE_BYTES (32ull << 20) /* what the vendor recommends for Hopper */
#define CUBLASLT_ALIGNMENT       16u           /* of x, y and their rows; the others have 256 */

/* y (m, n) = x (m, k) W^T + bias, summed in f32, row-major, W stored k by n: all strides in
 * elements. */
struct cublaslt_gemm {
    uint32_t m, n, k;
    enum dtype dtype;      /* of x and W: F16, BF16 */
    enum dtype y_dtype;    /* F32, or that of x */
    enum dtype bias_dtype; /* DTYPE_NONE, or that of y */
    uint64_t w_stride;
    uint64_t x_stride;
    uint64_t y_stride;
};

struct cublaslt_pointers {
    const void *w;
    const void *x;
    void *y;
    const void *bias; /* (n); unused with DTYPE_NONE */
    void *workspace;  /* CUBLASLT_WORKSPACE_BYTES */
};

/* cublaslt_open() - the library, and a handle of the current device. Off the submit path; any
 * thread; later calls are quick. NULL, or why not (static). */
const char *cublaslt_open(void);

/* cublaslt_version() - of the library, once cublaslt_open() has succeeded: 130100 for 13.1.0. */
uint64_t cublaslt_version(void);

/* cublaslt_algorithms() - up to n_max for that GEMM, as the library ranks them, that add up each
 * element in one piece; the number. */
uint32_t cublaslt_algorithms(const struct cublaslt_gemm *gemm, cublasLtMatmulAlgo_t *ret_algorithms,
                             uint32_t n_max);

/* cublaslt_can() - does the algorithm run that GEMM, too? */
bool cublaslt_can(const struct cublaslt_gemm *gemm, const cublasLtMatmulAlgo_t *algorithm);

/* cublaslt_multiply() - append the product to a cudaStream_t, once cublaslt_open() has succeeded
 * for the current device; else it is declined. cublaslt_is_declined() - is that of this one
 * product, and not of the device? cublaslt_status_name() - "CUBLAS_STATUS_..." (static). */
cublasStatus_t cublaslt_multiply(const struct cublaslt_gemm *gemm,
                                 const struct cublaslt_pointers *pointers,
                                 const cublasLtMatmulAlgo_t *algorithm, void *stream);
bool cublaslt_is_declined(cublasStatus_t status);
const char *cublaslt_status_name(cublasStatus_t status);

/* cublaslt_enqueue() - cublaslt_multiply() as launches want it: 0 or a cudaError_t,
 * cudaErrorNotSupported where the product is declined. */
int cublaslt_enqueue(const struct cublaslt_gemm *gemm, const struct cublaslt_pointers *pointers,
                     const cublasLtMatmulAlgo_t *algorithm, void *stream);
