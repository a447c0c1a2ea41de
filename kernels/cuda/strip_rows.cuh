/* strip_rows.cuh - the rows of a launch of the strip kernel, in shared memory: from its parameters
 * or, where it is in the stream before they are known, from the GPU's memory once
 * griddepcontrol.wait is over. There they cost no registers, which the kernel is short of. */
#pragma once

#include "gk/cuda.h"
#include "kernels/cuda/strip_instance.h"

namespace {

struct strip_rows {
    const void *x[STRIP_TILE_M_MAX]; /* NULL beyond m */
    void *y[STRIP_TILE_M_MAX];
};

static_assert(sizeof(strip_rows) == STRIP_ROWS_BYTES, "shared memory that the launcher knows of");

/* By the whole block; it has to meet before they are read. */
__device__ __forceinline__ void rows_given(const strip_args &args, strip_rows &rows)
{
    uint32_t i = threadIdx.x;
    if (i < STRIP_TILE_M_MAX) {
        rows.x[i] = i < args.m ? args.x_rows[i] : nullptr;
        rows.y[i] = args.y_rows[i];
    }
}

/* The same. Past the L1 cache, which may have what an earlier launch was told there. */
__device__ __forceinline__ void rows_told(const gk_ahead *ahead, strip_rows &rows)
{
    uint32_t i = threadIdx.x;
    if (i < STRIP_TILE_M_MAX) {
        ulonglong2 row = __ldcg(reinterpret_cast<const ulonglong2 *>(&ahead->rows[i]));
        rows.x[i] = reinterpret_cast<const void *>(row.x);
        rows.y[i] = reinterpret_cast<void *>(row.y);
    }
}

__device__ __forceinline__ uint32_t n_rows_of(const strip_args &args)
{
    return args.ahead == nullptr ? args.m : __ldcg(&args.ahead->m);
}

} // namespace
