/* device_memory_none.c - a libgemmd built without CUDA's header: host memory only. */
#include "client/client.h"

static int refuse(void)
{
    return client_refuse(STATUS_UNSUPPORTED,
                         "this libgemmd was built without CUDA; use gemmd_buffer_alloc_host()");
}

int device_memory_map(const uint8_t uuid[SIDE_UUID_BYTES], int fd, uint64_t size_bytes,
                      struct device_memory *ret_memory)
{
    (void)uuid;
    (void)fd;
    (void)size_bytes;
    (void)ret_memory;
    return refuse();
}

void device_memory_unmap(struct device_memory *memory)
{
    (void)memory;
}

int device_memory_export(const void *pointer, uint64_t size_bytes, struct device_export *ret_export)
{
    (void)pointer;
    (void)size_bytes;
    (void)ret_export;
    return refuse();
}
