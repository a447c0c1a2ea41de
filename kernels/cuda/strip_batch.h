/* strip_batch.h - launching strip_batch.cu. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strip_parts_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* strip_batch_workspace_bytes() - for m rows of x and a weight of n x k. */
uint64_t strip_batch_workspace_bytes(uint32_t m, uint32_t n, uint32_t k);

/* strip_batch_load() - as gk_kernel.load. strip_batch_enqueue() - y = x W^T, in two launches or
 * more. 0 or a cudaError. */
int strip_batch_load(void);
int strip_batch_enqueue(struct strip_parts_args *args, bool may_overlap, void *stream);

#ifdef __cplusplus
}
#endif
