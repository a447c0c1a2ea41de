/* strip_wide_reduce.cuh - the last launch of strip_wide.cu, where parts of y are left: adds them up
 * and ends them.
 *
 * A launch of its own: that the CTA which comes last to a strip adds up its parts was tried, and
 * took 139 us instead of 103 for 64 rows and a weight of 28672 x 8192. */
#pragma once

#include "kernels/cuda/strip_wide_parts.cuh"

namespace {

constexpr uint32_t n_reduce_threads = 256; /* a warp has 8 rows of a strip */

/* Parts in order, from 0. */
template <typename traits>
__global__ void __launch_bounds__(n_reduce_threads)
    reduce_parts(const __grid_constant__ strip_wide_args args)
{
    uint32_t i_warp = (blockIdx.x * n_reduce_threads + threadIdx.x) / 32;
    uint32_t i_strip = i_warp / row_blocks(args.m);
    uint32_t i_block = i_warp % row_blocks(args.m);
    griddepcontrol_launch_dependents();
    if (i_strip >= args.n_launch_strips) {
        return;
    }
    lane_columns columns = load_columns(args, i_strip);
    griddepcontrol_wait();
    float4 totals = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (uint32_t i_part = 0; i_part < args.n_parts; i_part++) {
        add(totals, *part_at(args, i_part, i_strip, i_block));
    }
    store_block<traits>(args, columns, i_block, totals);
}

} // namespace
