/* w8a8_gather.cuh - for a few rows of x: the CTAs of w8a8_gemm.cu quantise it themselves, all of it
 * each, into the stages that feed_x() would copy to. A launch less to wait for: with one row that
 * is a tenth of the time. The price grows with the rows.
 *
 * Warps take stages in turn. Where a row shares a scale, all of them first go over the rows once.
 */
#pragma once

#include "kernels/cuda/w8a8_feed.cuh"
#include "kernels/cuda/w8a8_quantise.cuh"
#include "kernels/cuda/w8a8_store.cuh"

namespace {

constexpr uint32_t n_gather_warps = 8;
constexpr uint32_t n_gather_threads = 32 * n_gather_warps;
constexpr uint32_t gather_rows_max = 8;
constexpr int gather_barrier = 2;

/* In shared memory: of each warp's part of a row. */
struct gathered_extents {
    extent of_rows[gather_rows_max][n_gather_warps];
};

struct gatherer {
    uint32_t lane;
    uint32_t warp;
    gathered_extents *extents;
    known_rows *rows; /* sums of codes, which only weights with zero points need, are not made */
};

/* ---- scales of rows ---- */

__device__ __forceinline__ extent part_extent(const w8a8_lay_out_args &args, const gatherer &at,
                                              uint32_t i_row)
{
    extent one = {0, 0, 0};
#pragma unroll 2
    for (uint32_t i_k = (at.warp * 32 + at.lane) * unit_k; i_k < args.k;
         i_k += n_gather_threads * unit_k) {
        float values[unit_k];
        load_unit(row_of(args, i_row), static_cast<dtype>(args.x_dtype), i_k, args.k, values);
        one = join(one, extent_of(args.rule, values));
    }
    return join_lanes<32>(one);
}

__device__ __forceinline__ grid joined_grid(const w8a8_lay_out_args &args, const gatherer &at,
                                            uint32_t i_row)
{
    if (!has_row_extent(args)) {
        return known_grid(args, i_row);
    }
    extent one = at.extents->of_rows[i_row][0];
    for (uint32_t i = 1; i < n_gather_warps; i++) {
        one = join(one, at.extents->of_rows[i_row][i]);
    }
    return grid_of(args.rule, one);
}

__device__ __forceinline__ void make_scales(const w8a8_lay_out_args &args, const gatherer &at)
{
    for (uint32_t i_row = 0; has_row_extent(args) && i_row < args.m; i_row++) {
        extent part = part_extent(args, at, i_row);
        if (at.lane == 0) {
            at.extents->of_rows[i_row][at.warp] = part;
        }
    }
    bar_sync(gather_barrier, n_gather_threads);
    if (at.warp == 0 && at.lane < args.m) {
        grid grid = joined_grid(args, at, at.lane);
        at.rows->scales[at.lane] = grid.scale;
        at.rows->zeros[at.lane] = static_cast<int32_t>(grid.zero);
    }
    bar_sync(gather_barrier, n_gather_threads);
}

/* ---- stages ---- */

/* A warp's 32 units of a stage, those from first on: block by block, row by row. */
__device__ __forceinline__ void gather_units(const w8a8_lay_out_args &args, const gatherer &at,
                                             uint32_t stage, uint32_t i_k_block, uint32_t n_blocks,
                                             uint32_t first)
{
    uint32_t i = first + at.lane;
    bool is_there = i < n_blocks * args.m * group_lanes;
    uint32_t i_row = i / group_lanes % args.m;
    uint32_t i_block = i / group_lanes / args.m;
    uint32_t in_block = i % group_lanes * unit_k;
    uint32_t i_k = is_there ? (i_k_block + i_block) * SWIZZLE_K + in_block : args.k;
    grid grid = {at.rows->scales[i_row], static_cast<float>(at.rows->zeros[i_row])};
    x_unit unit = make_unit(args, grid, i_row, i_k);
    if (!is_there) {
        return;
    }
    st_shared_v4(stage + i_block * args.x.n_rows * SWIZZLE_K + swizzle_byte_of(i_row, in_block),
                 unit.codes);
    if (args.kind == W8A8_FP8_GROUP && in_block == 0) {
        st_shared(stage + args.x.stage_blocks * args.x.n_rows * SWIZZLE_K +
                      (i_block * args.x.n_rows + i_row) * 4,
                  __float_as_uint(unit.scale));
    }
}

__device__ __forceinline__ void gather_stage(const w8a8_gemm_args &gemm,
                                             const w8a8_lay_out_args &args, const shared_map &map,
                                             const gatherer &at, const feed_cursor &cursor)
{
    uint32_t stage = shared_base() + map.x + cursor.place.i * map.x_stage_bytes;
    uint32_t n_blocks = n_stage_blocks(gemm, cursor);
    mbarrier_wait_parity(shared_base() + map.empty + 8 * cursor.place.i, cursor.place.parity ^ 1);
    for (uint32_t first = 0; first < n_blocks * args.m * group_lanes; first += 32) {
        gather_units(args, at, stage, cursor.i_k_block, n_blocks, first);
    }
    fence_proxy_async();
    __syncwarp();
    if (at.lane == 0) {
        mbarrier_arrive(shared_base() + map.x_full + 8 * cursor.place.i);
    }
}

__device__ __forceinline__ void gather_x(const w8a8_gemm_args &gemm, const w8a8_lay_out_args &args,
                                         const shared_map &map, const gatherer &at)
{
    feed_cursor cursor = {blockIdx.x, 0, {0, 0}};
    griddepcontrol_wait();
    make_scales(args, at);
    for (; cursor.i_row_block < n_row_blocks_of(gemm); feed_on(gemm, cursor)) {
        if (cursor.place.i % n_gather_warps == at.warp) {
            gather_stage(gemm, args, map, at, cursor);
        }
    }
}

} // namespace
