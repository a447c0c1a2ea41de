/* strip_wide_x.cuh - the first launch of strip_wide.cu: x as wgmma wants it in shared memory.
 *
 * Behind the blocks of a tile is what a group starts from. Permutation,
 * misaligned rows and ragged ends are over with here. */
#pragma once

#include "kernels/cuda/strip_parts_x.cuh"

namespace {

constexpr int n_groups = 2; /* of 128 in a slice: the only size strip_wide.cu takes */
constexpr int n_group_units = n_units / n_groups;

/* Behind the blocks: for weights with zero points the sums, else first values in pieces. */
__host__ __device__ constexpr uint32_t tile_starts_bytes(uint32_t n_rows, bool has_zeros)
{
    return n_rows * (has_zeros ? 4 : 16);
}

__host__ __device__ constexpr uint32_t tile_bytes(uint32_t n_rows, bool has_zeros)
{
    return tile_blocks_bytes(n_rows) + tile_starts_bytes(n_rows, has_zeros);
}

/* A row in the tiles of a slice. */
constexpr uint32_t x_row_bytes = n_groups * tile_bytes(1, false);

/* An f32 as three bf16 whose sum it is, for the tensor cores to add up; one that is not finite is
 * the first of them. */
__device__ __forceinline__ uint4 pieces_of(float v)
{
    uint32_t high = __float_as_uint(v) & 0xffff0000u;
    float rest = isfinite(v) ? v - __uint_as_float(high) : 0.0f;
    uint32_t middle = __float_as_uint(rest) & 0xffff0000u;
    float low = rest - __uint_as_float(middle);
    return make_uint4(high >> 16 | middle, __float_as_uint(low) >> 16, 0, 0);
}

/* 8 rows of a slice, first_row and on of n_rows, into its tiles, which tile_bytes lie between: the
 * B fragments of mma.sync are what goes side by side. One warp; they go by way of shared memory, so
 * that it writes whole lines. */
__device__ __forceinline__ void store_rows(const x_fragments &x, const warp_id &id,
                                           uint32_t first_row, uint32_t n_rows, uint32_t tile_bytes,
                                           uint8_t *tiles)
{
    constexpr uint32_t n_row_chunks = row_bytes / 16;
    __shared__ uint4 chunks[n_units][8 * n_row_chunks];
#pragma unroll
    for (int i_unit = 0; i_unit < n_units; i_unit++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint4 *chunk = &chunks[i_unit][id.g * n_row_chunks + (i ^ id.g)];
            reinterpret_cast<uint32_t *>(chunk)[id.t] = x.fragments[4 * i_unit + i / 2][i % 2];
        }
    }
    __syncwarp();
#pragma unroll
    for (int i_unit = 0; i_unit < n_units; i_unit++) {
        uint8_t *rows = tiles + i_unit / n_tile_blocks * tile_bytes +
                        (i_unit % n_tile_blocks * n_rows + first_row) * row_bytes;
#pragma unroll
        for (uint32_t i = id.lane; i < 8 * n_row_chunks; i += 32) {
            reinterpret_cast<uint4 *>(rows)[i] = chunks[i_unit][i];
        }
    }
}

/* A CTA, of one warp, has 8 rows of x and a slice. */
template <typename traits, bool has_zeros>
__global__ void __launch_bounds__(32) lay_out_x(const __grid_constant__ strip_parts_args args)
{
    warp_id id = this_warp();
    uint32_t i_slice = blockIdx.x;
    uint32_t n_rows = gridDim.y * 8;
    uint32_t i_row = 8 * blockIdx.y + id.g;
    constexpr uint32_t n_value_bytes = tile_starts_bytes(1, has_zeros);
    uint32_t n_bytes = tile_bytes(n_rows, has_zeros);
    uint8_t *tiles = args.x_tiles + static_cast<uint64_t>(i_slice) * n_groups * n_bytes;
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    x_slice<n_groups> x;
    load_fragments(args.base, id, i_slice, i_row < args.m ? args.rows.x[i_row] : nullptr, x);
    sum_groups<traits, n_groups, has_zeros>(x);
    store_rows(x, id, 8 * blockIdx.y, n_rows, n_bytes, tiles);
    if (id.g == 0) {
#pragma unroll
        for (int i = 0; i < n_groups; i++) {
            uint8_t *place = tiles + i * n_bytes + tile_blocks_bytes(n_rows) +
                             (8 * blockIdx.y + 2 * id.t) * n_value_bytes;
            if constexpr (has_zeros) {
                *reinterpret_cast<float2 *>(place) = make_float2(x.starts[i][0], x.starts[i][1]);
            } else {
                reinterpret_cast<uint4 *>(place)[0] = pieces_of(x.starts[i][0]);
                reinterpret_cast<uint4 *>(place)[1] = pieces_of(x.starts[i][1]);
            }
        }
    }
}

} // namespace
