/* chain.h - a chain of dependent products on a GPU, one row each: y = x W^T, the next x out of y.
 * How its steps are ordered must not change a bit of it. Functions that judge return false with one
 * line on stderr. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/gemmd.h"
#include "tests/harness/fixture.h"

/* How the product waits for its x, and the next step for its y. */
enum chain_way {
    CHAIN_SYNC,   /* the CPU waits for both: cudaStreamSynchronize(), gemmd_gemm() */
    CHAIN_MEMORY, /* stream memory operations */
    CHAIN_KERNEL, /* the library's kernel */
    CHAIN_FUSED,  /* the functions of gemmd_device.h in the step's own kernel */
    CHAIN_EARLY,  /* the same, and the next step's kernel is in its place in time: programmatic
                     dependent launch */
    CHAIN_WAYS,
};

struct chain {
    gemmd_client_t *client;
    gemmd_weight_t weight;
    gemmd_buffer_t *x;
    gemmd_buffer_t *y;
    struct gemmd_gemm gemm;
    cudaStream_t cuda_stream;
    enum chain_way way;
    gemmd_stream_t *stream; /* NULL for SYNC */
};

extern const char *const chain_way_names[CHAIN_WAYS];

/* chain_has_way() - can that client use it on the daemon's device of that index, the present one of
 * this thread? All but SYNC and MEMORY need MPS, EARLY compute capability 9.0 as well. */
bool chain_has_way(gemmd_client_t *client, uint32_t device_index, enum chain_way way);

/* chain_init() - a chain of its own buffers and stream over that weight, whose GPU is this thread's
 * present device. chain_finish() - waits for the stream. */
bool chain_init(struct chain *chain, gemmd_client_t *client, const char *weight,
                enum chain_way way);
void chain_finish(struct chain *chain);

/* chain_seed() - the first x, from a number. chain_steps() - so many products and steps on the
 * stream; returns before they have run but for SYNC. chain_sync() - they have run, and none failed.
 */
bool chain_seed(struct chain *chain, uint32_t seed);
bool chain_steps(struct chain *chain, uint32_t n_steps);
bool chain_sync(struct chain *chain);

/* chain_read() - the present x (weight.k elements) into ret_x; chain_sync() included. */
bool chain_read(struct chain *chain, uint16_t *ret_x);
