/* decode_own.h - the model of decode_model.h without a daemon: its packed weights in one allocation
 * that other processes open by CUDA IPC, and launches of the kernel library on them, as processes
 * do that share weights and nothing else. What they multiply by is zero. Functions that judge
 * return false with one line on stderr. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "gk/gk.h"
#include "tests/bench/decode_model.h"

struct decode_own {
    uint32_t n_weights;
    const struct gk_kernel *kernels[DECODE_LINEARS];
    struct gk_launch launches[DECODE_WEIGHTS_MAX];
    const void *x_rows[GK_BATCH_ROWS_MAX]; /* all the same row */
    void *y_rows[GK_BATCH_ROWS_MAX];
    void *packed; /* all weights */
    bool is_opened;
    void *memory; /* x, y, workspace */
};

/* decode_own_init() - launches of m rows over weights that are made, or opened by that handle if it
 * is not NULL. decode_own_share() - the handle for others. */
bool decode_own_init(struct decode_own *own, const struct decode_shape *shape, uint32_t m,
                     const cudaIpcMemHandle_t *handle);
bool decode_own_share(const struct decode_own *own, cudaIpcMemHandle_t *ret_handle);
void decode_own_finish(struct decode_own *own);

/* decode_own_enqueue() - the product with the i-th weight of a pass. */
bool decode_own_enqueue(struct decode_own *own, uint32_t i_weight, cudaStream_t stream);
