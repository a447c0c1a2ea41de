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

/* A chain's first value: offsets, of rows g and g + 8 of W, times the sums of columns 2t and 2t + 1
 * of each block of 8 rows of x. Each pair is read once, though two rows of W want it: shared memory
 * is busier than the registers. */
template <int n_rows>
__device__ __forceinline__ void start_chain(uint32_t x_sums, const float2 &offsets,
                                            float (&acc)[n_rows / 2])
{
#pragma unroll
    for (int i = 0; i < n_rows / 8; i++) {
        uint2 pair = ld_shared_v2(x_sums + i * 32);
        float a = __uint_as_float(pair.x);
        float b = __uint_as_float(pair.y);
        acc[4 * i] = offsets.x * a;
        acc[4 * i + 1] = offsets.x * b;
        acc[4 * i + 2] = offsets.y * a;
        acc[4 * i + 3] = offsets.y * b;
    }
}

} // namespace
