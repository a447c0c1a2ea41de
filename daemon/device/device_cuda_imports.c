/* device_cuda_imports.c - memory that belongs to a client.
 *
 * Three kinds. A sealed memfd is page-locked and mapped into the device's addresses: rows of x come
 * over the bus once (device_cuda_launch.c), products are written back in place. The export of a VMM
 * allocation is mapped; its memory lives as long as that mapping, whatever its owner does. A CUDA
 * IPC handle names a whole cudaMalloc() allocation, of which a buffer is a part; one that is open
 * already is shared, and it is closed with the last buffer on it. Nothing is kept open in case it
 * comes again: an address that was freed and allocated anew comes with another handle and another
 * id, and with nothing left over it cannot be mistaken. Memory of another GPU opens as if it were
 * this one's, where GPUs reach each other; libgemmd knows where it is and takes it back.
 *
 * Closing can wait for the device. It is done by whoever drops the last reference: the main thread,
 * unless a buffer was released while a request used it. */
#include "daemon/device/device_cuda.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

struct cuda_allocation {
    struct list node;
    uint32_t n_refs;
    uint8_t handle[DEVICE_IPC_HANDLE_BYTES];
    uint64_t allocation_id;
    uint64_t exporter_pid;
    void *base;
    uint64_t size_bytes;
};

static_assert(sizeof(cudaIpcMemHandle_t) == DEVICE_IPC_HANDLE_BYTES, "a handle fits its message");

/* ---- memfds ---- */

static int lock_pages(struct device_cuda *cuda, struct cuda_mapping *mapping, uint64_t size_bytes,
                      void **ret_address, struct reason *why)
{
    struct stat file;
    if (fstat(mapping->memfd.fd, &file) != 0) {
        return err_raise(-errno);
    }
    mapping->place =
        (struct device_place){.space = {file.st_dev, file.st_ino}, .is_cpu_memory = true};
    void *memory = mapping->memfd.base;
    cudaError_t error =
        cudaHostRegister(memory, size_bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
    if (error != cudaSuccess) {
        return cuda_fail(cuda, error, "page-locking a client's memfd", why);
    }
    error = cudaHostGetDevicePointer(ret_address, memory, 0);
    if (error != cudaSuccess) {
        (void)cudaHostUnregister(memory);
        return cuda_fail(cuda, error, "mapping a client's memfd", why);
    }
    return 0;
}

static int import_memfd(struct device_cuda *cuda, int fd, uint64_t size_bytes,
                        struct region *ret_region, struct reason *why)
{
    struct region memfd = REGION_NULL;
    int r = region_import(&memfd, fd, size_bytes, why);
    if (r != 0) {
        return r;
    }
    CLEAN_FREE struct cuda_mapping *mapping = calloc(1, sizeof(*mapping));
    if (mapping == NULL) {
        region_finish(&memfd);
        return err_raise(-ENOMEM);
    }
    void *address = NULL;
    mapping->kind = CUDA_MAPPING_HOST;
    mapping->memfd = memfd;
    r = lock_pages(cuda, mapping, size_bytes, &address, why);
    if (r != 0) {
        region_finish(&mapping->memfd);
        return r;
    }
    *ret_region = (struct region){
        .fd = -1, .base = address, .size_bytes = size_bytes, .mapping = steal_ptr(&mapping)};
    return 0;
}

/* ---- VMM ---- */

static int check_handle(struct device_cuda *cuda, CUmemGenericAllocationHandle handle,
                        struct reason *why)
{
    CUmemAllocationProp properties;
    CUresult error = cuda->driver->cuMemGetAllocationPropertiesFromHandle(&properties, handle);
    if (error != CUDA_SUCCESS) {
        return cuda_fail_driver(cuda, error, "looking at a client's memory", why);
    }
    if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties.location.id != cuda->ordinal) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the buffer's memory is not on %s; allocate it on the weight's device",
                          cuda->base.name);
    }
    return 0;
}

