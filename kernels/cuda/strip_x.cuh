/* strip_x.cuh - rows of x as B fragments in registers, for the strip kernels. */
#pragma once

#include "kernels/cuda/strip_feed.cuh"
#include "kernels/cuda/strip_types.cuh"

namespace {

/* The B fragments of a slice; with integer codes for each group the factors with which it starts:
 * for symmetric weights -(offset + zero) * sum(x), else sum(x); columns 2t and 2t + 1 of the
 * fragment. */
struct x_fragments {
    uint32_t fragments[n_tiles_k][2];
};

template <int n_groups> struct x_slice : x_fragments {
    float starts[n_groups][2];
};

__device__ __forceinline__ void set_block(x_fragments &x, int i_block, const uint4 &v)
{
    x.fragments[2 * i_block][0] = v.x;
    x.fragments[2 * i_block][1] = v.y;
    x.fragments[2 * i_block + 1][0] = v.z;
    x.fragments[2 * i_block + 1][1] = v.w;
}

/* Eight elements of a row of x from position i_k on, through the permutation; zeros beyond the end.
 */
__device__ __noinline__ uint4 gather_x8(const strip_args &args, const uint16_t *row, uint32_t i_k)
{
    uint32_t pairs[4] = {0, 0, 0, 0};
    for (uint32_t i = 0; i < 8; i++) {
        if (row != nullptr && i_k + i < args.k) {
            uint32_t from = args.perm != nullptr ? args.perm[i_k + i] : i_k + i;
            pairs[i / 2] |= static_cast<uint32_t>(row[from]) << 16 * (i % 2);
        }
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

/* row_of_lane: row g of the 8, NULL for one that is not there. Rows that start on 16 bytes and need
 * no permutation come as vectors, all loads in flight at once. */
__device__ __forceinline__ void load_fragments(const strip_args &args, const warp_id &id,
                                               uint32_t i_slice, const void *row_of_lane,
                                               x_fragments &x)
{
    const uint16_t *row = static_cast<const uint16_t *>(row_of_lane);
    uint32_t first_k = i_slice * STRIP_SLICE_K + 8 * id.t;
    bool is_vector = args.perm == nullptr && reinterpret_cast<uintptr_t>(row) % 16 == 0 &&
                     (i_slice + 1) * STRIP_SLICE_K <= args.k;
    if (__all_sync(0xffffffffu, is_vector)) {
#pragma unroll
        for (int i = 0; i < n_tiles_k / 2; i++) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (row != nullptr) {
                v = *reinterpret_cast<const uint4 *>(row + first_k + 32 * i);
            }
            set_block(x, i, v);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < n_tiles_k / 2; i++) {
        set_block(x, i, gather_x8(args, row, first_k + 32 * i));
    }
}

/* What groups first and first + 1 start from. */
template <typename traits, int n_groups, bool has_zeros>
__device__ __forceinline__ void sum_two_groups(const x_fragments &x, int first,
                                               float (&starts)[2][2])
{
    constexpr uint32_t factor = has_zeros ? traits::one : traits::minus_symmetric;
    constexpr int n_tiles = n_tiles_k / n_groups;
    const uint32_t factors[4] = {factor, factor, factor, factor};
    float sums[2][2][4] = {}; /* two short chains instead of a long one */
#pragma unroll
    for (int i = 0; i < 2 * n_tiles; i++) {
        traits::mma(sums[i % 2][i / 2 % 2], factors,
                    x.fragments[(first + i % 2) * n_tiles + i / 2]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float a = sums[i][0][0] + sums[i][1][0];
        float b = sums[i][0][1] + sums[i][1][1];
        /* A sum that is not finite becomes NaN: against zero points an infinity might survive. */
        starts[i][0] = has_zeros ? fmaf(a, 0.0f, a) : a;
        starts[i][1] = has_zeros ? fmaf(b, 0.0f, b) : b;
    }
}

template <typename traits, int n_groups, bool has_zeros>
__device__ __forceinline__ void sum_groups(x_slice<n_groups> &x)
{
    static_assert(n_groups == 2);
    sum_two_groups<traits, n_groups, has_zeros>(x, 0, x.starts);
}

} // namespace
