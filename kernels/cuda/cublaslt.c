/* cublaslt.c - see cublaslt.h. Descriptors live on the stack: the library's *Init() calls exist for
 * that, and nothing is allocated in a launch. */
#include "kernels/cuda/cublaslt.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "ipc/base/num.h"

#define NAME_OF_MAJOR(major) "libcublasLt.so." #major
#define NAME_OF(major)       NAME_OF_MAJOR(major)
#define DEVICES_MAX          64
#define ANY_ADDRESS          ((const void *)(uintptr_t)256) /* nobody follows it */

/* X(name of the function) */
#define FUNCTION_LIST(X)                                                                           \
    X(cublasLtCreate)                                                                              \
    X(cublasLtGetStatusName)                                                                       \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoCheck)                                                                     \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescInit_internal)                                                             \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceInit_internal)                                                       \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutInit_internal)

struct library {
#define FUNCTION_X(name) __typeof__(&name) name;
    FUNCTION_LIST(FUNCTION_X)
#undef FUNCTION_X
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of opening */
static struct library library;
static bool is_loaded;
static _Atomic(cublasLtHandle_t) handles[DEVICES_MAX]; /* for ever: as long as the devices */

/* ---- opening ---- */

/* Looked up once; after a failure a later call tries again. */
static const char *load(void)
{
    if (is_loaded) {
        return NULL;
    }
    void *object = dlopen(NAME_OF(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        return NAME_OF(CUBLAS_VER_MAJOR) " is not on this machine";
    }
    bool is_whole = true;
#define FIND_X(name)                                                                               \
    *(void **)&library.name = dlsym(object, #name);                                                \
    is_whole &= library.name != NULL;
    FUNCTION_LIST(FIND_X)
#undef FIND_X
    if (!is_whole) {
        (void)dlclose(object);
        return NAME_OF(CUBLAS_VER_MAJOR) " lacks a function that is needed";
    }
    is_loaded = true;
    return NULL;
}

static _Atomic(cublasLtHandle_t) *current_handle(void)
{
    int device = 0;
    return cudaGetDevice(&device) == cudaSuccess && device < DEVICES_MAX ? &handles[device] : NULL;
}

static const char *open_locked(void)
{
    _Atomic(cublasLtHandle_t) *handle = current_handle();
    const char *why = load();
    if (why != NULL || handle == NULL) {
        return why != NULL ? why : "there is no current device";
    }
    cublasLtHandle_t fresh = atomic_load(handle);
    if (fresh == NULL && library.cublasLtCreate(&fresh) != CUBLAS_STATUS_SUCCESS) {
        return NAME_OF(CUBLAS_VER_MAJOR) " does not run on this device";
    }
    atomic_store(handle, fresh);
    return NULL;
}

const char *cublaslt_open(void)
{
    pthread_mutex_lock(&mutex);
    const char *why = open_locked();
    pthread_mutex_unlock(&mutex);
    return why;
}

uint64_t cublaslt_version(void)
{
    return library.cublasLtGetVersion();
}

/* ---- describing ---- */

/* The library speaks of columns first: D (n, m) = A (n, k) B (k, m). */
struct description {
    cublasLtHandle_t handle;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

static bool init_matrix(cublasLtMatrixLayoutOpaque_t *matrix, cudaDataType_t type, uint64_t rows,
                        uint64_t columns, uint64_t stride)
{
    return library.cublasLtMatrixLayoutInit_internal(matrix, sizeof(*matrix), type, rows, columns,
                                                     (int64_t)stride) == CUBLAS_STATUS_SUCCESS;
}

static cudaDataType_t type_of(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? CUDA_R_32F : dtype == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static bool set_attribute(struct description *description, cublasLtMatmulDescAttributes_t name,
                          const void *value, size_t size_bytes)
{
    return library.cublasLtMatmulDescSetAttribute(&description->operation, name, value,
                                                  size_bytes) == CUBLAS_STATUS_SUCCESS;
}

static bool describe_bias(const struct cublaslt_gemm *gemm, const void *bias,
                          struct description *description)
{
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t type = type_of(gemm->bias_dtype);
    return gemm->bias_dtype == DTYPE_NONE ||
           (set_attribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                          sizeof(epilogue)) &&
            set_attribute(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type)) &&
            set_attribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
}

/* bias: where it is, or any such address where only the algorithm is asked for. */
static bool describe(const struct cublaslt_gemm *gemm, const void *bias,
                     struct description *description)
{
    cudaDataType_t type = type_of(gemm->dtype);
    _Atomic(cublasLtHandle_t) *handle = current_handle();
    description->handle = handle != NULL ? atomic_load(handle) : NULL;
    return description->handle != NULL &&
           library.cublasLtMatmulDescInit_internal(
               &description->operation, sizeof(description->operation), CUBLAS_COMPUTE_32F,
               CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           init_matrix(&description->a, type, gemm->n, gemm->k, gemm->w_stride) &&
           init_matrix(&description->b, type, gemm->k, gemm->m, gemm->x_stride) &&
           init_matrix(&description->d, type_of(gemm->y_dtype), gemm->n, gemm->m, gemm->y_stride) &&
           describe_bias(gemm, bias, description);
}

/* ---- algorithms ---- */

static bool prefer(cublasLtMatmulPreferenceOpaque_t *preference,
                   cublasLtMatmulPreferenceAttributes_t name, const void *value, size_t size_bytes)
{
    return library.cublasLtMatmulPreferenceSetAttribute(preference, name, value, size_bytes) ==
           CUBLAS_STATUS_SUCCESS;
}

static bool set_preference(cublasLtMatmulPreferenceOpaque_t *preference)
{
    const uint64_t workspace_bytes = CUBLASLT_WORKSPACE_BYTES;
    const uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
    const uint32_t alignment = CUBLASLT_ALIGNMENT;
    return library.cublasLtMatmulPreferenceInit_internal(preference, sizeof(*preference)) ==
               CUBLAS_STATUS_SUCCESS &&
           prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                  sizeof(workspace_bytes)) &&
           prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split,
                  sizeof(no_split)) &&
           prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment,
                  sizeof(alignment)) &&
           prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment,
                  sizeof(alignment)) &&
           prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment,
                  sizeof(alignment));
}

