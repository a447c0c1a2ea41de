/* gpu.c - see gpu.h. */
#include "tests/gpu/gpu.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN_MAX    16u
#define CHILD_SECONDS   150u
#define OFFSET_BYTES    4096u
#define SKIPPED         77
#define VMM_API_VERSION 12000

/* ---- processes ---- */

static bool sees_gpu(uint32_t i)
{
    (void)i;
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
}

void gpu_need(void)
{
    if (!gpu_children(1, sees_gpu)) {
        (void)puts("skipped: this machine has no GPU that CUDA can use");
        exit(SKIPPED);
    }
    (void)setenv("GEMMD_TEST_GPU", "1", 1); /* for the harness */
}

bool gpu_children(uint32_t n, bool (*fn)(uint32_t i))
{
    pid_t pids[CHILDREN_MAX];
    bool is_good = n <= CHILDREN_MAX;
    (void)fflush(NULL);
    for (uint32_t i = 0; is_good && i < n; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)alarm(CHILD_SECONDS);
            _exit(fn(i) ? 0 : 1);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        int state;
        is_good &= waitpid(pids[i], &state, 0) == pids[i] && state == 0;
    }
    return is_good;
}

/* ---- VMM ---- */

static bool is_good(int error, const char *what)
{
    if (error != 0) {
        (void)fprintf(stderr, "%s: CUDA error %d\n", what, error);
    }
    return error == 0;
}

/* The driver is not linked; a NULL entry point ends the test by itself. */
static void *driver_entry(const char *name)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    (void)cudaGetDriverEntryPointByVersion(name, &function, VMM_API_VERSION, cudaEnableDefault,
                                           &found);
    return function;
}

#define DRIVER(name) ((__typeof__(&name))driver_entry(#name))

static bool vmm_map(CUdeviceptr address, uint64_t size_bytes, const CUmemAllocationProp *properties)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAccessDesc access = {.location = properties->location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (!is_good(DRIVER(cuMemCreate)(&handle, size_bytes, properties, 0), "cuMemCreate")) {
        return false;
    }
    int error = DRIVER(cuMemMap)(address, size_bytes, 0, handle, 0);
    (void)DRIVER(cuMemRelease)(handle);
    return is_good(error, "cuMemMap") &&
           is_good(DRIVER(cuMemSetAccess)(address, size_bytes, &access, 1), "cuMemSetAccess");
}

void *gpu_vmm_alloc(uint64_t *size_bytes, bool can_export)
{
    int ordinal = 0;
    (void)cudaGetDevice(&ordinal);
    (void)cudaSetDevice(ordinal); /* makes its context, if nothing has */
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = can_export ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
    };
    size_t granularity = 1;
    CUdeviceptr address = 0;
    (void)DRIVER(cuMemGetAllocationGranularity)(&granularity, &properties,
                                                CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    *size_bytes = (*size_bytes + granularity - 1) / granularity * granularity;
    if (!is_good(DRIVER(cuMemAddressReserve)(&address, *size_bytes, 0, 0, 0), "reserve") ||
        !vmm_map(address, *size_bytes, &properties)) {
        return NULL;
    }
    return (void *)(uintptr_t)address;
}

void gpu_vmm_free(void *pointer, uint64_t size_bytes)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    (void)DRIVER(cuMemUnmap)(address, size_bytes);
    (void)DRIVER(cuMemAddressFree)(address, size_bytes);
}

/* ---- buffers ---- */

static bool own_allocation(struct gpu_buffer *gpu, uint64_t size_bytes)
{
    gpu->allocation_bytes = size_bytes + 2 * OFFSET_BYTES;
    if (gpu->kind == GPU_VMM) {
        gpu->allocation = gpu_vmm_alloc(&gpu->allocation_bytes, true);
        return gpu->allocation != NULL;
    }
    return is_good(cudaMalloc(&gpu->allocation, gpu->allocation_bytes), "cudaMalloc");
}

