/* strip_wide.h - launching strip_wide.cu. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/rows.h"
#include "kernels/cuda/strip_args.h"

/* One launch: at most 64 rows of x. base.x_rows and base.m are not used. */
struct strip_wide_args {
    struct strip_args base; /* the weight */
    struct cuda_rows rows;
    uint32_t m;       /* 1..64 */
    uint8_t *x_tiles; /* the workspace */
    uint32_t n_tiles; /* from here on: filled in by strip_wide_enqueue() */
    uint32_t n_warpgroups;
};

#ifdef __cplusplus
extern "C" {
#endif

/* strip_wide_workspace_bytes() - for m rows of k elements. */
uint64_t strip_wide_workspace_bytes(uint32_t m, uint32_t k);

/* strip_wide_load() - as gk_kernel.load. strip_wide_enqueue() - y = x W^T: two launches, one that
 * lays x out and one that multiplies. 0 or a cudaError. */
int strip_wide_load(void);
int strip_wide_enqueue(struct strip_wide_args *args, bool may_overlap, void *stream);

#ifdef __cplusplus
}
#endif
