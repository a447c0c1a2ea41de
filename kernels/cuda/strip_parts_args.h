/* strip_parts_args.h - the parameters of the launches of strip_wide.cu and strip_batch.cu. */
#pragma once

#include <stdint.h>

#include "kernels/cuda/rows.h"
#include "kernels/cuda/strip_args.h"

#define STRIP_PART_LANES 4u /* of the 16 lanes of a sum (NUMERICS.md): a part of k */

/* At most 64 rows of x. base.x_rows and base.m are not used. */
struct strip_parts_args {
    struct strip_args base; /* the weight */
    struct cuda_rows rows;
    uint32_t m;           /* 1..64 */
    uint8_t *x_tiles;     /* the workspace */
    uint32_t slice_bytes; /* of a strip's record: strip_batch_enqueue() says it, for its kernels */
    float *parts;         /* from here on: filled in by strip_parts_enqueue() */
    float factor;         /* of a sum, before its scales */
    uint32_t n_lanes;
    uint32_t n_parts;
    uint32_t first_strip; /* of the launch */
    uint32_t n_launch_strips;
    uint32_t n_tiles; /* of strips */
};
