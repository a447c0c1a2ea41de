/* step.h - kernels that stand for what a client computes between two products. All return a
 * cudaError_t. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/gemmd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* step_load() - once a process, before the others.
 * step_enqueue() - the next x (k) out of y (n), both bf16, n and k even: each element out of two,
 * and never larger than 1. One small block.
 * step_enqueue_fused() - the same, waiting for y and saying that x is ready itself; NULL: not.
 * is_early: the kernel after it may be in its place as soon as y is there (programmatic dependent
 * launch; as the others on a GPU without). */
int step_load(void);
int step_enqueue(const void *y, uint32_t n, void *x, uint32_t k, cudaStream_t stream);
int step_enqueue_fused(const void *y, uint32_t n, void *x, uint32_t k,
                       const struct gemmd_signal *before, const struct gemmd_signal *after,
                       bool is_early, cudaStream_t stream);

/* hold_enqueue() - one thread that waits until *word, page-locked memory, is not 0, for 20 s at
 * most. delay_enqueue() - one that takes so long. fault_enqueue() - one that writes where nothing
 * is. */
int hold_enqueue(const uint32_t *word, cudaStream_t stream);
int delay_enqueue(uint32_t usec, cudaStream_t stream);
int fault_enqueue(cudaStream_t stream);

#ifdef __cplusplus
}
#endif
