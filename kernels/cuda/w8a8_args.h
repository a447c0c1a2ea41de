/* w8a8_args.h - the parameters of the launches of w8a8_x.cu and w8a8_gemm.cu. Read by C and by
 * nvcc.
 */
#pragma once

#include <stdint.h>

#include "kernels/cuda/quantise_rule.h"
#include "kernels/cuda/rows.h"

#define W8A8_PREFILL_ROWS 128u /* of x, to which more than CUDA_ROWS_MAX are rounded up */

/* How sums are scaled on their way. */
enum w8a8_kind {
    W8A8_FP8,       /* e4m3, scales wait for the end */
    W8A8_FP8_GROUP, /* e4m3, scales for each 128 of k */
    W8A8_INT8,      /* whole numbers; scales wait for the end */
    W8A8_N_KINDS
};

/* What is made of e4m3 x. */
enum w8a8_x_form {
    W8A8_X_TILES,  /* for w8a8_gemm.cu, as below; int8 too */
    W8A8_X_STRIPS, /* the same, k in the order of strips: for w4a8_prefill.cu */
    W8A8_X_ROWS    /* (n_rows) rows of f16 that the codes stand for, stage_bytes apart, at stages */
};

/* x as w8a8_x.cu lays it out for w8a8_gemm.cu, in the workspace. n_rows is m rounded up to what
 * wgmma is compiled for; rows beyond m are zero. */
struct w8a8_x {
    uint32_t n_rows;
    uint32_t stage_blocks; /* blocks of 128 k in a stage */
    uint32_t stage_bytes;
    uint8_t *stages; /* each: blocks of n_rows x 128 codes as swizzle.h has them, then, if the kind
                        is FP8_GROUP, for each block n_rows f32 scales */
    float *scales;   /* (n_rows), 1 where a row has none */
    int32_t *sums;   /* (n_rows), of the codes: INT8 */
    int32_t *zeros;  /* (n_rows), zero points: INT8 */
};

/* Rows of x a stride apart, where there are more than CUDA_ROWS_MAX. */
struct w8a8_prefill_x {
    const uint8_t *rows; /* NULL: they are in the tables */
    const uint8_t *scale_rows;
    uint64_t stride_bytes;
    uint64_t scale_stride_bytes;
};

struct w8a8_lay_out_args {
    struct w8a8_x x;
    uint32_t m, k;
    uint32_t kind;
    struct quantise_rule rule;
    uint32_t has_sums; /* the sums of codes are wanted */
    uint32_t form;     /* enum w8a8_x_form */
    uint32_t x_dtype;
    struct w8a8_prefill_x prefill;
    const void *rows[CUDA_ROWS_MAX];
    const float *scale_rows[CUDA_ROWS_MAX]; /* of rows that come quantised; NULL: act_scale */
};

struct w8a8_gemm_args {
    struct w8a8_x x;
    uint32_t m, n, k;
    uint32_t kind;
    uint32_t group_n;       /* rows of W that share a scale */
    uint32_t scale_columns; /* of a group of k */
    const uint8_t *codes;
    const void *scales;
    const uint8_t *zeros;       /* of integer codes, with 128 added; NULL: none */
    const int32_t *code_sums;   /* of integer codes */
    const float *column_scales; /* NULL: none */
    const void *bias;           /* NULL: none */
    uint8_t *prefill_y;         /* rows of y a stride apart, instead of the table; else NULL */
    uint64_t y_stride_bytes;
    uint8_t scale_dtype, bias_dtype, y_dtype;
    uint8_t is_column_divisor;
    uint8_t is_fast;         /* of more than CUDA_ROWS_MAX rows of FP8: one chain over all of k */
    uint32_t n_block_groups; /* from here on: filled in by w8a8_gemm_enqueue() */
    uint32_t n_stages;
    uint32_t n_m_parts; /* of the rows of x, each with warpgroups of its own */
    void *y[CUDA_ROWS_MAX];
};
