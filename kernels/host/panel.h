/* panel.h - the frame of all host kernels: everything but the arithmetic of a block.
 *
 * The numerics contract (kernels/NUMERICS.md) lives here once: how rows of x come in, how k is cut
 * into blocks and in which order they are added, where scales, zero points and bias come in. An
 * instruction set brings the functions of struct host_ops. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"
#include "kernels/isa.h"
#include "kernels/layout/host_panel.h"
#include "kernels/quant/quant.h"

#define HOST_BLOCK_K 128u

/* One block of one panel, all rows. */
struct host_block {
    enum gk_code code;
    uint32_t n_k;           /* 1..HOST_BLOCK_K */
    const uint8_t *weights; /* n_k rows of the panel */
    const float *zeros;     /* (64), zero points; NULL: 2^(bits-1) for integer codes */
    const float *scales;    /* (64); NULL: totals are int32 */
    const float *x;         /* (m, n_k): the rows at this block's first k */
    uint64_t x_stride_elems;
    const float *x_scales; /* the block's scale of each row, x_scale_stride apart; NULL: 1 */
    uint64_t x_scale_stride;
    uint32_t m;
};

struct host_ops {
    enum isa isa;
    const struct quant_ops *quant;
    /* source: n elements of F32, F16, BF16, F8_E4M3, F8_E8M0, I8 or U8, at any address; exact. */
    void (*widen)(const void *source, enum dtype dtype, uint64_t n, float *values);
    /* 64 values of one row of a panel, rounded to dtype; NaN becomes the canonical one. target is
     * 64-byte aligned. */
    void (*narrow)(const float *values, enum dtype dtype, void *target);
    /* totals: (m, 64). For every row and column: acc = 0; acc = fma(x, w, acc) for k ascending, w
     * being code - zero, or the value of the code; then total = fma(acc, x_scale * scale, total).
     * With totals of int32, acc is a whole number and total = total + acc. */
    void (*block)(const struct host_block *block, float *totals);
};

/* ---- rows of x: input.c ---- */

/* The workspace of a launch. */
struct host_input {
    float *x; /* (m, stride_elems), in the order of the packed codes; quantised: values less zero */
    uint64_t stride_elems;
    float *scales; /* (m, n_scales) of quantised rows */
    uint32_t n_scales;
    float *values;  /* (m, stride_elems), scratch of rows that are quantised or permuted here */
    uint8_t *codes; /* (m, stride_elems), likewise */
    uint64_t size_bytes;
};

/* host_input() - where everything lies; workspace may be NULL to ask for size_bytes. */
struct host_input host_input(const struct gk_problem *problem, void *workspace);

/* host_workspace_bytes(), host_prepare() - of struct gk_kernel. */
uint64_t host_workspace_bytes(const struct gk_problem *problem);
void host_prepare(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_part,
                  uint32_t n_parts);

/* ---- sums of a panel: panel.c and output.c ---- */

/* 16 KiB of the stack at most, zeroed for as many rows as there are. */
struct host_totals {
    _Alignas(64) float values[GK_BATCH_ROWS_MAX][HOST_PANEL_N];
};

/* host_is_scaled_by_block() - do scales come in with each block, or once with the sums? */
bool host_is_scaled_by_block(const struct gk_desc *desc);

/* host_finish_panel() - from sums over all blocks to elements of y: what comes after the blocks. */
void host_finish_panel(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_panel,
                       struct host_totals *totals);

/* host_run() - of struct gk_kernel. */
void host_run(const struct gk_launch *launch, const struct host_ops *ops, uint32_t i_part,
              uint32_t n_parts);

/* ---- rows of the registry: rows.c ---- */

/* Codes that a row takes, as a set. */
#define HOST_CODE(code) (1u << (code))
#define HOST_PLAIN      (HOST_CODE(GK_CODE_F32) | HOST_CODE(GK_CODE_F16) | HOST_CODE(GK_CODE_BF16))

/* host_can_implement() - codes_text: "int4", for the reason. */
int host_can_implement(const struct gk_problem *problem, enum isa isa, uint32_t codes,
                       const char *codes_text, struct reason *why);

/* host_predicted_usec() - the slower of streaming the packed weight and of the multiply-adds, each
 * at an assumed rate per thread. Threads beyond one a panel do not help. */
struct host_rates {
    double weight_gbps; /* packed bytes a thread takes in at m = 1 */
    double gflops;      /* 2 * m * n * k over time, at large m */
};
double host_predicted_usec(const struct gk_problem *problem, const struct host_rates *rates,
                           uint32_t n_threads);