static int import_vmm(struct device_cuda *cuda, int fd, uint64_t size_bytes,
                      struct region *ret_region, struct reason *why)
{
    if (size_bytes == 0 || size_bytes % cuda->base.region_align != 0) {
        return reason_set(
            why, STATUS_INVALID_ARGUMENT,
            "the buffer's fd is no memfd, and %llu bytes are no whole VMM allocation: that is a "
            "multiple of %llu",
            (unsigned long long)size_bytes, (unsigned long long)cuda->base.region_align);
    }
    CUmemGenericAllocationHandle handle;
    CUresult error = cuda->driver->cuMemImportFromShareableHandle(
        &handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (error != CUDA_SUCCESS) {
        return reason_set(
            why, STATUS_INVALID_ARGUMENT,
            "the buffer's fd is neither a memfd nor the export of a VMM allocation of "
            "this machine's GPUs");
    }
    int r = check_handle(cuda, handle, why);
    if (r != 0) {
        (void)cuda->driver->cuMemRelease(handle);
        return r;
    }
    r = cuda_map_handle(cuda, handle, size_bytes, ret_region, why);
    if (r == STATUS_DEVICE_ERROR) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the buffer's VMM allocation has not the declared %llu bytes",
                          (unsigned long long)size_bytes);
    }
    return r;
}

int cuda_region_import(struct device *device, int fd, uint64_t size_bytes,
                       struct region *ret_region, struct reason *why)
{
    struct device_cuda *cuda = cuda_of(device);
    CLEAN_FD int owned = fd;
    int r = cuda_enter(cuda, why);
    if (r != 0) {
        return r;
    }
    bool is_memfd = fcntl(owned, F_GET_SEALS) >= 0;
    return is_memfd ? import_memfd(cuda, steal_fd(&owned), size_bytes, ret_region, why)
                    : import_vmm(cuda, owned, size_bytes, ret_region, why);
}

/* ---- CUDA IPC ---- */

static bool is_same(const struct cuda_allocation *allocation, const struct device_ipc *ipc)
{
    return allocation->allocation_id == ipc->allocation_id &&
           allocation->exporter_pid == ipc->exporter_pid &&
           memcmp(allocation->handle, ipc->handle, sizeof(ipc->handle)) == 0;
}

static int measure(struct device_cuda *cuda, struct cuda_allocation *allocation, struct reason *why)
{
    CUdeviceptr base;
    size_t size_bytes;
    CUresult error = cuda->driver->cuMemGetAddressRange(&base, &size_bytes,
                                                        (CUdeviceptr)(uintptr_t)allocation->base);
    if (error != CUDA_SUCCESS) {
        return cuda_fail_driver(cuda, error, "measuring a client's allocation", why);
    }
    allocation->size_bytes = size_bytes;
    return 0;
}

static int open_allocation(struct device_cuda *cuda, const struct device_ipc *ipc,
                           struct cuda_allocation **ret_allocation, struct reason *why)
{
    CLEAN_FREE struct cuda_allocation *allocation = calloc(1, sizeof(*allocation));
    if (allocation == NULL) {
        return err_raise(-ENOMEM);
    }
    cudaIpcMemHandle_t handle;
    memcpy(&handle, ipc->handle, sizeof(handle));
    cudaError_t error =
        cudaIpcOpenMemHandle(&allocation->base, handle, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "%s cannot open the buffer's CUDA IPC handle: %s; memory of "
                          "gemmd_buffer_alloc() always works",
                          cuda->base.name, cudaGetErrorString(error));
    }
    int r = measure(cuda, allocation, why);
    if (r != 0) {
        (void)cudaIpcCloseMemHandle(allocation->base);
        return r;
    }
    memcpy(allocation->handle, ipc->handle, sizeof(allocation->handle));
    allocation->allocation_id = ipc->allocation_id;
    allocation->exporter_pid = ipc->exporter_pid;
    list_append(&cuda->allocations, &allocation->node);
    *ret_allocation = steal_ptr(&allocation);
    return 0;
}

