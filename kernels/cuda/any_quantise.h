/* any_quantise.h - between the registry row (C) and the device code (nvcc) that quantises x. */
#pragma once

#include <stdint.h>

#include "ipc/base/dtype.h"
#include "kernels/cuda/quantise_rule.h"
#include "kernels/cuda/rows.h"

/* One launch's x: quantised by NUMERICS.md's rule, or quantised already, to codes taken as numbers,
 * zero points off, in f32: what both kinds of codes hold exactly. */
struct any_quantise {
    uint32_t m, k;
    enum dtype x_dtype; /* F32, F16, BF16; I8 or F8_E4M3: quantised already */
    uint32_t group_k;   /* elements that share a scale: k or GK_ACT_GROUP_K */
    uint32_t n_scales;  /* of a row: k / group_k, rounded up */
    struct quantise_rule rule;
    float *values; /* (m, k) */
    float *scales; /* (m, n_scales) */
    const void *rows[CUDA_ROWS_MAX];
    const float *scale_rows[CUDA_ROWS_MAX]; /* of x that is quantised already, but for *_TENSOR */
};

#ifdef __cplusplus
extern "C" {
#endif

/* any_quantise_enqueue() - 0 or a cudaError_t. any_quantise_load() - the same. */
int any_quantise_enqueue(const struct any_quantise *quantise, void *stream);
int any_quantise_load(void);

#ifdef __cplusplus
}
#endif
