/* strip_wide.h - launching strip_wide.cu. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strip_parts_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* strip_wide_workspace_bytes() - for m rows of x and a weight of n x k. */
uint64_t strip_wide_workspace_bytes(uint32_t m, uint32_t n, uint32_t k);

/* strip_wide_load() - as gk_kernel.load. strip_wide_enqueue() - y = x W^T, in two launches or more.
 * 0 or a cudaError. */
int strip_wide_load(void);
int strip_wide_enqueue(struct strip_parts_args *args, bool may_overlap, void *stream);

#ifdef __cplusplus
}
#endif
