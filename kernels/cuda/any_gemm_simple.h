/* any_gemm_simple.h - between the registry row (C) and the device code (nvcc). */
#pragma once

#include <stdint.h>

#include "ipc/base/dtype.h"
#include "kernels/cuda/rows.h"
#include "kernels/layout/strip.h"

/* The extra that the layout of strip.h needs to be read. */
struct any_gemm_strips {
    struct strip_records lie; /* no records: the weight lies as kernels/layout/cuda_kmajor.h says */
    uint32_t n_slice_groups;
    enum strip_scaling scaling;
};

/* What scales x has, if it is quantised: see any_quantise.h. */
enum any_x_scaling {
    ANY_X_NONE,
    ANY_X_ROW,   /* one a row */
    ANY_X_GROUP, /* one for each 128 of k of each row */
    ANY_X_WHOLE, /* one a row, and x is whole numbers whose sums are exact */
};

/* Device addresses into the packed weight; NULL where a part is absent. */
struct any_gemm {
    uint32_t m, n, k;
    uint32_t n_stride;
    uint32_t row_bytes;
    uint32_t group_n, group_k; /* of plain codes: 1 and k */
    uint32_t scale_columns;
    uint32_t code;         /* enum gk_code */
    uint32_t column_scale; /* enum gk_column_scale */
    enum dtype scale_dtype, bias_dtype, x_dtype, y_dtype;
    enum any_x_scaling x_scaling;
    uint32_t n_x_scales;           /* a row */
    const float *x_scales;         /* (m, n_x_scales) */
    struct any_gemm_strips strips; /* instead of codes and zeros below, and of scales but those that
                                      hold for all of k */
    uint32_t n_swizzle_groups;     /* not 0: codes lie as kernels/layout/swizzle.h says */
    uint32_t has_zeros;
    const uint8_t *codes;
    const void *scales; /* NULL: in the strips */
    const uint8_t *zeros;
    const uint32_t *perm;
    const float *column_scales;
    const void *bias;
    struct cuda_rows rows;
};

#ifdef __cplusplus
extern "C" {
#endif

/* any_gemm_simple_enqueue() - 0 or a cudaError_t. any_gemm_simple_load() - the same. */
int any_gemm_simple_enqueue(const struct any_gemm *gemm, void *stream);
int any_gemm_simple_load(void);

#ifdef __cplusplus
}
#endif
