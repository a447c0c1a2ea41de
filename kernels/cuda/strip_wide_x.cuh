/* strip_wide_x.cuh - the first launch of strip_wide.cu: x as wgmma wants it in shared memory.
 *
 * Behind the blocks of a tile are the f32 sums over x that a group starts from. Permutation,
 * misaligned rows and ragged ends are over with here. */
#pragma once

#include "kernels/cuda/strip_parts_x.cuh"

namespace {

constexpr int n_groups = 2; /* of 128 in a slice: the only size strip_wide.cu takes */
constexpr int n_group_units = n_units / n_groups;

__host__ __device__ constexpr uint32_t tile_sums_bytes(uint32_t n_rows)
{
    return n_rows * static_cast<uint32_t>(sizeof(float));
}

__host__ __device__ constexpr uint32_t tile_bytes(uint32_t n_rows)
{
    return tile_blocks_bytes(n_rows) + tile_sums_bytes(n_rows);
}

/* A row in the tiles of a slice. */
constexpr uint32_t x_row_bytes = n_groups * tile_bytes(1);

/* A CTA, of one warp, has 8 rows of x and a slice. */
template <typename traits, bool has_zeros>
__global__ void __launch_bounds__(32) lay_out_x(const __grid_constant__ strip_parts_args args)
{
    warp_id id = this_warp();
    uint32_t i_slice = blockIdx.x;
    uint32_t n_rows = gridDim.y * 8;
    uint32_t i_row = 8 * blockIdx.y + id.g;
    uint8_t *tiles = args.x_tiles + static_cast<uint64_t>(i_slice) * n_groups * tile_bytes(n_rows);
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    x_slice<n_groups> x;
    load_fragments(args.base, id, i_slice, i_row < args.m ? args.rows.x[i_row] : nullptr, x);
    sum_groups<traits, n_groups, has_zeros>(x);
    store_row(x, id, i_row, n_rows, tile_bytes(n_rows), tiles);
    if (id.g == 0) {
#pragma unroll
        for (int i = 0; i < n_groups; i++) {
            uint8_t *sums = tiles + i * tile_bytes(n_rows) + tile_blocks_bytes(n_rows);
            reinterpret_cast<float2 *>(sums)[4 * blockIdx.y + id.t] =
                make_float2(x.starts[i][0], x.starts[i][1]);
        }
    }
}

} // namespace
