/* plain_product.c - see plain_product.h.
 *
 * What all rows give at once is kept on the device, and every other product of some of these rows
 * is compared with it there, by digests: of 64 MiB, copies to the CPU would take longer than all
 * products. W is the weight's own, which costs no memory. */
#include "kernels/cuda/plain_product.h"

#include <stdlib.h>

#include "gk/cuda.h"
#include "ipc/base/noise.h"
#include "ipc/base/num.h"
#include "kernels/cuda/finish_rows.h"

#define POISON_BYTE 0xff
/* Noise repeats itself after so many elements, a prime, so that no two rows are alike. */
#define NOISE_ELEMS 1048573u

/* ---- memory ---- */

static uint64_t y_row_bytes(const struct cublaslt_gemm *gemm)
{
    return gemm->y_stride * dtype_bytes(gemm->y_dtype);
}

/* Of x, the beginning of which is the bias, too. */
static uint64_t x_elems(const struct cublaslt_gemm *gemm)
{
    return num_max(gemm->m * gemm->x_stride, gemm->n);
}

/* Repeat what an array of n_elems 16-bit elements begins with, n_filled of them. */
static cudaError_t repeat(uint8_t *array, uint64_t n_filled, uint64_t n_elems, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    for (uint64_t n; error == cudaSuccess && n_filled < n_elems; n_filled += n) {
        n = num_min(n_filled / NOISE_ELEMS * NOISE_ELEMS, n_elems - n_filled);
        error =
            cudaMemcpyAsync(array + n_filled * 2, array, n * 2, cudaMemcpyDeviceToDevice, stream);
    }
    return error;
}

/* Something that uses every bit of a mantissa. On the stream that reads it: a copy on another one
 * may still be under way when cudaMemcpy() returns. */
static cudaError_t fill(struct plain_product *product, void *array, uint64_t n_elems)
{
    uint64_t n_noise = num_min(n_elems, NOISE_ELEMS);
    uint16_t *noise = malloc(n_noise * sizeof(*noise));
    if (noise == NULL) {
        return cudaErrorMemoryAllocation;
    }
    noise_fill(noise, product->gemm.dtype, n_noise);
    cudaError_t error = cudaMemcpyAsync(array, noise, n_noise * sizeof(*noise),
                                        cudaMemcpyHostToDevice, product->stream);
    error = error != cudaSuccess ? error : repeat(array, n_noise, n_elems, product->stream);
    error = error != cudaSuccess ? error : cudaStreamSynchronize(product->stream);
    free(noise);
    return error;
}

int plain_product_replace_w(struct plain_product *product)
{
    uint64_t n_elems = product->gemm.k * product->gemm.w_stride;
    cudaError_t error = cudaMalloc(&product->noise_w, n_elems * 2);
    product->at.w = product->noise_w;
    return error != cudaSuccess ? error : fill(product, product->noise_w, n_elems);
}

int plain_product_init(struct plain_product *product, const struct cublaslt_gemm *sums,
                       const struct cublaslt_gemm *rounded, const void *packed)
{
    const struct cublaslt_gemm *larger = rounded->m > sums->m ? rounded : sums;
    uint64_t y_bytes = num_max(sums->m * y_row_bytes(sums), rounded->m * y_row_bytes(rounded));
    uint64_t x_bytes = num_align_up(x_elems(larger) * 2, 256);
    *product = (struct plain_product){.gemm = *larger};
    y_bytes = num_align_up(y_bytes, 256);
    cudaError_t error = cudaMalloc((void **)&product->memory,
                                   CUBLASLT_WORKSPACE_BYTES + x_bytes + 2 * y_bytes + 256);
    error = error != cudaSuccess
                ? error
                : cudaStreamCreateWithFlags(&product->stream, cudaStreamNonBlocking);
    error = error != cudaSuccess ? error : cudaEventCreate(&product->start);
    error = error != cudaSuccess ? error : cudaEventCreate(&product->end);
    if (error != cudaSuccess) {
        return error;
    }
    uint8_t *x = product->memory + CUBLASLT_WORKSPACE_BYTES;
    product->at = (struct cublaslt_pointers){
        .w = packed, .x = x, .y = x + x_bytes, .bias = x, .workspace = product->memory};
    product->expected = x + x_bytes + y_bytes;
    product->digests = (struct gk_digest *)(void *)(x + x_bytes + 2 * y_bytes);
    return fill(product, x, x_elems(larger));
}