static int share(struct gpu_buffer *gpu, gemmd_client_t *client, uint32_t device_index,
                 uint64_t size_bytes)
{
    switch (gpu->kind) {
    case GPU_HOST:
        return gemmd_buffer_alloc_host(client, device_index, size_bytes, &gpu->buffer);
    case GPU_ARENA:
        return gemmd_buffer_alloc(client, device_index, size_bytes, &gpu->buffer);
    default:
        return gemmd_buffer_import_cuda(
            client, device_index, (char *)gpu->allocation + OFFSET_BYTES, size_bytes, &gpu->buffer);
    }
}

bool gpu_buffer_init(struct gpu_buffer *gpu, gemmd_client_t *client, enum gpu_kind kind,
                     uint64_t size_bytes)
{
    return gpu_buffer_init_on(gpu, client, kind, 0, size_bytes);
}

bool gpu_buffer_init_on(struct gpu_buffer *gpu, gemmd_client_t *client, enum gpu_kind kind,
                        uint32_t device_index, uint64_t size_bytes)
{
    *gpu = (struct gpu_buffer){.kind = kind};
    bool is_own = kind == GPU_IPC || kind == GPU_VMM;
    if (is_own && !own_allocation(gpu, size_bytes)) {
        return false;
    }
    if (share(gpu, client, device_index, size_bytes) != GEMMD_OK) {
        (void)fprintf(stderr, "buffer of kind %d: %s\n", (int)kind, gemmd_last_error());
        gpu_buffer_finish(gpu);
        return false;
    }
    return true;
}

void gpu_buffer_finish(struct gpu_buffer *gpu)
{
    gemmd_buffer_free(gpu->buffer);
    if (gpu->kind == GPU_IPC) {
        (void)cudaFree(gpu->allocation);
    } else if (gpu->allocation != NULL) {
        gpu_vmm_free(gpu->allocation, gpu->allocation_bytes);
    }
    *gpu = (struct gpu_buffer){.buffer = NULL};
}

/* VMM memory is mapped for its own GPU only, which a copy therefore has to be made by. */
static void enter_device_of(const void *pointer)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess &&
        attributes.type == cudaMemoryTypeDevice) {
        (void)cudaSetDevice(attributes.device);
    }
}

bool gpu_copy(void *target, const void *source, uint64_t n_bytes)
{
    int ordinal = 0;
    (void)cudaGetDevice(&ordinal);
    enter_device_of(target);
    enter_device_of(source);
    bool is_copied =
        is_good(cudaMemcpy(target, source, n_bytes, cudaMemcpyDefault), "cudaMemcpy") &&
        is_good(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    (void)cudaSetDevice(ordinal);
    return is_copied;
}

/* ---- products ---- */

static bool run_in(struct product *product, gemmd_client_t *client, const struct gpu_buffer *x,
                   const struct gpu_buffer *y)
{
    struct gemmd_gemm gemm = product->gemm;
    gemm.x = x->buffer;
    gemm.y = y->buffer;
    void *y_data = gemmd_buffer_data(y->buffer);
    uint64_t y_bytes = gemmd_buffer_bytes(product->y);
    product_clear(product);
    if (!gpu_copy(gemmd_buffer_data(x->buffer), gemmd_buffer_data(product->x),
                  gemmd_buffer_bytes(product->x)) ||
        !gpu_copy(y_data, gemmd_buffer_data(product->y), y_bytes)) {
        return false;
    }
    if (gemmd_gemm(client, &gemm) != GEMMD_OK) {
        (void)fprintf(stderr, "kinds %d, %d: %s\n", (int)x->kind, (int)y->kind, gemmd_last_error());
        return false;
    }
    return gpu_copy(gemmd_buffer_data(product->y), y_data, y_bytes);
}

bool gpu_product_run(struct product *product, gemmd_client_t *client, enum gpu_kind x_kind,
                     enum gpu_kind y_kind)
{
    struct gpu_buffer x = {.buffer = NULL};
    struct gpu_buffer y = {.buffer = NULL};
    bool is_right = gpu_buffer_init(&x, client, x_kind, gemmd_buffer_bytes(product->x)) &&
                    gpu_buffer_init(&y, client, y_kind, gemmd_buffer_bytes(product->y)) &&
                    run_in(product, client, &x, &y);
    gpu_buffer_finish(&x);
    gpu_buffer_finish(&y);
    return is_right;
}
