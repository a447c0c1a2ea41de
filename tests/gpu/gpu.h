/* gpu.h - what tests on a GPU share: children (a process that has used CUDA must not fork), memory
 * of every kind that a client can share, and products in it. Functions that judge return false with
 * one line on stderr: they run in child processes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/include/gemmd.h"
#include "tests/harness/fixture.h"
#include "tests/harness/product.h"

/* gpu_need() - end the program with 77, skipped, on a machine without a usable GPU. Looks in a
 * child, so the caller may still fork. */
void gpu_need(void);

/* gpu_children() - run fn(i) in n processes at once; do all return true within 150 s? */
bool gpu_children(uint32_t n, bool (*fn)(uint32_t i));

enum gpu_kind { GPU_HOST, GPU_ARENA, GPU_IPC, GPU_VMM, GPU_KINDS };

/* Memory of one kind, shared with the daemon. Those of the process's own (IPC, VMM) lie 4096 bytes
 * into their allocation. */
struct gpu_buffer {
    enum gpu_kind kind;
    gemmd_buffer_t *buffer;
    void *allocation; /* IPC, VMM */
    uint64_t allocation_bytes;
};

bool gpu_buffer_init(struct gpu_buffer *gpu, gemmd_client_t *client, enum gpu_kind kind,
                     uint64_t size_bytes);
/* gpu_buffer_init_on() - the same on the daemon's device of that index; the process's own lie on
 * this thread's present device. */
bool gpu_buffer_init_on(struct gpu_buffer *gpu, gemmd_client_t *client, enum gpu_kind kind,
                        uint32_t device_index, uint64_t size_bytes);
void gpu_buffer_finish(struct gpu_buffer *gpu);

/* gpu_copy() - between any two kinds of memory, of whichever GPU; waits. */
bool gpu_copy(void *target, const void *source, uint64_t n_bytes);

/* gpu_vmm_alloc() - *size_bytes, rounded up, of VMM memory on the present device; can_export: made
 * for POSIX fds.
 * gpu_vmm_free() - the end of it. NULL and false with a line on stderr. */
void *gpu_vmm_alloc(uint64_t *size_bytes, bool can_export);
void gpu_vmm_free(void *pointer, uint64_t size_bytes);

/* gpu_product_run() - the product with x and y in memory of those kinds; y is poisoned before, and
 * copied into the product's own host buffer after. */
bool gpu_product_run(struct product *product, gemmd_client_t *client, enum gpu_kind x_kind,
                     enum gpu_kind y_kind);
