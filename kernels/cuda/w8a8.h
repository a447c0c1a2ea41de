/* w8a8.h - launching w8a8_x.cu and w8a8_gemm.cu. */
#pragma once

#include <stdbool.h>

#include "kernels/cuda/w8a8_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* w8a8_x_of() - how a launch of m rows of k elements has its x in the workspace, of a weight of n
 * rows; w8a8_x_bytes() - the bytes of that. */
struct w8a8_x w8a8_x_of(uint32_t kind, uint32_t m, uint32_t n, uint32_t k, void *workspace);
uint64_t w8a8_x_bytes(uint32_t kind, uint32_t m, uint32_t n, uint32_t k);

/* w8a8_lay_out_enqueue() - x to codes and scales by the rules of NUMERICS.md, laid out.
 * w8a8_gemm_enqueue() - multiplied with the weight. _load() - as gk_kernel.load. 0 or a
 * cudaError_t.
 */
int w8a8_lay_out_enqueue(const struct w8a8_lay_out_args *args, bool may_overlap, void *stream);
int w8a8_lay_out_load(void);
int w8a8_gemm_enqueue(struct w8a8_gemm_args *args, bool may_overlap, void *stream);
int w8a8_gemm_load(void);

/* w8a8_gather_gemm_enqueue() - both in one launch, with the same bits: x_rows up to 8, has_sums not
 * set. The workspace is not used. */
int w8a8_gather_gemm_enqueue(struct w8a8_gemm_args *args, struct w8a8_lay_out_args *lay_out,
                             bool may_overlap, void *stream);

/* w8a8_prefill_enqueue() - the same for more than CUDA_ROWS_MAX rows, with the same bits. */
int w8a8_prefill_enqueue(struct w8a8_gemm_args *args, bool may_overlap, void *stream);
int w8a8_prefill_load(void);

#ifdef __cplusplus
}
#endif
