/* strip_rows.cuh - the rows of a launch of the strip kernel, in shared memory: from its parameters
 * or, where it is in the stream before they are known, from the GPU's memory once
 * griddepcontrol.wait is over. Read from there they cost fewer registers than from the parameters:
 * 16 rows of an int4 weight of 4096 x 14336 take 16.4 us instead of 16.9 on an H200. */
#pragma once

#include "kernels/cuda/strip_instance.h"

namespace {

struct strip_rows {
    const void *x[STRIP_TILE_M_MAX]; /* NULL beyond m */
    void *y[STRIP_TILE_M_MAX];
};

static_assert(sizeof(strip_rows) == STRIP_ROWS_BYTES, "shared memory that the launcher knows of");

/* By the whole block, which has to meet before they are read. */
__device__ __forceinline__ void put_rows(const strip_args &args, strip_rows &rows)
{
    uint32_t i = threadIdx.x;
    if (i < STRIP_TILE_M_MAX) {
        rows.x[i] = i < args.m ? args.x_rows[i] : nullptr;
        rows.y[i] = args.y_rows[i];
    }
}

/* By the whole block. Past the L1 cache, which may have what an earlier launch was told there. */
__device__ __forceinline__ void take_rows(const gk_ahead *ahead, strip_rows &rows)
{
    uint32_t i = threadIdx.x;
    if (i < STRIP_TILE_M_MAX) {
        ulonglong2 row = __ldcg(reinterpret_cast<const ulonglong2 *>(&ahead->rows[i]));
        rows.x[i] = reinterpret_cast<const void *>(row.x);
        rows.y[i] = reinterpret_cast<void *>(row.y);
    }
    __syncthreads();
}

/* Once the rows are there. Of a launch that was told them, those of its rows that are there: asking
 * the GPU's memory for their number takes a trip more. */
__device__ __forceinline__ uint32_t n_rows_of(const strip_args &args, const gk_ahead *ahead,
                                              const strip_rows &rows)
{
    uint32_t m = args.m;
    if (ahead != nullptr) {
        for (m = 0; m < STRIP_TILE_M_MAX && rows.y[m] != nullptr; m++) {
        }
    }
    return m;
}

} // namespace
