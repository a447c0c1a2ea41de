/* device_memory_cuda.c - see device_memory.h: the driver API, out of a libcuda found at run time.
 *
 * Everything happens in the device's primary context, which CUDA's runtime, and so PyTorch, uses:
 * an address from here is good there. The context is pushed for the call and popped after it, so
 * that the calling thread keeps the one it had. The symbols are never unloaded: other libraries of
 * the process may hold the same libcuda. */
#include "client/client.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define DRIVER_LIST(X)                                                                             \
    X(cuCtxPopCurrent)                                                                             \
    X(cuCtxPushCurrent)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGetUuid)                                                                             \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuGetErrorString)                                                                            \
    X(cuInit)                                                                                      \
    X(cuIpcGetMemHandle)                                                                           \
    X(cuMemAddressFree)                                                                            \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemExportToShareableHandle)                                                                \
    X(cuMemGetAddressRange)                                                                        \
    X(cuMemImportFromShareableHandle)                                                              \
    X(cuMemMap)                                                                                    \
    X(cuMemRelease)                                                                                \
    X(cuMemRetainAllocationHandle)                                                                 \
    X(cuMemSetAccess)                                                                              \
    X(cuMemUnmap)                                                                                  \
    X(cuPointerGetAttribute)

/* cuda.h renames functions to their present versions by macros: SYMBOL() is the renamed one. */
#define SYMBOL(name)      SYMBOL_TEXT(name)
#define SYMBOL_TEXT(text) #text

static struct {
#define DRIVER_X(name) __typeof__(&name) name;
    DRIVER_LIST(DRIVER_X)
#undef DRIVER_X
} driver;

static struct reason driver_why; /* status 0: it can be used */
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static const char *text_of(CUresult error)
{
    const char *text = NULL;
    (void)driver.cuGetErrorString(error, &text);
    return text != NULL ? text : "unknown error";
}

static void find_symbol(void *library, const char *name, void *ret_function)
{
    void *function = dlsym(library, name);
    if (function == NULL) {
        (void)reason_set(&driver_why, STATUS_UNSUPPORTED, "the CUDA driver is too old: no %s",
                         name);
    }
    memcpy(ret_function, &function, sizeof(function));
}

static void find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)reason_set(&driver_why, STATUS_UNSUPPORTED,
                         "this process finds no CUDA driver (libcuda.so.1); use "
                         "gemmd_buffer_alloc_host()");
        return;
    }
#define DRIVER_X(name) find_symbol(library, SYMBOL(name), &driver.name);
    DRIVER_LIST(DRIVER_X)
#undef DRIVER_X
    CUresult error = driver_why.status == 0 ? driver.cuInit(0) : CUDA_SUCCESS;
    if (error != CUDA_SUCCESS) {
        (void)reason_set(&driver_why, STATUS_UNSUPPORTED, "the CUDA driver cannot be used: %s",
                         text_of(error));
    }
}

static int need_driver(void)
{
    (void)pthread_once(&driver_once, find_driver);
    return driver_why.status == 0 ? 0 : client_fail(&driver_why);
}

static int fail(CUresult error, const char *what)
{
    return client_refuse(STATUS_DEVICE_ERROR, "%s: %s", what, text_of(error));
}

/* ---- mapping ----------------------------------------------------------------------------------
 */

static int find_device(const uint8_t uuid[SIDE_UUID_BYTES], CUdevice *ret_device)
{
    int n_devices = 0;
    (void)driver.cuDeviceGetCount(&n_devices);
    for (int i = 0; i < n_devices; i++) {
        CUuuid found;
        CUdevice device;
        if (driver.cuDeviceGet(&device, i) == CUDA_SUCCESS &&
            driver.cuDeviceGetUuid(&found, device) == CUDA_SUCCESS &&
            memcmp(found.bytes, uuid, SIDE_UUID_BYTES) == 0) {
            *ret_device = device;
            return 0;
        }
    }
    return client_refuse(STATUS_UNSUPPORTED,
                         "the daemon's GPU is not among the %d that this process sees; look at "
                         "CUDA_VISIBLE_DEVICES, or use gemmd_buffer_alloc_host()",
                         n_devices);
}

