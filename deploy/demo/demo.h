/* demo.h - what the demo's parent and its client processes share. */
#pragma once

#include <stdint.h>

#include "deploy/demo/checkpoint.h"

#define DEMO_ROWS        4u /* rows in a layer's pool */
#define DEMO_CLIENTS_MAX 64u

/* A layer with its pool of rows of x and their products in float64. */
struct task {
    const struct layer *layer;
    float *x;  /* (DEMO_ROWS, k): multiples of 1/64 within +-2, exact in f32, f16 and bf16 */
    double *y; /* (DEMO_ROWS, n) */
};

/* What one client process did; in memory shared with the parent. */
struct tally {
    uint64_t n_gemms;
    uint64_t n_rows;
    uint64_t
        n_by_sessions[DEMO_CLIENTS_MAX + 1]; /* requests, by how many processes shared the launch */
    double error_max;                        /* relative Frobenius error of a product */
    char worst[200];
    char failure[1024]; /* "" when all went well */
};

struct demo {
    const char *socket_dir;
    const char *model;
    double seconds;
    struct task *tasks;
    size_t n_tasks;
};

/* demo_client() - one process: walks the layers until the time is up, checking every product.
 * Returns its exit status. */
int demo_client(const struct demo *demo, uint32_t i_client, struct tally *tally);
