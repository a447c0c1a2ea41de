/* strip_gemm.h - launching strip_gemm.cu. */
#pragma once

#include <stdbool.h>

#include "kernels/cuda/strip_args.h"

struct gk_ahead; /* gk/cuda.h */

#ifdef __cplusplus
extern "C" {
#endif

/* strip_gemm_rows_max() - rows of x that one launch of such a weight takes on the current device,
 * by its shared memory; of args, only the weight and the type of x count. */
uint32_t strip_gemm_rows_max(const struct strip_args *args);

/* strip_gemm_load() - load every instance onto the current device and allow it its shared
 * memory. Once a device, before the first launch. 0 or a cudaError. */
int strip_gemm_load(void);

/* strip_gemm_enqueue() - y = x W^T on a stream (cudaStream_t). ahead: the rows, and how many of
 * args->m, are told there (gk_launch.ahead), and the launch overlaps; or NULL. may_overlap: start
 * while the kernel before is still ending, which must not write the weight (programmatic dependent
 * launch). 0 or a cudaError. */
int strip_gemm_enqueue(struct strip_args *args, const struct gk_ahead *ahead, bool may_overlap,
                       void *stream);

#ifdef __cplusplus
}
#endif
