/* strip_prefill.h - launching strip_prefill.cu. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strip_prefill_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tiles of y that the kernel is compiled for: those with exact weights, then those with rounded
 * ones; of each, all give the same bits. */
#define STRIP_PREFILL_TILES 10u

/* strip_prefill_has_tile() - is there that one for such a weight, and does it round? What is read
 * of args: the weight. strip_prefill_best_tile() - the fastest of those for that weight and m on
 * the current device. */
bool strip_prefill_has_tile(const struct strip_prefill_args *args, uint32_t i_tile,
                            bool is_rounded);
uint32_t strip_prefill_best_tile(const struct strip_prefill_args *args, bool is_rounded);

/* strip_prefill_workspace_bytes() - for m rows of x that have to be copied. */
uint64_t strip_prefill_workspace_bytes(uint32_t m, uint32_t k);

/* strip_prefill_load() - as gk_kernel.load. strip_prefill_enqueue() - y = x W^T on a stream, in
 * tiles of number i_tile. 0 or a cudaError. */
int strip_prefill_load(void);
int strip_prefill_enqueue(struct strip_prefill_args *args, uint32_t i_tile, void *workspace,
                          void *stream);

#ifdef __cplusplus
}
#endif
