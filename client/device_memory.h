/* device_memory.h - a GPU's memory in the client's process: mapping what the daemon (or another
 * process) exported, and exporting what the client allocated itself.
 *
 * device_memory_cuda.c finds libcuda at run time, so that libgemmd loads where there is none;
 * device_memory_none.c is for builds without CUDA's header. Statuses come with the calling thread's
 * sentence (client_refuse()). Any thread. */
#pragma once

#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/side.h"

/* A mapping into the device's primary context, which it keeps alive. */
struct device_memory {
    uint64_t address; /* 0: nothing is mapped */
    uint64_t size_bytes;
    int device; /* CUdevice */
};

/* device_memory_map() - map the VMM allocation of size_bytes that fd (the caller's) exports, on the
 * GPU with that UUID. 0, UNSUPPORTED where this process cannot use that GPU, or DEVICE_ERROR.
 * device_memory_unmap() - safe on a zeroed struct. Work that uses the memory must have ended. */
int device_memory_map(const uint8_t uuid[SIDE_UUID_BYTES], int fd, uint64_t size_bytes,
                      struct device_memory *ret_memory) GD_MUST_CHECK;
void device_memory_unmap(struct device_memory *memory);

/* How memory of this process can be named to the daemon. */
struct device_export {
    int fd;                    /* owned; of the VMM allocation that it is in; -1: by IPC handle */
    uint64_t allocation_bytes; /* of that allocation */
    uint64_t offset_bytes;     /* in its allocation, of either kind */
    uint64_t allocation_id;
    uint8_t handle[SIDE_IPC_HANDLE_BYTES];
    uint8_t device_uuid[SIDE_UUID_BYTES]; /* of the GPU that the memory is on */
};

/* device_memory_export() - what cudaMalloc() gave goes by IPC handle, what lies in one exportable
 * VMM allocation by fd. Other memory is refused with the mend. 0, INVALID_ARGUMENT, UNSUPPORTED or
 * DEVICE_ERROR. */
int device_memory_export(const void *pointer, uint64_t size_bytes,
                         struct device_export *ret_export) GD_MUST_CHECK;
