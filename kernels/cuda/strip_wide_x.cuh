/* strip_wide_x.cuh - x as wgmma wants it in shared memory, laid out by the CTA that multiplies with
 * it.
 *
 * A group is 128 k of all rows: two blocks of 64 k, rows of 128 bytes swizzled by 128, k permuted
 * within blocks of 32 as the weight's layout has it (strip.h), and f32 a row, the sums over x that
 * chains start from. Eight rows are a warp's work: it loads B fragments of mma.sync straight from
 * the rows, two groups ahead, and stmatrix puts them where they belong. Permutation, misaligned
 * rows and ragged ends are over with here. */
#pragma once

#include "kernels/cuda/strip_int.cuh"
#include "kernels/cuda/strip_wide_args.h"

namespace {

constexpr int n_groups = 2; /* of 128 in a slice: the only size strip_wide.cu takes */
constexpr int n_group_units = n_units / n_groups;
constexpr uint32_t group_k = STRIP_SLICE_K / n_groups;
constexpr uint32_t row_bytes = STRIP_UNIT_K * 2;
constexpr uint32_t n_wide_warps = 8;

/* Rows of x a tile has: what wgmma is compiled for. */
uint32_t tile_rows(uint32_t m)
{
    return m <= 16 ? 16 : m <= 32 ? 32 : 64;
}

/* Eight rows of a group, in a warp: block i of 32 k is v[i]. */
struct x_group {
    uint4 v[4];
};

/* Which warps lay out a group: those of a class, by turns. Groups are counted from the CTA's first
 * on. */
template <int n_rows> __device__ __forceinline__ bool is_turn(const warp_id &id, uint32_t i_group)
{
    constexpr uint32_t n_blocks = n_rows / 8;
    return id.warp / n_blocks == i_group % (n_wide_warps / n_blocks);
}

/* row: of this lane, NULL for one that is not there. */
__device__ __forceinline__ void load_group(const strip_args &args, const warp_id &id,
                                           const void *row_of_lane, uint32_t first_k, x_group &x)
{
    const uint16_t *row = static_cast<const uint16_t *>(row_of_lane);
    bool is_vector = args.perm == nullptr && reinterpret_cast<uintptr_t>(row) % 16 == 0 &&
                     first_k + group_k <= args.k;
    first_k += 8 * id.t;
    if (__all_sync(0xffffffffu, is_vector)) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x.v[i] = make_uint4(0, 0, 0, 0);
            if (row != nullptr) {
                x.v[i] = *reinterpret_cast<const uint4 *>(row + first_k + 32 * i);
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x.v[i] = gather_x8(args, row, first_k + 32 * i);
    }
}

/* The sums of eight rows, as sum_groups() makes them: rows 2t and 2t + 1. */
template <typename traits, bool has_zeros>
__device__ __forceinline__ float2 sum_group(const x_group &x)
{
    constexpr uint32_t factor = has_zeros ? traits::one : traits::minus_symmetric;
    const uint32_t factors[4] = {factor, factor, factor, factor};
    float sums[2][4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t even[2] = {x.v[i].x, x.v[i].y};
        const uint32_t odd[2] = {x.v[i].z, x.v[i].w};
        traits::mma(sums[0], factors, even);
        traits::mma(sums[1], factors, odd);
    }
    float a = sums[0][0] + sums[1][0];
    float b = sums[0][1] + sums[1][1];
    return make_float2(has_zeros ? fmaf(a, 0.0f, a) : a, has_zeros ? fmaf(b, 0.0f, b) : b);
}

/* Rows 8 i_block.. of a group to its place in shared memory, with their sums. */
template <typename traits, bool has_zeros, int n_rows>
__device__ __forceinline__ void store_group(const warp_id &id, const x_group &x, uint32_t i_block,
                                            uint32_t place, uint32_t x_sums)
{
    uint32_t i_row = 8 * i_block + id.lane % 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t chunk = (4 * (i % 2) + id.lane / 8) ^ id.lane % 8;
        stmatrix_x4(place + (i / 2 * n_rows + i_row) * row_bytes + chunk * 16, x.v[i]);
    }
    float2 sums = sum_group<traits, has_zeros>(x);
    if (id.g == 0) {
        st_shared_v2(x_sums + (8 * i_block + 2 * id.t) * 4, sums);
    }
    fence_proxy_async();
}

} // namespace