int plain_product_finish(struct plain_product *product, int error)
{
    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(product->stream);
    }
    if (product->start != NULL) {
        (void)cudaEventDestroy(product->start);
    }
    if (product->end != NULL) {
        (void)cudaEventDestroy(product->end);
    }
    if (product->stream != NULL) {
        (void)cudaStreamDestroy(product->stream);
    }
    (void)cudaFree(product->noise_w);
    (void)cudaFree(product->memory);
    return error;
}

void plain_product_begin(struct plain_product *product, const struct cublaslt_gemm *gemm)
{
    product->gemm = *gemm;
    product->m_max = gemm->m;
}

/* ---- outcomes ---- */

static enum plain_outcome fail(struct plain_product *product, const char *name)
{
    if (product->failure == NULL) {
        product->failure = name;
        product->failure_m = product->gemm.m;
    }
    return PLAIN_FAILED;
}

/* What the runtime remembers is taken from it: the next to ask is somebody else. */
static enum plain_outcome outcome_of(struct plain_product *product, cudaError_t error)
{
    if (error == cudaSuccess) {
        return PLAIN_GOOD;
    }
    (void)cudaGetLastError();
    return fail(product, cudaGetErrorName(error));
}

static enum plain_outcome enqueue(struct plain_product *product, const struct cublaslt_pointers *at,
                                  const cublasLtMatmulAlgo_t *algorithm)
{
    cublasStatus_t status = cublaslt_multiply(&product->gemm, at, algorithm, product->stream);
    return status == CUBLAS_STATUS_SUCCESS ? PLAIN_GOOD
           : cublaslt_is_declined(status)  ? PLAIN_DECLINED
                                           : fail(product, cublaslt_status_name(status));
}

/* ---- comparing ---- */

bool plain_product_can(const struct plain_product *product, const cublasLtMatmulAlgo_t *algorithm,
                       uint32_t m)
{
    struct cublaslt_gemm gemm = product->gemm, askew = product->gemm;
    uint32_t x_step = CUBLASLT_ALIGNMENT / 2;
    uint32_t y_step = CUBLASLT_ALIGNMENT / dtype_bytes(gemm.y_dtype);
    gemm.m = askew.m = m;
    askew.x_stride = (gemm.x_stride / x_step | 1) * x_step;
    askew.y_stride = (gemm.y_stride / y_step | 1) * y_step;
    return cublaslt_can(&gemm, algorithm) && cublaslt_can(&askew, algorithm);
}

/* The product of m rows from first_m on. */
static enum plain_outcome multiply(struct plain_product *product,
                                   const cublasLtMatmulAlgo_t *algorithm, uint32_t first_m,
                                   uint32_t m, void *y)
{
    struct cublaslt_pointers at = product->at;
    product->gemm.m = m;
    at.x = (const uint8_t *)at.x + first_m * product->gemm.x_stride * 2;
    at.y = y;
    enum plain_outcome outcome = outcome_of(
        product, cudaMemsetAsync(y, POISON_BYTE, m * y_row_bytes(&product->gemm), product->stream));
    return outcome != PLAIN_GOOD ? outcome : enqueue(product, &at, algorithm);
}

/* Is in m rows at a what is in those at b? */
static enum plain_outcome compare(struct plain_product *product, const void *a, const void *b,
                                  uint32_t m)
{
    struct gk_digest got[2];
    uint64_t n_words = m * y_row_bytes(&product->gemm) / sizeof(uint64_t);
    cudaStream_t stream = product->stream;
    cudaError_t error = cudaMemsetAsync(product->digests, 0, sizeof(got), stream);
    error = error != cudaSuccess
                ? error
                : (cudaError_t)gk_cuda_digest(a, n_words, &product->digests[0], stream);
    error = error != cudaSuccess
                ? error
                : (cudaError_t)gk_cuda_digest(b, n_words, &product->digests[1], stream);
    error = error != cudaSuccess ? error
                                 : cudaMemcpyAsync(got, product->digests, sizeof(got),
                                                   cudaMemcpyDeviceToHost, stream);
    error = error != cudaSuccess ? error : cudaStreamSynchronize(stream);
    bool is_other = error == cudaSuccess && !gk_digest_is_same(&got[0], &got[1]);
    return is_other ? PLAIN_OTHER_BITS : outcome_of(product, error);
}

