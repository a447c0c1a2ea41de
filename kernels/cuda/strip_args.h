/* strip_args.h - the parameters of a launch of the strip kernels. */
#pragma once

#include <stdint.h>

#define STRIP_TILE_M_MAX 16u

/* One launch: at most 16 rows of x. Passed by value, so a launch copies nothing. Addresses are the
 * GPU's. */
struct strip_args {
    const uint8_t *records;
    const uint32_t *perm;       /* NULL: k in order */
    const void *row_scales;     /* (n / row_scale_group_n) of scale_dtype; NULL: none */
    const float *column_scales; /* NULL: none */
    const void *bias;           /* NULL: none */
    const float *x_scales;      /* (m), of rows of x; NULL: none */
    uint32_t n;
    uint32_t k;
    uint32_t m; /* 1..STRIP_TILE_M_MAX */
    uint32_t n_strips;
    uint32_t n_slices;
    uint32_t n_slice_groups;
    uint32_t row_scale_group_n;
    uint8_t code_bits; /* 4 or 8 */
    uint8_t scaling;   /* enum strip_scaling, which says what the codes are too */
    uint8_t has_zeros;
    uint8_t x_dtype; /* enum dtype: F16 or BF16 */
    uint8_t y_dtype;
    uint8_t scale_dtype;
    uint8_t bias_dtype;
    uint8_t is_column_divisor;
    uint8_t may_overlap; /* from here to the rows: filled in by strip_gemm_enqueue() */
    uint8_t n_stages;
    uint32_t n_own_min; /* strips of every CTA; the first n_own_extra have one more */
    uint32_t n_own_extra;
    uint32_t n_round_strips;
    const void *x_rows[STRIP_TILE_M_MAX];
    void *y_rows[STRIP_TILE_M_MAX];
};
