/* w4a8.h - launching w4a8_prefill.cu. */
#pragma once

#include <stdbool.h>

#include "kernels/cuda/w4a8_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* w4a8_enqueue() - y = x W^T on a stream, of x that w8a8_lay_out_enqueue() has laid out in the
 * order of strips. may_overlap: as in strip_gemm_enqueue(). w4a8_load() - as gk_kernel.load. 0 or a
 * cudaError. */
int w4a8_enqueue(struct w4a8_args *args, bool may_overlap, void *stream);
int w4a8_load(void);

#ifdef __cplusplus
}
#endif
