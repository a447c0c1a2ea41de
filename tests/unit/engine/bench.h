/* bench.h - a workbench for tests of the engine: a host device, a store with small weights built
 * by hand, buffers of a client, and products computed by a kernel alone to compare with, bit
 * for bit. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device.h"
#include "daemon/engine/buffers.h"
#include "daemon/engine/quota.h"
#include "daemon/weights/store.h"
#include "gk/gk.h"
#include "ipc/request.h"

enum {
    WEIGHT_INT4,
    WEIGHT_PLAIN,
    WEIGHT_FP8_GROUP, /* these three quantise their activations */
    WEIGHT_FP8_TENSOR,
    WEIGHT_INT8_TOKEN,
    N_WEIGHTS
};

#define BENCH_VIEWS_MAX 256u

struct bench {
    struct device *device;
    struct store *store;
    struct quota *quota;
    struct weight *weights[N_WEIGHTS];    /* references */
    struct region views[BENCH_VIEWS_MAX]; /* the clients' own mappings of their buffers */
    uint32_t n_views;
};

/* bench_init() - open, pack and publish. bench_finish() asserts that every charge is back. */
void bench_init(struct bench *bench, uint32_t n_threads);
void bench_finish(struct bench *bench);

/* bench_buffers() - a client's table. bench_add() - a zeroed buffer; returns its id. *ret_base is
 * the client's own mapping, at another address than the daemon's, as between processes; it stays
 * valid until bench_finish(), whatever becomes of the buffer. */
struct buffers *bench_buffers(void);
uint64_t bench_add(struct bench *bench, struct buffers *buffers, uint64_t size_bytes,
                   uint8_t **ret_base);

/* One matrix x, y or x_scale in a client's buffer. */
struct place {
    uint64_t buffer_id;
    uint8_t *base;
    uint64_t offset_bytes;
    uint64_t stride_elems;
    enum dtype dtype;
};

/* bench_desc() - y = x W^T of m rows. */
struct request_desc bench_desc(const struct weight *weight, uint64_t request_id, uint32_t m,
                               const struct place *x, const struct place *y);

/* bench_fill() - rows of numbers that depend on the seed. */
void bench_fill(const struct place *x, uint32_t m, uint32_t k, uint32_t seed);

/* bench_row_is_right() - are the bits of row i of y those of a launch of that row alone? */
bool bench_row_is_right(const struct weight *weight, const struct place *x, const struct place *y,
                        uint32_t i_row);
bool bench_is_right(const struct weight *weight, const struct place *x, const struct place *y,
                    uint32_t m);
