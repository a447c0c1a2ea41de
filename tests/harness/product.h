/* product.h - one product through the client library, and the judgement of its bytes.
 *
 * A row of x follows from its seed alone, so that two processes that use the same seed must see the
 * same bytes of y, however they were batched. Functions that judge return false with one line on
 * stderr instead of asserting: they also run in child processes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/include/gemmd.h"
#include "tests/harness/model.h"

struct product {
    const struct test_weight *weight;
    gemmd_weight_t handle;
    gemmd_buffer_t *x;
    gemmd_buffer_t *y;
    struct gemmd_gemm gemm;
    uint64_t x_stride; /* elements; the gaps of x hold NaN, those of y the byte 0x5a */
    uint64_t y_stride;
};

struct product_shape {
    uint32_t m;
    enum gemmd_dtype x_dtype;
    enum gemmd_dtype y_dtype;
    uint32_t x_gap; /* elements between rows */
    uint32_t y_gap;
    uint64_t seed; /* row i uses seed + i */
};

/* product_init() - look up MODEL/module, make buffers and fill them. False when the daemon refuses.
 */
bool product_init(struct product *product, gemmd_client_t *client, const char *model,
                  const struct test_weight *weight, const struct product_shape *shape);
void product_finish(struct product *product);

/* product_of_rows() - y (m, n) for x (m, k), both dense and f32, by the daemon; the caller frees
 * it. NULL where it refuses. */
float *product_of_rows(gemmd_client_t *client, const gemmd_weight_t *weight, const float *x,
                       uint32_t m);

void product_clear(struct product *product);                       /* fill y with 0x5a again */
bool product_run(struct product *product, gemmd_client_t *client); /* gemmd_gemm() */
bool product_is_right(const struct product *product);              /* against float64; gaps too */
bool product_same_bytes(const struct product *a, const struct product *b); /* whole y, gaps too */
bool product_same_row(const struct product *a, uint32_t i_a, const struct product *b, uint32_t i_b);
