/* strip_wide_reduce.cuh - the last launch of strip_wide.cu: adds up the parts of y and ends them.
 *
 * A launch of its own: that the CTA which comes last to a strip adds up its parts was tried, and
 * took 139 us instead of 103 for 64 rows and a weight of 28672 x 8192. */
#pragma once

#include "kernels/cuda/strip_types.cuh"
#include "kernels/cuda/strip_wide_args.h"

namespace {

constexpr uint32_t n_reduce_threads = 256; /* a column of y each */
constexpr uint32_t n_reduce_rows = 4;

/* Parts in order, from 0. */
template <typename traits>
__global__ void __launch_bounds__(n_reduce_threads)
    reduce_parts(const __grid_constant__ strip_wide_args args)
{
    uint32_t n_columns = args.n_launch_strips * STRIP_N;
    uint32_t i_column = blockIdx.x * n_reduce_threads + threadIdx.x;
    uint32_t first_m = blockIdx.y * n_reduce_rows;
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    if (i_column >= n_columns) {
        return;
    }
    float totals[n_reduce_rows] = {};
#pragma unroll 4
    for (uint32_t i_part = 0; i_part < args.n_parts; i_part++) {
#pragma unroll
        for (uint32_t i = 0; i < n_reduce_rows; i++) {
            uint32_t i_m = min(first_m + i, args.m - 1);
            totals[i] +=
                args.parts[(static_cast<uint64_t>(i_part) * args.m + i_m) * n_columns + i_column];
        }
    }
    uint32_t i_n = args.first_strip * STRIP_N + i_column;
#pragma unroll
    for (uint32_t i = 0; i < n_reduce_rows; i++) {
        store_y<traits>(args.base, args.rows.y, args.m, i_n, first_m + i, totals[i]);
    }
}

} // namespace
