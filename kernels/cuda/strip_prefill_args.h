/* strip_prefill_args.h - the parameters of a launch of strip_prefill.cu. */
#pragma once

#include <stdint.h>

#include "kernels/cuda/strip_args.h"

/* Any number of rows of x and y, a stride apart. base.x_rows, base.y_rows and base.m are not
 * used. */
struct strip_prefill_args {
    struct strip_args base; /* the weight */
    const void *x;          /* 16-byte aligned, and so is its stride */
    uint64_t x_stride_bytes;
    void *y; /* aligned to its elements, and so is its stride */
    uint64_t y_stride_bytes;
    uint32_t m;
    uint32_t
        n_w_units; /* from here on filled in by strip_prefill_enqueue(): a cluster's tiles of W */
    uint32_t n_x_tiles;     /* in halves if there are no whole units */
    uint32_t n_whole_units; /* of n_w_units by n_x_tiles; the others are taken in halves */
    uint32_t n_units;       /* of both */
    uint32_t n_round_units; /* those that clusters take in turn; of the others, which are whole, */
    uint32_t n_line_slices; /* each has so many slices of k, laid end to end */
    uint8_t *handed;        /* sums on their way from one cluster to another */
    uint32_t n_band_tiles;  /* tiles of x that are gone through before the next of W */
    uint32_t n_k_stages;    /* of x */
    uint32_t slice_scale_bytes;
    uint32_t slice_zero_bytes;
    uint32_t slice_bytes;
    uint32_t job_scale_bytes; /* of a slice, a multiple of 16; 0: none */
    uint32_t record_bytes;    /* of a whole step */
    float sum_factor;         /* what sums are multiplied with: the unit of widened codes */
};