static int map_address(CUdevice device, CUmemGenericAllocationHandle handle, uint64_t size_bytes,
                       CUdeviceptr address)
{
    CUresult error = driver.cuMemMap(address, size_bytes, 0, handle, 0);
    if (error != CUDA_SUCCESS) {
        return fail(error, "mapping the daemon's memory");
    }
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    error = driver.cuMemSetAccess(address, size_bytes, &access, 1);
    if (error != CUDA_SUCCESS) {
        (void)driver.cuMemUnmap(address, size_bytes);
        return fail(error, "making the daemon's memory accessible");
    }
    return 0;
}

static int map_handle(CUmemGenericAllocationHandle handle, struct device_memory *memory)
{
    CUdeviceptr address;
    CUresult error = driver.cuMemAddressReserve(&address, memory->size_bytes, 0, 0, 0);
    if (error != CUDA_SUCCESS) {
        return fail(error, "reserving addresses");
    }
    int r = map_address(memory->device, handle, memory->size_bytes, address);
    if (r != 0) {
        (void)driver.cuMemAddressFree(address, memory->size_bytes);
        return r;
    }
    memory->address = address;
    return 0;
}

static int map_in_context(int fd, struct device_memory *memory)
{
    CUmemGenericAllocationHandle handle;
    CUresult error = driver.cuMemImportFromShareableHandle(
        &handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (error != CUDA_SUCCESS) {
        return fail(error, "importing the daemon's memory");
    }
    int r = map_handle(handle, memory);
    (void)driver.cuMemRelease(handle); /* the mapping holds the memory */
    return r;
}

int device_memory_map(const uint8_t uuid[SIDE_UUID_BYTES], int fd, uint64_t size_bytes,
                      struct device_memory *ret_memory)
{
    struct device_memory memory = {.size_bytes = size_bytes};
    int r = need_driver();
    r = r != 0 ? r : find_device(uuid, &memory.device);
    if (r != 0) {
        return r;
    }
    CUcontext context;
    CUresult error = driver.cuDevicePrimaryCtxRetain(&context, memory.device);
    if (error != CUDA_SUCCESS) {
        return fail(error, "making a context on the daemon's GPU");
    }
    (void)driver.cuCtxPushCurrent(context);
    r = map_in_context(fd, &memory);
    (void)driver.cuCtxPopCurrent(&context);
    if (r != 0) {
        (void)driver.cuDevicePrimaryCtxRelease(memory.device);
        return r;
    }
    *ret_memory = memory;
    return 0;
}

void device_memory_unmap(struct device_memory *memory)
{
    if (memory->address == 0) {
        return;
    }
    (void)driver.cuMemUnmap(memory->address, memory->size_bytes);
    (void)driver.cuMemAddressFree(memory->address, memory->size_bytes);
    (void)driver.cuDevicePrimaryCtxRelease(memory->device);
    *memory = (struct device_memory){.address = 0};
}

/* ---- exporting --------------------------------------------------------------------------------
 */

#define MEND "; copy into memory of gemmd_buffer_alloc(), or allocate with cudaMalloc()"

static int export_ipc(CUdeviceptr pointer, struct device_export *exported)
{
    CUdeviceptr base;
    size_t allocation_bytes;
    CUipcMemHandle handle;
    CUresult error = driver.cuMemGetAddressRange(&base, &allocation_bytes, pointer);
    if (error == CUDA_SUCCESS) {
        error = driver.cuIpcGetMemHandle(&handle, base);
    }
    if (error != CUDA_SUCCESS) {
        return fail(error, "gemmd_buffer_import_cuda: taking the IPC handle");
    }
    exported->allocation_bytes = allocation_bytes;
    exported->offset_bytes = pointer - base;
    memcpy(exported->handle, &handle, sizeof(exported->handle));
    return 0;
}

static int export_fd(CUdeviceptr pointer, CUmemGenericAllocationHandle handle,
                     struct device_export *exported)
{
    CUdeviceptr base = 0;
    size_t allocation_bytes = 0;
    int fd = -1;
    (void)driver.cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, pointer);
    (void)driver.cuPointerGetAttribute(&allocation_bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
                                       pointer);
    CUresult error = driver.cuMemExportToShareableHandle(
        &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (error != CUDA_SUCCESS) {
        return client_refuse(STATUS_UNSUPPORTED,
                             "gemmd_buffer_import_cuda: the memory is of a VMM allocation that "
                             "was not made to be exported by fd" MEND);
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    exported->fd = fd;
    exported->allocation_bytes = allocation_bytes;
    exported->offset_bytes = pointer - base;
    return 0;
}

static int check_end(const struct device_export *exported, uint64_t size_bytes)
{
    if (exported->offset_bytes <= exported->allocation_bytes &&
        size_bytes <= exported->allocation_bytes - exported->offset_bytes) {
        return 0;
    }
    return client_refuse(STATUS_INVALID_ARGUMENT,
                         "gemmd_buffer_import_cuda: %llu bytes from offset %llu do not lie in one "
                         "allocation: this one has %llu" MEND,
                         (unsigned long long)size_bytes, (unsigned long long)exported->offset_bytes,
                         (unsigned long long)exported->allocation_bytes);
}

static int export_device_pointer(CUdeviceptr pointer, struct device_export *exported)
{
    unsigned is_ipc = 0, is_managed = 0;
    unsigned long long id = 0;
    (void)driver.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer);
    (void)driver.cuPointerGetAttribute(&is_ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                       pointer);
    (void)driver.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer);
    exported->allocation_id = id;
    if (is_managed != 0) {
        return client_refuse(STATUS_UNSUPPORTED,
                             "gemmd_buffer_import_cuda: managed memory cannot be shared" MEND);
    }
    if (is_ipc != 0) {
        return export_ipc(pointer, exported);
    }
    CUmemGenericAllocationHandle handle;
    CUresult error = driver.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)pointer);
    if (error != CUDA_SUCCESS) {
        return client_refuse(STATUS_UNSUPPORTED,
                             "gemmd_buffer_import_cuda: memory of a pool (cudaMallocAsync) cannot "
                             "be shared" MEND);
    }
    int r = export_fd(pointer, handle, exported);
    (void)driver.cuMemRelease(handle);
    return r;
}

