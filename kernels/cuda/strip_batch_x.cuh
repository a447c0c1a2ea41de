/* strip_batch_x.cuh - the first launch of strip_batch.cu: x as wgmma wants it in shared memory.
 *
 * Behind the blocks of a tile are, for integer codes, the f32 sums over x that each of its groups
 * starts from. Permutation, misaligned rows and ragged ends are over with here. Tiles lie in the
 * order in which sums take them: lane after lane, in a lane every 16th slice. */
#pragma once

#include "kernels/cuda/strip_parts_x.cuh"

namespace {

constexpr uint32_t n_tile_groups_max = 4;

__host__ __device__ constexpr uint32_t tile_sums_bytes(uint32_t n_rows, uint32_t n_groups)
{
    return n_groups / n_slice_tiles * n_rows * static_cast<uint32_t>(sizeof(float));
}

/* The same for every format, so that the copy engine's addresses are easy. */
__host__ __device__ constexpr uint32_t tile_bytes(uint32_t n_rows)
{
    return tile_blocks_bytes(n_rows) + n_tile_groups_max * n_rows * 4;
}

/* A row in the tiles of a slice. */
constexpr uint32_t x_row_bytes = n_slice_tiles * tile_bytes(1);

/* Row i_row of n_rows, this lane's part of it, into the tiles of a slice, which tile_bytes lie
 * between: the B fragments of mma.sync are what goes side by side. */
__device__ __forceinline__ void store_row(const x_fragments &x, const warp_id &id, uint32_t i_row,
                                          uint32_t n_rows, uint32_t tile_bytes, uint8_t *tiles)
{
#pragma unroll
    for (int i_unit = 0; i_unit < n_units; i_unit++) {
        uint8_t *row = tiles + i_unit / n_tile_blocks * tile_bytes +
                       (i_unit % n_tile_blocks * n_rows + i_row) * row_bytes;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t chunk = i ^ id.g;
            *reinterpret_cast<uint32_t *>(row + chunk * 16 + id.t * 4) =
                x.fragments[4 * i_unit + i / 2][i % 2];
        }
    }
}

/* Slices of the lanes before, of all there are. */
__device__ __forceinline__ uint32_t slices_before_lane(uint32_t n_slices, uint32_t i_lane)
{
    return n_slices / STRIP_STEP_SLICES * i_lane + min(n_slices % STRIP_STEP_SLICES, i_lane);
}

/* Groups of the slice first and first + 1: what they start from, for 8 rows of x. */
template <typename traits, int n_groups>
__device__ __forceinline__ void store_starts(const x_fragments &x, int first, bool has_zeros,
                                             uint8_t *tiles, uint32_t n_rows, const warp_id &id)
{
    constexpr int n_tile_groups = n_groups / n_slice_tiles;
    float starts[2][2];
    if (has_zeros) {
        sum_two_groups<traits, n_groups, true>(x, first, starts);
    } else {
        sum_two_groups<traits, n_groups, false>(x, first, starts);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int i_group = first + i;
        uint8_t *sums = tiles + i_group / n_tile_groups * tile_bytes(n_rows) +
                        tile_blocks_bytes(n_rows) + i_group % n_tile_groups * n_rows * 4;
        if (id.g == 0) {
            reinterpret_cast<float2 *>(sums)[4 * blockIdx.y + id.t] =
                make_float2(starts[i][0], starts[i][1]);
        }
    }
}

/* A CTA, of one warp, has 8 rows of x and a slice. n_groups: of a slice; 0 for codes whose groups
 * start from 0. */
template <typename traits, int n_groups>
__global__ void __launch_bounds__(32) lay_out_x(const __grid_constant__ strip_parts_args args)
{
    warp_id id = this_warp();
    uint32_t i_slice = blockIdx.x;
    uint32_t n_rows = gridDim.y * 8;
    uint32_t i_row = 8 * blockIdx.y + id.g;
    uint32_t i_place = slices_before_lane(args.base.n_slices, i_slice % STRIP_STEP_SLICES) +
                       i_slice / STRIP_STEP_SLICES;
    uint8_t *tiles =
        args.x_tiles + static_cast<uint64_t>(i_place) * n_slice_tiles * tile_bytes(n_rows);
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    x_fragments x;
    load_fragments(args.base, id, i_slice, i_row < args.m ? args.rows.x[i_row] : nullptr, x);
    store_row(x, id, i_row, n_rows, tile_bytes(n_rows), tiles);
    if constexpr (n_groups != 0) {
#pragma unroll
        for (int i = 0; i < n_groups; i += 2) {
            store_starts<traits, n_groups>(x, i, args.base.has_zeros, tiles, n_rows, id);
        }
    }
}

} // namespace
