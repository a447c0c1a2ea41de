/* strip_gemm.h - what the launcher of strip_gemm.cu is told. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define STRIP_TILE_M_MAX 16u

/* One launch: at most 16 rows of x. Passed by value, so a launch copies nothing. Addresses are the
 * GPU's. */
struct strip_args {
    const uint8_t *records;
    const uint32_t *perm;       /* NULL: k in order */
    const float *column_scales; /* NULL: none */
    const void *bias;           /* NULL: none */
    uint32_t n;
    uint32_t k;
    uint32_t m; /* 1..STRIP_TILE_M_MAX */
    uint32_t n_strips;
    uint32_t n_slices;
    uint32_t n_slice_groups;
    uint8_t has_zeros;
    uint8_t x_dtype; /* enum dtype: F16 or BF16 */
    uint8_t y_dtype;
    uint8_t scale_dtype;
    uint8_t bias_dtype;
    uint8_t is_column_divisor;
    uint8_t may_overlap; /* from here to the rows: filled in by strip_gemm_enqueue() */
    uint32_t n_own_min;  /* strips of every CTA; the first n_own_extra have one more */
    uint32_t n_own_extra;
    uint32_t n_round_strips;
    const void *x_rows[STRIP_TILE_M_MAX];
    void *y_rows[STRIP_TILE_M_MAX];
};

#ifdef __cplusplus
extern "C" {
#endif

/* strip_gemm_load() - load every instance onto the current device and allow it its shared
 * memory. Once a device, before the first launch. 0 or a cudaError. */
int strip_gemm_load(void);

/* strip_gemm_enqueue() - y = x W^T on a stream (cudaStream_t). may_overlap: start while the kernel
 * before is still ending, which must not write the weight (programmatic dependent launch). 0 or a
 * cudaError. */
int strip_gemm_enqueue(struct strip_args *args, bool may_overlap, void *stream);

#ifdef __cplusplus
}
#endif
