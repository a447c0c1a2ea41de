/* w4a8_args.h - the parameters of a launch of w4a8_prefill.cu. Read by C and by nvcc. */
#pragma once

#include <stdint.h>

#include "kernels/cuda/strip_args.h"
#include "kernels/cuda/w8a8_args.h"

/* Rows of y a stride apart. Of base, what belongs to the weight and the types: x_rows, y_rows and m
 * are not used. */
struct w4a8_args {
    struct strip_args base;
    struct w8a8_x x; /* in the order of strips */
    uint32_t m;
    void *y; /* aligned to its elements, and so is its stride */
    uint64_t y_stride_bytes;
    uint32_t n_w_units; /* from here on: filled in by w4a8_enqueue(). A cluster's tiles of W */
    uint32_t n_x_tiles;
    uint32_t n_band_tiles; /* tiles of x that are gone through before the next of W */
    uint32_t n_whole;      /* units of whole tiles; then those of parts */
    uint32_t n_units;
    uint32_t tile_rows; /* of x: 256, 128 or 64 */
    uint32_t part_rows;
};