uint32_t cublaslt_algorithms(const struct cublaslt_gemm *gemm, cublasLtMatmulAlgo_t *ret_algorithms,
                             uint32_t n_max)
{
    struct description at;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[16];
    int n = 0;
    if (!describe(gemm, ANY_ADDRESS, &at) || !set_preference(&preference) ||
        library.cublasLtMatmulAlgoGetHeuristic(
            at.handle, &at.operation, &at.a, &at.b, &at.d, &at.d, &preference,
            (int)num_min(n_max, ARRAY_LENGTH(results)), results, &n) != CUBLAS_STATUS_SUCCESS) {
        return 0;
    }
    uint32_t n_good = 0;
    for (int i = 0; i < n; i++) {
        if (results[i].state == CUBLAS_STATUS_SUCCESS) {
            ret_algorithms[n_good++] = results[i].algo;
        }
    }
    return n_good;
}

bool cublaslt_can(const struct cublaslt_gemm *gemm, const cublasLtMatmulAlgo_t *algorithm)
{
    struct description at;
    cublasLtMatmulHeuristicResult_t result;
    return describe(gemm, ANY_ADDRESS, &at) &&
           library.cublasLtMatmulAlgoCheck(at.handle, &at.operation, &at.a, &at.b, &at.d, &at.d,
                                           algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= CUBLASLT_WORKSPACE_BYTES;
}

bool cublaslt_is_declined(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

const char *cublaslt_status_name(cublasStatus_t status)
{
    return library.cublasLtGetStatusName(status);
}

cublasStatus_t cublaslt_multiply(const struct cublaslt_gemm *gemm,
                                 const struct cublaslt_pointers *pointers,
                                 const cublasLtMatmulAlgo_t *algorithm, void *stream)
{
    const float one = 1.0f, zero = 0.0f;
    struct description at;
    if (!describe(gemm, pointers->bias, &at)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return library.cublasLtMatmul(at.handle, &at.operation, &one, pointers->w, &at.a, pointers->x,
                                  &at.b, &zero, pointers->y, &at.d, pointers->y, &at.d, algorithm,
                                  pointers->workspace, CUBLASLT_WORKSPACE_BYTES,
                                  (cudaStream_t)stream);
}

int cublaslt_enqueue(const struct cublaslt_gemm *gemm, const struct cublaslt_pointers *pointers,
                     const cublasLtMatmulAlgo_t *algorithm, void *stream)
{
    cublasStatus_t status = cublaslt_multiply(gemm, pointers, algorithm, stream);
    return status == CUBLAS_STATUS_SUCCESS ? cudaSuccess
           : cublaslt_is_declined(status)  ? cudaErrorNotSupported
                                           : cudaErrorUnknown;
}