/* The context that owns the memory must be current for the questions asked about it. */
static int enter_context_of(CUdeviceptr pointer, CUdevice *ret_device)
{
    unsigned type = 0;
    int ordinal = 0;
    CUcontext context;
    CUresult error = driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
    if (error != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_buffer_import_cuda: %#llx is no device memory of this process",
                             (unsigned long long)pointer);
    }
    error = driver.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
    if (error == CUDA_SUCCESS) {
        error = driver.cuDeviceGet(ret_device, ordinal);
    }
    if (error == CUDA_SUCCESS) {
        error = driver.cuDevicePrimaryCtxRetain(&context, *ret_device);
    }
    if (error == CUDA_SUCCESS) {
        error = driver.cuCtxPushCurrent(context);
    }
    return error == CUDA_SUCCESS ? 0 : fail(error, "gemmd_buffer_import_cuda");
}

int device_memory_export(const void *pointer, uint64_t size_bytes, struct device_export *ret_export)
{
    struct device_export exported = {.fd = -1};
    CUdevice device;
    CUcontext context;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    int r = need_driver();
    r = r != 0 ? r : enter_context_of(address, &device);
    if (r != 0) {
        return r;
    }
    r = export_device_pointer(address, &exported);
    (void)driver.cuCtxPopCurrent(&context);
    (void)driver.cuDevicePrimaryCtxRelease(device);
    r = r != 0 ? r : check_end(&exported, size_bytes);
    if (r != 0) {
        if (exported.fd >= 0) {
            (void)close(exported.fd);
        }
        return r;
    }
    *ret_export = exported;
    return 0;
}
