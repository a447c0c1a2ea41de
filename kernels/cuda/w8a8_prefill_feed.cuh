/* w8a8_prefill_feed.cuh - the tiles of w8a8_prefill.cu, its shared memory, and what brings memory
 * there: the copies of x and W, and what is known of a tile's columns. */
#pragma once

#include "kernels/cuda/div_up.cuh"
#include "kernels/cuda/shared_base.cuh"
#include "kernels/cuda/w8a8_finish.cuh"
#include "kernels/layout/swizzle.h"

namespace {

constexpr uint32_t tile_m = W8A8_PREFILL_ROWS;
constexpr uint32_t half_n = 128;
constexpr uint32_t quarter_n = 64;
constexpr uint32_t n_columns_max = 2 * half_n;
constexpr uint32_t n_consumer_warps = 8;
constexpr uint32_t n_stages_max = 8;
constexpr uint32_t stages_bytes = 192 * 1024; /* of all stages */
constexpr uint32_t x_bytes = tile_m * SWIZZLE_K;
constexpr uint32_t half_bytes = half_n * SWIZZLE_K;
constexpr uint32_t x_scales_bytes = tile_m * sizeof(float);
constexpr uint32_t w_scales_bytes = n_columns_max / quarter_n * sizeof(float);
constexpr uint32_t y_room_bytes = 16 * 128; /* of a warp: 16 rows of 64 elements of 16 bits */

/* Offsets from the start of shared memory. */
struct shared_map {
    static constexpr uint32_t x_scales = stages_bytes; /* a stage: tile_m */
    static constexpr uint32_t w_scales = x_scales + n_stages_max * x_scales_bytes; /* a stage: 4 */
    static constexpr uint32_t y = w_scales + n_stages_max * w_scales_bytes;
    static constexpr uint32_t columns = y + n_consumer_warps * y_room_bytes;
    static constexpr uint32_t full = columns + 5 * n_columns_max * 4;
    static constexpr uint32_t empty = full + 8 * n_stages_max;
    static constexpr uint32_t columns_full = empty + 8 * n_stages_max;
    static constexpr uint32_t columns_empty = columns_full + 8;
    static constexpr uint32_t total_bytes = columns_empty + 8;
};

/* ---- tiles ---- */

/* How y is cut: its first columns into tiles of 128 rows by 256 columns, and those that are left
 * for the last round of SMs into tiles of rest_n. They are dealt to clusters of n_ctas, each CTA of
 * which has other rows of the same columns: a part is that many tiles. */
struct tiling {
    uint32_t n_ctas;
    uint32_t n_m_parts; /* one below the other */
    uint32_t n_large;   /* parts of 256 columns, which come first */
    uint32_t large_n;   /* columns that they cover */
    uint32_t rest_n;    /* columns of the others: 192, 128 or 64 */
    uint32_t n_parts;
    uint32_t n_stages;
    uint32_t stage_bytes; /* x, and behind it W for the largest tile that there is */
};

struct tile {
    uint32_t first_n;
    uint32_t first_m;
    uint32_t n_columns; /* 256, 192, 128 or 64, not all of which need be there */
};

__device__ __forceinline__ tile tile_at(const w8a8_gemm_args &args, const tiling &cut, uint32_t i)
{
    bool is_large = i < cut.n_large;
    uint32_t i_own = is_large ? i : i - cut.n_large;
    tile at;
    at.n_columns = is_large ? n_columns_max : cut.rest_n;
    at.first_n = (is_large ? 0 : cut.large_n) + i_own / cut.n_m_parts * at.n_columns;
    at.first_m = (i_own % cut.n_m_parts * cut.n_ctas + blockIdx.x % cut.n_ctas) * tile_m;
    if (is_large && at.first_n + half_n >= args.n) {
        at.n_columns = half_n;
    }
    return at;
}

/* visit(tile) for each tile of this CTA, in turn. */
template <typename function>
__device__ __forceinline__ void for_tiles(const w8a8_gemm_args &args, const tiling &cut,
                                          const function &visit)
{
    uint32_t step = gridDim.x / cut.n_ctas;
    for (uint32_t i = blockIdx.x / cut.n_ctas; i < cut.n_parts; i += step) {
        visit(tile_at(args, cut, i));
    }
}

/* A place in the ring, and the parity of its phase. */
struct ring_place {
    uint32_t i;
    uint32_t parity;
};

__device__ __forceinline__ void ring_on(const tiling &cut, ring_place &place)
{
    if (++place.i == cut.n_stages) {
        place.i = 0;
        place.parity ^= 1;
    }
}

/* ---- copies, by a thread for each side ---- */

/* Rows of W that are not there are not brought: what is multiplied instead is not stored. */
__device__ __forceinline__ uint32_t n_atoms_of(const w8a8_gemm_args &args, const tile &at)
{
    uint32_t n_left = div_up(args.n, SWIZZLE_ROWS) - at.first_n / SWIZZLE_ROWS;
    return min(n_left, at.n_columns / SWIZZLE_ROWS);
}

/* A CTA brings its share of W to the whole cluster. */
__device__ __forceinline__ void copy_w(const w8a8_gemm_args &args, const tiling &cut,
                                       const tile &at, uint32_t i_block, uint32_t i_stage)
{
    uint32_t full = shared_base() + shared_map::full + 8 * i_stage;
    uint32_t n_atoms = n_atoms_of(args, at);
    uint32_t rank = blockIdx.x % cut.n_ctas;
    uint32_t first = n_atoms * rank / cut.n_ctas, end = n_atoms * (rank + 1) / cut.n_ctas;
    uint32_t to = shared_base() + i_stage * cut.stage_bytes + x_bytes + first * SWIZZLE_ATOM_BYTES;
    uint64_t i_atom = static_cast<uint64_t>(i_block) * div_up(args.n, SWIZZLE_ROWS) +
                      at.first_n / SWIZZLE_ROWS + first;
    const uint8_t *from = args.codes + i_atom * SWIZZLE_ATOM_BYTES;
    mbarrier_arrive_expect_tx(full, n_atoms * SWIZZLE_ATOM_BYTES);
    if (cut.n_ctas == 1) {
        cp_async_bulk(to, from, n_atoms * SWIZZLE_ATOM_BYTES, full);
    } else if (first < end) {
        cp_async_bulk_multicast(to, from, (end - first) * SWIZZLE_ATOM_BYTES, full,
                                static_cast<uint16_t>((1u << cut.n_ctas) - 1));
    }
}

template <w8a8_kind kind>
__device__ __forceinline__ void copy_x(const w8a8_gemm_args &args, const tiling &cut,
                                       const tile &at, uint32_t i_block, uint32_t i_stage)
{
    constexpr uint32_t scales_bytes = kind == W8A8_FP8_GROUP ? x_scales_bytes : 0;
    uint32_t full = shared_base() + shared_map::full + 8 * i_stage;
    const uint8_t *from = args.x.stages + static_cast<uint64_t>(i_block) * args.x.stage_bytes;
    mbarrier_arrive_expect_tx(full, x_bytes + scales_bytes);
    cp_async_bulk(shared_base() + i_stage * cut.stage_bytes, from + at.first_m * SWIZZLE_K, x_bytes,
                  full);
    if constexpr (kind == W8A8_FP8_GROUP) {
        cp_async_bulk(shared_base() + shared_map::x_scales + i_stage * x_scales_bytes,
                      from + args.x.n_rows * SWIZZLE_K + at.first_m * sizeof(float), scales_bytes,
                      full);
    }
}

/* All copies of W or of x: copy(tile, block of k, stage). */
template <typename copy_function>
__device__ __forceinline__ void feed(const w8a8_gemm_args &args, const tiling &cut,
                                     const copy_function &copy)
{
    uint32_t n_k_blocks = div_up(args.k, SWIZZLE_K);
    ring_place place = {0, 0};
    for_tiles(args, cut, [&](const tile &at) {
        for (uint32_t i_block = 0; i_block < n_k_blocks; i_block++) {
            mbarrier_wait_parity(shared_base() + shared_map::empty + 8 * place.i, place.parity ^ 1);
            copy(at, i_block, place.i);
            ring_on(cut, place);
        }
    });
}

/* ---- scales of W, by a warp ---- */

/* Of a quarter of the tile, for a block of k: a quarter never straddles two. */
__device__ __forceinline__ float w_scale_of(const w8a8_gemm_args &args, const tile &at,
                                            uint32_t i_quarter, uint32_t i_block)
{
    uint32_t i_n = min(at.first_n + i_quarter * quarter_n, args.n - 1);
    return load(args.scales, static_cast<dtype>(args.scale_dtype),
                static_cast<uint64_t>(i_block) * args.scale_columns + i_n / args.group_n);
}

/* Of all quarters, of a lane's own block of k, of 32 from i_block on. */
__device__ __forceinline__ float4 w_scales_of(const w8a8_gemm_args &args, const tile &at,
                                              uint32_t i_block)
{
    uint32_t i_own = min(i_block + threadIdx.x % 32, div_up(args.k, SWIZZLE_K) - 1);
    return make_float4(w_scale_of(args, at, 0, i_own), w_scale_of(args, at, 1, i_own),
                       w_scale_of(args, at, 2, i_own), w_scale_of(args, at, 3, i_own));
}

/* FP8_GROUP: those of 32 blocks come at a time, 32 blocks ahead, and go to their stages one by one.
 */
__device__ __forceinline__ void bring_w_scales(const w8a8_gemm_args &args, const tiling &cut)
{
    uint32_t n_k_blocks = div_up(args.k, SWIZZLE_K);
    ring_place place = {0, 0};
    for_tiles(args, cut, [&](const tile &at) {
        float4 scales = {}, next = w_scales_of(args, at, 0);
        for (uint32_t i_block = 0; i_block < n_k_blocks; i_block++) {
            if (i_block % 32 == 0) {
                scales = next;
                next = w_scales_of(args, at, i_block + 32);
            }
            mbarrier_wait_parity(shared_base() + shared_map::empty + 8 * place.i, place.parity ^ 1);
            if (threadIdx.x % 32 == i_block % 32) {
                st_shared_v4(shared_base() + shared_map::w_scales + place.i * w_scales_bytes,
                             scales);
                mbarrier_arrive(shared_base() + shared_map::full + 8 * place.i);
            }
            __syncwarp(); /* a lane left behind would wait for a parity of two phases on */
            ring_on(cut, place);
        }
    });
}

/* ---- columns of y, by a warp ---- */

/* What is known of a tile's columns, each an array of n_columns_max. */
struct column_offsets {
    static constexpr uint32_t scale = 0;
    static constexpr uint32_t column_scale = 4 * n_columns_max;
    static constexpr uint32_t bias = 8 * n_columns_max;
    static constexpr uint32_t zero = 12 * n_columns_max;
    static constexpr uint32_t code_sum = 16 * n_columns_max;
};

template <w8a8_kind kind>
__device__ __forceinline__ void bring_column(const w8a8_gemm_args &args, uint32_t i_n, uint32_t to)
{
    column one = column_of<kind>(args, i_n);
    st_shared(to + column_offsets::scale, __float_as_uint(one.scale));
    st_shared(to + column_offsets::column_scale, __float_as_uint(one.column_scale));
    st_shared(to + column_offsets::bias,
              __float_as_uint(args.bias != nullptr ? one.bias : -0.0f)); /* which changes nothing */
    st_shared(to + column_offsets::zero, static_cast<uint32_t>(one.zero));
    st_shared(to + column_offsets::code_sum, static_cast<uint32_t>(one.code_sum));
}

/* While the tile is multiplied: memory is slow to answer, and has time to then. */
template <w8a8_kind kind>
__device__ __forceinline__ void bring_columns(const w8a8_gemm_args &args, const tiling &cut)
{
    uint32_t parity = 1;
    for_tiles(args, cut, [&](const tile &at) {
        mbarrier_wait_parity(shared_base() + shared_map::columns_empty, parity);
        for (uint32_t j = threadIdx.x % 32; j < at.n_columns; j += 32) {
            bring_column<kind>(args, min(at.first_n + j, args.n - 1),
                               shared_base() + shared_map::columns + 4 * j);
        }
        mbarrier_arrive(shared_base() + shared_map::columns_full); /* all 32 */
        parity ^= 1;
    });
}

} // namespace
