/* panel.h - the frame of all host kernels: everything but the arithmetic of a block.
 *
 * The numerics contract (kernels/NUMERICS.md) lives here once: how k is cut into blocks, in which
 * order they are added, where scales and bias come in. An instruction set brings three functions.
 */
#pragma once

#include <stdint.h>

#include "gk/gk.h"
#include "kernels/isa.h"
#include "kernels/layout/host_panel.h"

#define HOST_BLOCK_K 128u

/* One block of one panel, all rows. */
struct host_block {
    const uint8_t *weights; /* n_k rows of the panel */
    enum dtype value_dtype; /* PLAIN */
    uint32_t n_k;           /* 1..HOST_BLOCK_K */
    const float *scales;    /* INT: (64) */
    const float *x;         /* (m, n_k): the rows at this block's first k */
    uint64_t x_stride_elems;
    uint32_t m;
};

struct host_ops {
    enum isa isa;
    /* source: n elements of dtype, at any address; exact. */
    void (*widen)(const void *source, enum dtype dtype, uint64_t n, float *values);
    /* 64 values of one row of a panel, rounded to dtype; NaN becomes the canonical one. target is
     * 64-byte aligned. */
    void (*narrow)(const float *values, enum dtype dtype, void *target);
    /* totals: (m, 64). For every row and column: acc = 0; acc = fma(x, w, acc) for k ascending;
     * then total = fma(acc, scale, total), or total + acc for PLAIN. */
    void (*int4_block)(const struct host_block *block, float *totals);
    void (*plain_block)(const struct host_block *block, float *totals);
};

/* What a registry row is made of; see rows.c. */
int host_can_implement(const struct gk_problem *problem, enum isa isa, bool is_plain,
                       struct reason *why);
uint64_t host_workspace_bytes(const struct gk_problem *problem);
void host_prepare(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_part,
                  uint32_t n_parts);
void host_run(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_part,
              uint32_t n_parts);

/* host_predicted_usec() - the slower of streaming the packed weight and of the multiply-adds, each
 * at an assumed rate per thread. Threads beyond one a panel do not help. */
struct host_rates {
    double weight_gbps; /* packed bytes a thread takes in at m = 1 */
    double gflops;      /* 2 * m * n * k over time, at large m */
};
double host_predicted_usec(const struct gk_problem *problem, const struct host_rates *rates,
                           uint32_t n_threads);
