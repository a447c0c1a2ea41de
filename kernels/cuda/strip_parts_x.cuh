/* strip_parts_x.cuh - a tile of x as wgmma wants it in shared memory, in strip_wide.cu and
 * strip_batch.cu: 128 k of all rows, two blocks of 64 k, rows of 128 bytes swizzled by 128, k
 * permuted within blocks of 32 as the weight's layout has it (strip.h). What is behind the blocks
 * is the kernel's own. */
#pragma once

#include "kernels/cuda/strip_parts_args.h"
#include "kernels/cuda/strip_x.cuh"

namespace {

constexpr uint32_t n_tile_blocks = STRIP_GROUP_MAX / STRIP_UNIT_K;
constexpr uint32_t n_slice_tiles = STRIP_SLICE_K / STRIP_GROUP_MAX;
constexpr uint32_t row_bytes = STRIP_UNIT_K * 2;

__host__ __device__ constexpr uint32_t tile_blocks_bytes(uint32_t n_rows)
{
    return n_tile_blocks * n_rows * row_bytes;
}

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

} // namespace
