/* strip_parts.h - launching the weight-only kernels for 17 to 64 rows of x on Hopper,
 * strip_wide.cu and strip_batch.cu, which differ in how they multiply. C++.
 *
 * Launches: x is laid out as tiles in the workspace, and multiplied; where the work is cut along k,
 * the parts of y are added up. */
#pragma once

#include "kernels/cuda/strip_parts_args.h"

constexpr uint32_t strip_parts_warpgroups_max = 4; /* of a CTA that multiplies */

/* One for a format and a number of rows. */
struct strip_parts_kernel {
    /* A CTA, of one warp, has 8 rows of x and a slice: blockIdx.y, blockIdx.x. */
    void (*lay_out)(strip_parts_args);
    /* A warp has a strip of a tile. CTAs have the tiles in turn: blockIdx.y; of each one part of k:
     * blockIdx.x; all of them if gridDim.x is 1. */
    void (*multiply)(strip_parts_args);
    uint32_t shared_bytes; /* of a CTA that multiplies, and of each warp */
    uint32_t warp_bytes;
    uint32_t n_rows;      /* of x, in a tile: what wgmma is compiled for */
    uint32_t x_row_bytes; /* of the workspace: such a row in the tiles of a slice */
    float factor;         /* of a sum, before its scales */
};

/* strip_parts_workspace_bytes() - for tiles of n_rows of x, a weight of n x k and that x_row_bytes.
 */
uint64_t strip_parts_workspace_bytes(uint32_t n_rows, uint32_t n, uint32_t k, uint32_t x_row_bytes);

/* strip_parts_load() - as gk_kernel.load, what all kernels share; strip_parts_load_kernel() - one
 * of them. 0 or a cudaError. */
int strip_parts_load();
int strip_parts_load_kernel(const strip_parts_kernel &kernel);

/* strip_parts_enqueue() - y = x W^T, in two launches or more; may_overlap: the first with what is
 * before it in the stream. 0 or a cudaError. */
int strip_parts_enqueue(const strip_parts_kernel &kernel, strip_parts_args *args, bool may_overlap,
                        void *stream);