/* With imports_mutex held, as release() is. */
static int acquire(struct device_cuda *cuda, const struct device_ipc *ipc,
                   struct cuda_allocation **ret_allocation, struct reason *why)
{
    list_for_each (node, &cuda->allocations) {
        struct cuda_allocation *allocation = LIST_OWNER(node, struct cuda_allocation, node);
        if (is_same(allocation, ipc)) {
            allocation->n_refs++;
            *ret_allocation = allocation;
            return 0;
        }
    }
    int r = open_allocation(cuda, ipc, ret_allocation, why);
    if (r == 0) {
        (*ret_allocation)->n_refs = 1;
    }
    return r;
}

static void release(struct cuda_allocation *allocation)
{
    if (--allocation->n_refs == 0) {
        (void)cudaIpcCloseMemHandle(allocation->base);
        list_remove(&allocation->node);
        free(allocation);
    }
}

static int check_range(const struct cuda_allocation *allocation, const struct device_ipc *ipc,
                       struct reason *why)
{
    uint64_t end_bytes;
    if (num_add(ipc->offset_bytes, ipc->size_bytes, &end_bytes) &&
        end_bytes <= allocation->size_bytes) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT,
                      "the buffer's %llu bytes at offset %llu end beyond its allocation of %llu",
                      (unsigned long long)ipc->size_bytes, (unsigned long long)ipc->offset_bytes,
                      (unsigned long long)allocation->size_bytes);
}

static int import_part(struct device_cuda *cuda, const struct device_ipc *ipc,
                       struct cuda_mapping *mapping, struct region *ret_region, struct reason *why)
{
    int r = acquire(cuda, ipc, &mapping->allocation, why);
    if (r != 0) {
        return r;
    }
    r = check_range(mapping->allocation, ipc, why);
    if (r != 0) {
        release(mapping->allocation);
        return r;
    }
    uint8_t *address = (uint8_t *)mapping->allocation->base + ipc->offset_bytes;
    mapping->kind = CUDA_MAPPING_IPC;
    mapping->place.origin = (uintptr_t)address;
    *ret_region = (struct region){
        .fd = -1, .base = address, .size_bytes = ipc->size_bytes, .mapping = mapping};
    return 0;
}

int cuda_region_import_ipc(struct device *device, const struct device_ipc *ipc,
                           struct region *ret_region, struct reason *why)
{
    struct device_cuda *cuda = cuda_of(device);
    int r = cuda_enter(cuda, why);
    if (r != 0) {
        return r;
    }
    struct cuda_mapping *mapping = calloc(1, sizeof(*mapping));
    if (mapping == NULL) {
        return err_raise(-ENOMEM);
    }
    (void)pthread_mutex_lock(&cuda->imports_mutex);
    r = import_part(cuda, ipc, mapping, ret_region, why);
    (void)pthread_mutex_unlock(&cuda->imports_mutex);
    if (r != 0) {
        free(mapping);
    }
    return r;
}

/* ---- the end of every kind ---- */

void cuda_region_free(struct device *device, struct region *region)
{
    struct device_cuda *cuda = cuda_of(device);
    struct cuda_mapping *mapping = region->mapping;
    if (mapping != NULL && cuda_enter(cuda, NULL) == 0) {
        switch (mapping->kind) {
        case CUDA_MAPPING_VMM:
            cuda_unmap(cuda, mapping->address, region->size_bytes);
            break;
        case CUDA_MAPPING_HOST:
            (void)cudaHostUnregister(mapping->memfd.base);
            region_finish(&mapping->memfd);
            break;
        case CUDA_MAPPING_IPC:
            (void)pthread_mutex_lock(&cuda->imports_mutex);
            release(mapping->allocation);
            (void)pthread_mutex_unlock(&cuda->imports_mutex);
            break;
        }
    }
    free(mapping);
    cleanup_fd(&region->fd);
    *region = REGION_NULL;
}
