/* fake_cublaslt.c - see fake_cublaslt.h. An element of y is no sum, but as good as one: it depends
 * on its row of x, on its column of W, and on the order of the algorithm. */
#include "tests/unit/kernels/fake_cublaslt.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "gk/cuda.h"
#include "ipc/base/half.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/finish_rows.h"

const struct fake_algorithm *fake_algorithms;
uint32_t fake_n_algorithms;
bool fake_has_no_memory;
bool fake_is_lost_at_product;
int32_t fake_n_held;
uint32_t fake_n_opened;
uint32_t fake_n_products;
uint64_t fake_version = 130100;

static float clock_msec;
static bool is_after_product;

/* ---- the runtime ---- */

cudaError_t cudaMalloc(void **ret_memory, size_t size_bytes)
{
    if (fake_has_no_memory) {
        return cudaErrorMemoryAllocation;
    }
    *ret_memory = aligned_alloc(256, (size_bytes + 255) / 256 * 256);
    is_after_product = false;
    fake_n_held++;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    fake_n_held -= memory != NULL;
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned int flags)
{
    (void)flags;
    *ret_stream = (cudaStream_t)(uintptr_t)1;
    fake_n_held++;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)stream;
    fake_n_held--;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return fake_is_lost_at_product && is_after_product ? cudaErrorLaunchFailure : cudaSuccess;
}

/* An event is where its time is. */
cudaError_t cudaEventCreate(cudaEvent_t *ret_event)
{
    *ret_event = malloc(sizeof(float));
    fake_n_held++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    fake_n_held--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    *(float *)(void *)event = clock_msec;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ret_msec, cudaEvent_t start, cudaEvent_t end)
{
    *ret_msec = *(float *)(void *)end - *(float *)(void *)start;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t size_bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    memcpy(target, source, size_bytes);
    return cudaSuccess;
}

/* The library's workspace is nobody's here, and large. */
cudaError_t cudaMemsetAsync(void *memory, int byte, size_t size_bytes, cudaStream_t stream)
{
    (void)stream;
    memset(memory, byte, size_bytes == CUBLASLT_WORKSPACE_BYTES ? 0 : size_bytes);
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure" : "cudaErrorOther";
}

/* ---- kernels of ours ---- */

int gk_cuda_digest(const void *words, uint64_t n_words, struct gk_digest *digest, void *stream)
{
    (void)stream;
    gk_digest_add(digest, words, 0, n_words);
    return cudaSuccess;
}

/* Of bf16 only, and without a table of rows. */
int finish_rows_enqueue(const struct finish_rows *finish, void *stream)
{
    (void)stream;
    const float *sums = finish->sums;
    const uint16_t *bias = finish->bias;
    for (uint32_t i = 0; i < finish->m; i++) {
        uint8_t *row = (uint8_t *)finish->first_y + i * finish->y_stride_bytes;
        for (uint32_t j = 0; j < finish->n; j++) {
            float sum = sums[i * finish->stride + j];
            sum += finish->bias_dtype != DTYPE_NONE ? bf16_to_f32(bias[j]) : 0;
            ((uint16_t *)(void *)row)[j] = bf16_from_f32(sum);
        }
    }
    return cudaSuccess;
}

/* ---- the library ---- */

uint32_t fake_index_of(const void *algorithm)
{
    const cublasLtMatmulAlgo_t *opaque = algorithm;
    return (uint32_t)opaque->data[0];
}

const char *cublaslt_open(void)
{
    fake_n_opened++;
    return NULL;
}

uint64_t cublaslt_version(void)
{
    return fake_version;
}

static const struct fake_algorithm *named(const cublasLtMatmulAlgo_t *algorithm)
{
    return &fake_algorithms[fake_index_of(algorithm)];
}

uint32_t cublaslt_algorithms(const struct cublaslt_gemm *gemm, cublasLtMatmulAlgo_t *ret_algorithms,
                             uint32_t n_max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < fake_n_algorithms && n < n_max; i++) {
        uint32_t ranked_max = fake_algorithms[i].ranked_max;
        if (ranked_max == 0 || gemm->m <= ranked_max) {
            ret_algorithms[n++] = (cublasLtMatmulAlgo_t){.data = {i}};
        }
    }
    return n;
}

/* What is no algorithm of its own it declines, as the library does. */
bool cublaslt_can(const struct cublaslt_gemm *gemm, const cublasLtMatmulAlgo_t *algorithm)
{
    if (fake_index_of(algorithm) >= fake_n_algorithms) {
        return false;
    }
    bool is_dense = gemm->x_stride == gemm->k;
    return gemm->m != named(algorithm)->refused_m && (is_dense || !named(algorithm)->is_dense_only);
}

static float element(const struct cublaslt_gemm *gemm, const struct cublaslt_pointers *at,
                     enum fake_order order, uint32_t i, uint32_t j)
{
    float x = bf16_to_f32(((const uint16_t *)at->x)[i * gemm->x_stride]);
    float w = bf16_to_f32(((const uint16_t *)at->w)[j]);
    uint32_t n_bits = order == FAKE_ORDER_BY_M ? gemm->m % 2 : (uint32_t)order;
    float bias = gemm->bias_dtype != DTYPE_NONE ? bf16_to_f32(((const uint16_t *)at->bias)[j]) : 0;
    return x * w * (1 + 0x1p-8f * (float)n_bits) + bias; /* seen in 16 bits, too */
}

bool cublaslt_is_declined(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED;
}

const char *cublaslt_status_name(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED" : "another";
}

cublasStatus_t cublaslt_multiply(const struct cublaslt_gemm *gemm,
                                 const struct cublaslt_pointers *at,
                                 const cublasLtMatmulAlgo_t *algorithm, void *stream)
{
    (void)stream;
    const struct fake_algorithm *fake = named(algorithm);
    is_after_product = true;
    fake_n_products++;
    if (fake_is_lost_at_product || fake->fails) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    bool is_many = gemm->m > fake->few_rows && fake->many_msec > 0;
    for (uint32_t i = 0; i < gemm->m; i++) {
        for (uint32_t j = 0; j < gemm->n; j++) {
            float value = element(gemm, at, fake->order, i, j);
            uint64_t i_y = i * gemm->y_stride + j;
            uint32_t bits;
            memcpy(&bits, &value, sizeof(bits));
            if (gemm->y_dtype == DTYPE_F32) {
                ((float *)at->y)[i_y] = value;
            } else {
                uint16_t rounded = bf16_from_f32(value);
                ((uint16_t *)at->y)[i_y] = fake->truncates ? (uint16_t)(bits >> 16) : rounded;
            }
        }
    }
    clock_msec += is_many ? fake->many_msec : fake->msec;
    return CUBLAS_STATUS_SUCCESS;
}