static const void *expected_row(const struct plain_product *product, uint32_t i_m)
{
    return (const uint8_t *)product->expected + i_m * y_row_bytes(&product->gemm);
}

enum plain_outcome plain_product_compare(struct plain_product *product,
                                         const cublasLtMatmulAlgo_t *algorithm, uint32_t first_m,
                                         uint32_t m)
{
    enum plain_outcome outcome = multiply(product, algorithm, first_m, m, product->at.y);
    return outcome != PLAIN_GOOD
               ? outcome
               : compare(product, product->at.y, expected_row(product, first_m), m);
}

bool plain_product_shows_order(struct plain_product *product)
{
    return compare(product, expected_row(product, 0), expected_row(product, 1), 1) ==
           PLAIN_OTHER_BITS;
}

/* ---- what is expected ---- */

enum plain_outcome plain_product_expect(struct plain_product *product,
                                        const cublasLtMatmulAlgo_t *algorithm)
{
    return multiply(product, algorithm, 0, product->m_max, product->expected);
}

/* Of the sums of m rows, which are at y, from first_m on. */
static cudaError_t round_rows(struct plain_product *product, const struct cublaslt_gemm *rounded,
                              uint32_t first_m, uint32_t m)
{
    const struct finish_rows finish = {
        .sums = product->at.y,
        .stride = rounded->y_stride,
        .bias = product->at.bias,
        .m = m,
        .n = rounded->n,
        .sums_dtype = DTYPE_F32,
        .bias_dtype = rounded->bias_dtype,
        .y_dtype = rounded->y_dtype,
        .first_y = (uint8_t *)product->expected + first_m * y_row_bytes(rounded),
        .y_stride_bytes = y_row_bytes(rounded),
    };
    return (cudaError_t)finish_rows_enqueue(&finish, product->stream);
}

/* A call that rounds has more rows than one for sums. */
enum plain_outcome plain_product_expect_rounded(struct plain_product *product,
                                                const struct plain_choice *sums,
                                                const struct cublaslt_gemm *rounded)
{
    enum plain_outcome outcome = PLAIN_GOOD;
    for (uint32_t i = 0; outcome == PLAIN_GOOD && i < rounded->m; i += sums->rows_max) {
        uint32_t m = (uint32_t)num_min(rounded->m - i, sums->rows_max);
        outcome = multiply(product, plain_algorithm(sums, m), i, m, product->at.y);
        outcome = outcome != PLAIN_GOOD ? outcome
                                        : outcome_of(product, round_rows(product, rounded, i, m));
    }
    return outcome;
}

/* ---- timing ---- */

static cudaError_t cool(struct plain_product *product)
{
    uint64_t y_bytes = product->m_max * y_row_bytes(&product->gemm);
    cudaError_t error =
        cudaMemsetAsync(product->at.workspace, 0, CUBLASLT_WORKSPACE_BYTES, product->stream);
    return error != cudaSuccess ? error
                                : cudaMemsetAsync(product->at.y, 0, y_bytes, product->stream);
}

enum plain_outcome plain_product_time(struct plain_product *product,
                                      const cublasLtMatmulAlgo_t *algorithm, uint32_t m,
                                      float *ret_msec)
{
    product->gemm.m = m;
    cudaError_t error = cool(product);
    error = error != cudaSuccess ? error : cudaEventRecord(product->start, product->stream);
    enum plain_outcome outcome = outcome_of(product, error);
    outcome = outcome != PLAIN_GOOD ? outcome : enqueue(product, &product->at, algorithm);
    if (outcome != PLAIN_GOOD) {
        return outcome;
    }
    error = cudaEventRecord(product->end, product->stream);
    error = error != cudaSuccess ? error : cudaEventSynchronize(product->end);
    error =
        error != cudaSuccess ? error : cudaEventElapsedTime(ret_msec, product->start, product->end);
    return outcome_of(product, error);
}
