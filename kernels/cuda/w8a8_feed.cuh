/* w8a8_feed.cuh - what a CTA of w8a8_gemm.cu works on, its shared memory, and the copies into it
 * that run ahead.
 *
 * Where there are many rows of x, two CTAs are a pair (a cluster): each copies half of every stage
 * of x to both. All CTAs read all of x, which the L2 cache gives no faster than memory gives the
 * weight.
 *
 * Shared memory: n_stages x (blocks of k of the CTA's rows of W), n_stages x (the same blocks of
 * x), four barriers a stage, one for what is known of the rows of x, and for FP8_GROUP the scales
 * of the CTA's rows for all of k. */
#pragma once

#include "kernels/cuda/div_up.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/shared_base.cuh"
#include "kernels/cuda/w8a8_args.h"
#include "kernels/layout/swizzle.h"

namespace {

constexpr uint32_t n_stages_max = 24;
constexpr uint32_t n_wgmma_rows = 64; /* of W, of a warpgroup */
constexpr uint32_t n_warpgroups_max = 4;
constexpr uint32_t n_block_groups_max = n_warpgroups_max * n_wgmma_rows / SWIZZLE_ROWS;

__host__ __device__ constexpr uint32_t align_up(uint32_t value, uint32_t to)
{
    return div_up(value, to) * to;
}

__host__ __device__ inline uint32_t n_groups_of(uint32_t n)
{
    return div_up(n, SWIZZLE_ROWS);
}

__host__ __device__ inline uint32_t n_k_blocks_of(uint32_t k)
{
    return div_up(k, SWIZZLE_K);
}

/* Offsets from the start of shared memory. A warpgroup whose rows are not all there reads on behind
 * them: what comes of it is thrown away, but it must be memory. */
struct shared_map {
    uint32_t w_stage_bytes, x_stage_bytes;
    uint32_t x, w_full, x_full, empty, x_empty, known, scales, total_bytes;
};

__host__ __device__ inline shared_map map_of(const w8a8_gemm_args &args)
{
    shared_map map;
    map.w_stage_bytes = args.x.stage_blocks * args.n_block_groups * SWIZZLE_ATOM_BYTES;
    map.x_stage_bytes = align_up(args.x.stage_bytes, SWIZZLE_ATOM_BYTES);
    map.x = args.n_stages * map.w_stage_bytes;
    map.w_full = map.x + args.n_stages * map.x_stage_bytes;
    map.x_full = map.w_full + 8 * n_stages_max;
    map.empty = map.x_full + 8 * n_stages_max;
    map.x_empty = map.empty + 8 * n_stages_max;
    map.known = map.x_empty + 8 * n_stages_max;
    map.scales = map.known + 8;
    map.total_bytes = map.scales;
    if (args.kind == W8A8_FP8_GROUP) {
        uint32_t n_scale_rows = args.n_block_groups * SWIZZLE_ROWS / args.group_n + 2;
        map.total_bytes += n_scale_rows * n_k_blocks_of(args.k) * 4;
    }
    uint32_t read_on =
        args.n_stages * map.w_stage_bytes + (n_wgmma_rows / SWIZZLE_ROWS - 1) * SWIZZLE_ATOM_BYTES;
    map.total_bytes = map.total_bytes < read_on ? read_on : map.total_bytes;
    return map;
}

/* Threads that multiply, which come first: whole warpgroups, enough for the CTA's rows of W, for
 * each part of the rows of x. */
__host__ __device__ inline uint32_t n_part_consumers(const w8a8_gemm_args &args)
{
    return align_up(args.n_block_groups * SWIZZLE_ROWS, n_wgmma_rows) / n_wgmma_rows * 128;
}

__host__ __device__ inline uint32_t n_consumers(const w8a8_gemm_args &args)
{
    return args.n_m_parts * n_part_consumers(args);
}

/* A place in the ring, and the parity of its phase. */
struct ring_place {
    uint32_t i;
    uint32_t parity;
};

__device__ __forceinline__ void ring_on(ring_place &place, uint32_t n_stages)
{
    if (++place.i == n_stages) {
        place.i = 0;
        place.parity ^= 1;
    }
}

/* ---- the copies, by a thread for each side ---- */

/* A step of the CTA: blocks of rows in turn, in each the stages of k. */
struct feed_cursor {
    uint32_t i_row_block; /* behind the last one, in the second CTA of a pair, where it has none */
    uint32_t i_k_block;
    ring_place place;
};

__host__ __device__ inline uint32_t n_row_blocks_of(const w8a8_gemm_args &args)
{
    return div_up(n_groups_of(args.n), args.n_block_groups);
}

__device__ __forceinline__ void feed_on(const w8a8_gemm_args &args, feed_cursor &at)
{
    ring_on(at.place, args.n_stages);
    at.i_k_block += args.x.stage_blocks;
    if (at.i_k_block >= n_k_blocks_of(args.k)) {
        at.i_k_block = 0;
        at.i_row_block += gridDim.x;
    }
}

__device__ __forceinline__ uint32_t n_stage_blocks(const w8a8_gemm_args &args,
                                                   const feed_cursor &at)
{
    return min(args.x.stage_blocks, n_k_blocks_of(args.k) - at.i_k_block);
}

__device__ __forceinline__ void copy_w(const w8a8_gemm_args &args, const shared_map &map,
                                       const feed_cursor &at)
{
    uint32_t n_groups = n_groups_of(args.n);
    uint32_t first = at.i_row_block * args.n_block_groups;
    uint32_t n_bytes = min(args.n_block_groups, n_groups - first) * SWIZZLE_ATOM_BYTES;
    uint32_t n_blocks = n_stage_blocks(args, at);
    uint32_t full = shared_base() + map.w_full + 8 * at.place.i;
    mbarrier_arrive_expect_tx(full, n_blocks * n_bytes);
    for (uint32_t i = 0; i < n_blocks; i++) {
        uint64_t i_atom = static_cast<uint64_t>(at.i_k_block + i) * n_groups + first;
        cp_async_bulk_evict_first(shared_base() + at.place.i * map.w_stage_bytes +
                                      i * args.n_block_groups * SWIZZLE_ATOM_BYTES,
                                  args.codes + i_atom * SWIZZLE_ATOM_BYTES, n_bytes, full);
    }
}

/* The rank of this CTA in its pair. */
template <bool has_pair> __device__ __forceinline__ uint32_t pair_rank()
{
    return has_pair ? cluster_ctarank() : 0;
}

/* Both CTAs of a pair go through x as often as the first has rows of W. */
template <bool has_pair>
__device__ __forceinline__ bool is_in_turn(const w8a8_gemm_args &args, uint32_t i_row_block)
{
    return i_row_block - pair_rank<has_pair>() < n_row_blocks_of(args);
}

/* Of all stages of x that come to this CTA, those that come to a place in the ring which was used
 * before. */
template <bool has_pair>
__device__ __forceinline__ uint32_t n_refills_of(const w8a8_gemm_args &args)
{
    uint32_t n_row_blocks = n_row_blocks_of(args) + pair_rank<has_pair>() - blockIdx.x;
    uint32_t n_turns = div_up(n_row_blocks, gridDim.x);
    uint32_t n_turn_stages = div_up(n_k_blocks_of(args.k), args.x.stage_blocks);
    uint32_t n = n_turns * n_turn_stages;
    return n > args.n_stages ? n - args.n_stages : 0;
}

/* Some bytes of a stage, from its start or one of its parts on. */
template <bool has_pair>
__device__ __forceinline__ void copy_part(uint32_t to, const uint8_t *from, uint32_t n_bytes,
                                          uint32_t full)
{
    if constexpr (has_pair) {
        uint32_t offset = pair_rank<has_pair>() * n_bytes / 2;
        cp_async_bulk_multicast(to + offset, from + offset, n_bytes / 2, full, 3);
    } else {
        cp_async_bulk(to, from, n_bytes, full);
    }
}

/* Of the stage that k ends in, only the blocks that are there; scales lie behind room for all. */
template <bool has_pair>
__device__ __forceinline__ void copy_x(const w8a8_gemm_args &args, const shared_map &map,
                                       const feed_cursor &at)
{
    uint64_t i_stage = at.i_k_block / args.x.stage_blocks;
    uint32_t n_blocks = n_stage_blocks(args, at);
    uint32_t full = shared_base() + map.x_full + 8 * at.place.i;
    uint32_t to = shared_base() + map.x + at.place.i * map.x_stage_bytes;
    const uint8_t *from = args.x.stages + i_stage * args.x.stage_bytes;
    if (n_blocks == args.x.stage_blocks) {
        mbarrier_arrive_expect_tx(full, args.x.stage_bytes);
        copy_part<has_pair>(to, from, args.x.stage_bytes, full);
        return;
    }
    uint32_t n_code_bytes = n_blocks * args.x.n_rows * SWIZZLE_K;
    uint32_t n_scale_bytes = args.kind == W8A8_FP8_GROUP ? n_blocks * args.x.n_rows * 4 : 0;
    mbarrier_arrive_expect_tx(full, n_code_bytes + n_scale_bytes);
    copy_part<has_pair>(to, from, n_code_bytes, full);
    if (n_scale_bytes > 0) {
        uint32_t offset = args.x.stage_blocks * args.x.n_rows * SWIZZLE_K;
        copy_part<has_pair>(to + offset, from + offset, n_scale_bytes, full);
    }
}

/* The weight does not depend on the launch before: its copies start at once. */
__device__ __forceinline__ void feed_w(const w8a8_gemm_args &args, const shared_map &map)
{
    feed_cursor at = {blockIdx.x, 0, {0, 0}};
    while (at.i_row_block < n_row_blocks_of(args)) {
        mbarrier_wait_parity(shared_base() + map.empty + 8 * at.place.i, at.place.parity ^ 1);
        copy_w(args, map, at);
        feed_on(args, at);
    }
}

template <bool has_pair>
__device__ __forceinline__ void feed_x(const w8a8_gemm_args &args, const shared_map &map)
{
    uint32_t empty = shared_base() + (has_pair ? map.x_empty : map.empty);
    feed_cursor at = {blockIdx.x, 0, {0, 0}};
    griddepcontrol_wait();
    while (is_in_turn<has_pair>(args, at.i_row_block)) {
        mbarrier_wait_parity(empty + 8 * at.place.i, at.place.parity ^ 1);
        copy_x<has_pair>(args, map, at);
        feed_on(args, at);
    }
}

} // namespace
