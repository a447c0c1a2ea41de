/* device_cuda_memory.c - the device's own memory: regions, staged views of them, scratch.
 *
 * A region is a VMM allocation with its export as a POSIX fd: whoever holds the fd holds the
 * memory, whether this process lives or not. cudaMalloc() would be simpler and give smaller blocks
 * (a region takes whole 2 MiB), but its handles die with the process and do not cross users. */
#include "daemon/device/device_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

/* Addresses are cheap: more than any kernel asks for. */
#define SCRATCH_ADDRESSES_BYTES (16ull << 30)

static CUmemAllocationProp properties_of(const struct device_cuda *cuda)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->ordinal},
    };
}

/* ---- mapping ---- */

static int map_at(struct device_cuda *cuda, CUdeviceptr address,
                  CUmemGenericAllocationHandle handle, uint64_t size_bytes, struct reason *why)
{
    CUresult error = cuda->driver->cuMemMap(address, size_bytes, 0, handle, 0);
    if (error != CUDA_SUCCESS) {
        return cuda_fail_driver(cuda, error, "mapping memory", why);
    }
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    error = cuda->driver->cuMemSetAccess(address, size_bytes, &access, 1);
    if (error != CUDA_SUCCESS) {
        (void)cuda->driver->cuMemUnmap(address, size_bytes);
        return cuda_fail_driver(cuda, error, "making memory accessible", why);
    }
    return 0;
}

static int map_anywhere(struct device_cuda *cuda, CUmemGenericAllocationHandle handle,
                        uint64_t size_bytes, CUdeviceptr *ret_address, struct reason *why)
{
    CUdeviceptr address;
    CUresult error = cuda->driver->cuMemAddressReserve(&address, size_bytes, 0, 0, 0);
    if (error != CUDA_SUCCESS) {
        return cuda_fail_driver(cuda, error, "reserving addresses", why);
    }
    int r = map_at(cuda, address, handle, size_bytes, why);
    if (r != 0) {
        (void)cuda->driver->cuMemAddressFree(address, size_bytes);
        return r;
    }
    *ret_address = address;
    return 0;
}

int cuda_map_handle(struct device_cuda *cuda, CUmemGenericAllocationHandle handle,
                    uint64_t size_bytes, struct region *ret_region, struct reason *why)
{
    CLEAN_FREE struct cuda_mapping *mapping = calloc(1, sizeof(*mapping));
    int r = mapping == NULL ? err_raise(-ENOMEM) : 0;
    r = r != 0 ? r : map_anywhere(cuda, handle, size_bytes, &mapping->address, why);
    (void)cuda->driver->cuMemRelease(handle); /* the mapping holds the memory */
    if (r != 0) {
        return r;
    }
    mapping->kind = CUDA_MAPPING_VMM;
    mapping->place.origin = mapping->address;
    *ret_region = (struct region){
        .fd = -1,
        .base = (void *)(uintptr_t)mapping->address,
        .size_bytes = size_bytes,
        .mapping = steal_ptr(&mapping),
    };
    return 0;
}

void cuda_unmap(struct device_cuda *cuda, CUdeviceptr address, uint64_t size_bytes)
{
    (void)cuda->driver->cuMemUnmap(address, size_bytes);
    (void)cuda->driver->cuMemAddressFree(address, size_bytes);
}

/* ---- regions ---- */

static int create(struct device_cuda *cuda, const char *name, uint64_t size_bytes,
                  CUmemGenericAllocationHandle *ret_handle, struct reason *why)
{
    const CUmemAllocationProp properties = properties_of(cuda);
    CUresult error = cuda->driver->cuMemCreate(ret_handle, size_bytes, &properties, 0);
    if (error == CUDA_ERROR_OUT_OF_MEMORY) {
        size_t free_bytes = 0, total_bytes = 0;
        (void)cudaMemGetInfo(&free_bytes, &total_bytes);
        return reason_set(why, STATUS_NO_SPACE, "%s has %zu of its %zu bytes left, not %llu for %s",
                          cuda->base.name, free_bytes, total_bytes, (unsigned long long)size_bytes,
                          name);
    }
    return error == CUDA_SUCCESS ? 0 : cuda_fail_driver(cuda, error, "allocating memory", why);
}

