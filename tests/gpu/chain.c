/* chain.c - see chain.h. */
#include "tests/gpu/chain.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "ipc/base/half.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/step.h"
#include "tests/harness/random.h"

const char *const chain_way_names[CHAIN_WAYS] = {"cpu", "memory operations", "kernel", "fused",
                                                 "fused, early"};

static bool is_good(int status, const char *what)
{
    if (status != GEMMD_OK) {
        (void)fprintf(stderr, "%s: %s\n", what, gemmd_last_error());
    }
    return status == GEMMD_OK;
}

static bool is_cuda_good(int error, const char *what)
{
    if (error != 0) {
        (void)fprintf(stderr, "%s: %s\n", what, cudaGetErrorString((cudaError_t)error));
    }
    return error == 0;
}

static bool is_fused(enum chain_way way)
{
    return way == CHAIN_FUSED || way == CHAIN_EARLY;
}

static enum gemmd_order order_of(enum chain_way way)
{
    return way == CHAIN_MEMORY ? GEMMD_ORDER_MEMORY : GEMMD_ORDER_KERNEL;
}

/* Has this thread's GPU programmatic dependent launch? */
static bool has_overlap(void)
{
    int device, major;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9;
}

bool chain_has_way(gemmd_client_t *client, uint32_t device_index, enum chain_way way)
{
    gemmd_stream_t *stream;
    if (way == CHAIN_SYNC) {
        return true;
    }
    if (way == CHAIN_EARLY && !has_overlap()) {
        return false;
    }
    int r = gemmd_stream_open(client, device_index, cudaStreamPerThread, order_of(way), &stream);
    if (r == GEMMD_OK) {
        gemmd_stream_close(stream);
    }
    return r == GEMMD_OK;
}

bool chain_init(struct chain *chain, gemmd_client_t *client, const char *weight, enum chain_way way)
{
    *chain = (struct chain){.client = client, .weight = GEMMD_WEIGHT_INIT, .way = way};
    chain->gemm = (struct gemmd_gemm)GEMMD_GEMM_INIT;
    if (!is_good(gemmd_find_weight(client, weight, &chain->weight), weight) ||
        !is_good(gemmd_buffer_alloc(client, chain->weight.device_index, chain->weight.k * 2ull,
                                    &chain->x),
                 "x") ||
        !is_good(gemmd_buffer_alloc(client, chain->weight.device_index, chain->weight.n * 2ull,
                                    &chain->y),
                 "y") ||
        !is_cuda_good(step_load(), "kernels") ||
        !is_cuda_good(cudaStreamCreateWithFlags(&chain->cuda_stream, cudaStreamNonBlocking),
                      "a stream")) {
        return false;
    }
    chain->gemm.weight = &chain->weight;
    chain->gemm.m = 1;
    chain->gemm.x = chain->x;
    chain->gemm.y = chain->y;
    chain->gemm.x_dtype = chain->gemm.y_dtype = GEMMD_BF16;
    return way == CHAIN_SYNC ||
           is_good(gemmd_stream_open(client, chain->weight.device_index, chain->cuda_stream,
                                     order_of(way), &chain->stream),
                   chain_way_names[way]);
}

void chain_finish(struct chain *chain)
{
    (void)cudaStreamSynchronize(chain->cuda_stream);
    gemmd_stream_close(chain->stream);
    gemmd_buffer_free(chain->x);
    gemmd_buffer_free(chain->y);
    (void)cudaStreamDestroy(chain->cuda_stream);
    *chain = (struct chain){.client = NULL};
}

bool chain_seed(struct chain *chain, uint32_t seed)
{
    uint64_t random = seed * 2654435761ull + 1;
    uint16_t *x = malloc(chain->weight.k * sizeof(*x));
    for (uint32_t i = 0; i < chain->weight.k; i++) {
        x[i] = bf16_from_f32((float)test_random_unit(&random));
    }
    bool is_copied = gpu_copy(gemmd_buffer_data(chain->x), x, chain->weight.k * sizeof(*x));
    free(x);
    return is_copied;
}

/* ---- steps ---- */

static int enqueue_step(struct chain *chain)
{
    return step_enqueue(gemmd_buffer_data(chain->y), chain->weight.n, gemmd_buffer_data(chain->x),
                        chain->weight.k, chain->cuda_stream);
}

static bool step_sync(struct chain *chain)
{
    return is_good(gemmd_gemm(chain->client, &chain->gemm), "a product") &&
           is_cuda_good(enqueue_step(chain), "a step") &&
           is_cuda_good(cudaStreamSynchronize(chain->cuda_stream), "a step's end");
}

/* As many as can be are in flight: until one has ended. */
static int submit(struct chain *chain, struct gemmd_signal *signal)
{
    int r;
    do {
        r = is_fused(chain->way) ? gemmd_submit_on_stream(chain->stream, &chain->gemm, signal)
                                 : gemmd_gemm_on_stream(chain->stream, &chain->gemm);
    } while (r == GEMMD_BUSY && sched_yield() == 0);
    return r;
}

static bool step_on_stream(struct chain *chain)
{
    return is_good(submit(chain, NULL), "a product on a stream") &&
           is_cuda_good(enqueue_step(chain), "a step");
}

/* Each kernel waits for the product before it and says ready for the one behind it; the first only
 * says ready, the last only waits. */
static bool steps_fused(struct chain *chain, uint32_t n_steps)
{
    struct gemmd_signal before, after;
    void *x = gemmd_buffer_data(chain->x);
    void *y = gemmd_buffer_data(chain->y);
    for (uint32_t i = 0; i <= n_steps; i++) {
        if (i < n_steps && !is_good(submit(chain, &after), "a product by signals")) {
            return false;
        }
        /* The first kernel has no y yet: it makes nothing of nothing. */
        int error = step_enqueue_fused(y, chain->weight.n, x, i > 0 ? chain->weight.k : 0,
                                       i > 0 ? &before : NULL, i < n_steps ? &after : NULL,
                                       chain->way == CHAIN_EARLY, chain->cuda_stream);
        if (!is_cuda_good(error, "a step with signals")) {
            return false;
        }
        before = after;
    }
    return true;
}

bool chain_steps(struct chain *chain, uint32_t n_steps)
{
    if (is_fused(chain->way)) {
        return steps_fused(chain, n_steps);
    }
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < n_steps; i++) {
        is_right = chain->way == CHAIN_SYNC ? step_sync(chain) : step_on_stream(chain);
    }
    return is_right;
}

bool chain_sync(struct chain *chain)
{
    return is_cuda_good(cudaStreamSynchronize(chain->cuda_stream), "the stream") &&
           (chain->stream == NULL || is_good(gemmd_stream_status(chain->stream), "on the stream"));
}

bool chain_read(struct chain *chain, uint16_t *ret_x)
{
    return chain_sync(chain) &&
           gpu_copy(ret_x, gemmd_buffer_data(chain->x), chain->weight.k * 2ull);
}
