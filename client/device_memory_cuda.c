/* device_memory_cuda.c - see device_memory.h: the driver API. */
#include <cuda.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/driver_cuda.h"

/* ---- mapping ---- */

static int map_address(CUdevice device, CUmemGenericAllocationHandle handle, uint64_t size_bytes,
                       CUdeviceptr address)
{
    CUresult error = driver.cuMemMap(address, size_bytes, 0, handle, 0);
    if (error != CUDA_SUCCESS) {
        return driver_fail(error, "mapping the daemon's memory");
    }
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    error = driver.cuMemSetAccess(address, size_bytes, &access, 1);
    if (error != CUDA_SUCCESS) {
        (void)driver.cuMemUnmap(address, size_bytes);
        return driver_fail(error, "making the daemon's memory accessible");
    }
    return 0;
}

static int map_handle(CUmemGenericAllocationHandle handle, struct device_memory *memory)
{
    CUdeviceptr address;
    CUresult error = driver.cuMemAddressReserve(&address, memory->size_bytes, 0, 0, 0);
    if (error != CUDA_SUCCESS) {
        return driver_fail(error, "reserving addresses");
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
        return driver_fail(error, "importing the daemon's memory");
    }
    int r = map_handle(handle, memory);
    (void)driver.cuMemRelease(handle); /* the mapping holds the memory */
    return r;
}

int device_memory_map(const uint8_t uuid[SIDE_UUID_BYTES], int fd, uint64_t size_bytes,
                      struct device_memory *ret_memory)
{
    struct device_memory memory = {.size_bytes = size_bytes};
    int r = driver_need();
    r = r != 0 ? r : driver_find_device(uuid, &memory.device);
    if (r != 0) {
        return r;
    }
    r = driver_enter(memory.device);
    if (r != 0) {
        return r;
    }
    r = map_in_context(fd, &memory);
    driver_leave();
    if (r != 0) {
        driver_forget(memory.device);
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
    driver_forget(memory->device);
    *memory = (struct device_memory){.address = 0};
}

/* ---- exporting ---- */

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
        return driver_fail(error, "gemmd_buffer_import_cuda: taking the IPC handle");
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
static int enter_context_of(CUdeviceptr pointer, CUdevice *ret_device,
                            uint8_t ret_uuid[SIDE_UUID_BYTES])
{
    unsigned type = 0;
    int ordinal = 0;
    CUuuid uuid;
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
    error = error != CUDA_SUCCESS ? error : driver.cuDeviceGetUuid(&uuid, *ret_device);
    if (error != CUDA_SUCCESS) {
        return driver_fail(error, "gemmd_buffer_import_cuda");
    }
    memcpy(ret_uuid, uuid.bytes, SIDE_UUID_BYTES);
    return driver_enter(*ret_device);
}

int device_memory_export(const void *pointer, uint64_t size_bytes, struct device_export *ret_export)
{
    struct device_export exported = {.fd = -1};
    CUdevice device;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    int r = driver_need();
    r = r != 0 ? r : enter_context_of(address, &device, exported.device_uuid);
    if (r != 0) {
        return r;
    }
    r = export_device_pointer(address, &exported);
    driver_leave();
    driver_forget(device);
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