/* What another process left in the memory must not be read by the next. */
static int clear(struct device_cuda *cuda, const struct region *region, struct reason *why)
{
    cudaError_t error = cudaMemsetAsync(region->base, 0, region->size_bytes, cuda->copy_stream);
    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(cuda->copy_stream);
    }
    return error == cudaSuccess ? 0 : cuda_fail(cuda, error, "clearing memory", why);
}

static int create_region(struct device_cuda *cuda, const char *name, uint64_t size_bytes,
                         struct region *ret_region, struct reason *why)
{
    CUmemGenericAllocationHandle handle;
    int r = create(cuda, name, size_bytes, &handle, why);
    if (r != 0) {
        return r;
    }
    int fd = -1;
    CUresult error = cuda->driver->cuMemExportToShareableHandle(
        &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (error != CUDA_SUCCESS) {
        (void)cuda->driver->cuMemRelease(handle);
        return cuda_fail_driver(cuda, error, "exporting memory", why);
    }
    CLEAN_FD int owned = fd;
    (void)fcntl(owned, F_SETFD, FD_CLOEXEC);
    r = cuda_map_handle(cuda, handle, size_bytes, ret_region, why);
    if (r == 0) {
        ret_region->fd = steal_fd(&owned);
    }
    return r;
}

int cuda_region_new(struct device *device, const char *name, uint64_t size_bytes,
                    struct region *ret_region, struct reason *why)
{
    struct device_cuda *cuda = cuda_of(device);
    if (size_bytes == 0 || size_bytes > INT64_MAX / 2) {
        return err_raise(-EINVAL);
    }
    int r = cuda_enter(cuda, why);
    if (r != 0) {
        return r;
    }
    struct region region = REGION_NULL;
    r = create_region(cuda, name, num_align_up(size_bytes, device->region_align), &region, why);
    if (r != 0) {
        return r;
    }
    r = clear(cuda, &region, why);
    if (r != 0) {
        device->ops->region_free(device, &region);
        return r;
    }
    *ret_region = region;
    return 0;
}

void cuda_region_place(struct device *device, const struct region *region,
                       struct device_place *ret_place)
{
    (void)device;
    *ret_place = ((const struct cuda_mapping *)region->mapping)->place;
}

/* ---- views ---- */

static int grow_staging(struct device_cuda *cuda, uint64_t size_bytes, struct reason *why)
{
    if (size_bytes <= cuda->staging_bytes) {
        return 0;
    }
    (void)cudaFreeHost(cuda->staging);
    cuda->staging = NULL;
    cuda->staging_bytes = 0;
    cudaError_t error = cudaHostAlloc(&cuda->staging, size_bytes, cudaHostAllocDefault);
    if (error != cudaSuccess) {
        return cuda_fail(cuda, error, "page-locking memory to stage a weight", why);
    }
    cuda->staging_bytes = size_bytes;
    return 0;
}

static int copy(struct device_cuda *cuda, void *target, const void *source, uint64_t n_bytes,
                struct reason *why)
{
    cudaError_t error =
        cudaMemcpyAsync(target, source, n_bytes, cudaMemcpyDefault, cuda->copy_stream);
    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(cuda->copy_stream);
    }
    return error == cudaSuccess ? 0 : cuda_fail(cuda, error, "copying a region", why);
}

int cuda_view_begin(struct device *device, const struct region *region, enum device_access access,
                    void **ret_bytes, struct reason *why)
{
    struct device_cuda *cuda = cuda_of(device);
    int r = cuda_enter(cuda, why);
    if (r != 0) {
        return r;
    }
    (void)pthread_mutex_lock(&cuda->view_mutex); /* until cuda_view_end() */
    r = grow_staging(cuda, region->size_bytes, why);
    if (r == 0 && access == DEVICE_READ) {
        r = copy(cuda, cuda->staging, region->base, region->size_bytes, why);
    }
    if (r != 0) {
        (void)pthread_mutex_unlock(&cuda->view_mutex);
        return r;
    }
    *ret_bytes = cuda->staging;
    return 0;
}

int cuda_view_end(struct device *device, const struct region *region, enum device_access access,
                  struct reason *why)
{
    struct device_cuda *cuda = cuda_of(device);
    int r = 0;
    if (access == DEVICE_WRITE) {
        r = copy(cuda, region->base, cuda->staging, region->size_bytes, why);
    }
    (void)pthread_mutex_unlock(&cuda->view_mutex);
    return r;
}

/* ---- scratch ---- */

static int grow_scratch(struct device_cuda *cuda, uint64_t size_bytes, struct reason *why)
{
    uint64_t had_bytes = atomic_load(&cuda->scratch_bytes);
    uint64_t more_bytes = num_align_up(size_bytes - had_bytes, cuda->base.region_align);
    if (had_bytes + more_bytes > SCRATCH_ADDRESSES_BYTES) {
        return reason_set(why, STATUS_NO_SPACE, "%s: %llu bytes of scratch memory, at most %llu",
                          cuda->base.name, (unsigned long long)size_bytes,
                          (unsigned long long)SCRATCH_ADDRESSES_BYTES);
    }
    CUmemGenericAllocationHandle handle;
    int r = create(cuda, "scratch", more_bytes, &handle, why);
    if (r != 0) {
        return r;
    }
    r = map_at(cuda, cuda->scratch + had_bytes, handle, more_bytes, why);
    (void)cuda->driver->cuMemRelease(handle);
    if (r == 0) {
        atomic_store(&cuda->scratch_bytes, had_bytes + more_bytes);
    }
    return r;
}

int cuda_reserve(struct device *device, uint64_t workspace_bytes, uint64_t x_row_bytes,
                 struct reason *why)
{
    struct device_cuda *cuda = cuda_of(device);
    uint64_t n_bytes;
    if (!num_mul(GK_PREFILL_ROWS_MAX, cuda_staged_stride(x_row_bytes), &n_bytes) ||
        !num_add(n_bytes, cuda_staged_offset(workspace_bytes), &n_bytes)) {
        return err_raise(-EINVAL);
    }
    int r = cuda_enter(cuda, why);
    if (r != 0) {
        return r;
    }
    (void)pthread_mutex_lock(&cuda->scratch_mutex);
    if (n_bytes > atomic_load(&cuda->scratch_bytes)) {
        r = grow_scratch(cuda, n_bytes, why);
    }
    (void)pthread_mutex_unlock(&cuda->scratch_mutex);
    return r;
}

/* ---- setting up ---- */

int cuda_memory_init(struct device_cuda *cuda, struct reason *why)
{
    const CUmemAllocationProp properties = properties_of(cuda);
    size_t granularity;
    CUresult error = cuda->driver->cuMemGetAllocationGranularity(&granularity, &properties,
                                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (error != CUDA_SUCCESS) {
        return cuda_fail_driver(cuda, error, "asking for the granularity of memory", why);
    }
    cuda->base.region_align = granularity;
    cudaError_t stream_error = cudaStreamCreateWithFlags(&cuda->copy_stream, cudaStreamNonBlocking);
    if (stream_error != cudaSuccess) {
        return cuda_fail(cuda, stream_error, "making a stream", why);
    }
    error = cuda->driver->cuMemAddressReserve(&cuda->scratch, SCRATCH_ADDRESSES_BYTES, 0, 0, 0);
    return error == CUDA_SUCCESS ? 0 : cuda_fail_driver(cuda, error, "reserving addresses", why);
}

void cuda_memory_finish(struct device_cuda *cuda)
{
    (void)cudaFreeHost(cuda->staging);
    if (cuda->scratch != 0) {
        uint64_t scratch_bytes = atomic_load(&cuda->scratch_bytes);
        if (scratch_bytes > 0) {
            (void)cuda->driver->cuMemUnmap(cuda->scratch, scratch_bytes);
        }
        (void)cuda->driver->cuMemAddressFree(cuda->scratch, SCRATCH_ADDRESSES_BYTES);
    }
    if (cuda->copy_stream != NULL) {
        (void)cudaStreamDestroy(cuda->copy_stream);
    }
}
