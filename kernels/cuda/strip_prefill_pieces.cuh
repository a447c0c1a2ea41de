/* strip_prefill_pieces.cuh - the work of strip_prefill.cu, and the order in which a cluster takes
 * it.
 *
 * Rounds. A unit is a cluster's: tiles of W side by side that share a tile of x. Clusters take
 * units in turn, in bands of tiles of x.
 *
 * The line. What would be a last round that few clusters have anything of is laid end to end with
 * the round before it, and each cluster gets an equal length, so that some units lie across a
 * border. Of such a unit one cluster multiplies the first slices of k, as the first thing it does
 * of its length, and leaves the sums in memory; its neighbour goes on from these sums with the
 * rest, as the last thing. No length is shorter than a unit, so the second half begins when the
 * first one is over, and hardly waits; and a chain that is handed over has the bits of one that is
 * not. The cluster that waits has the higher number, and clusters number themselves as they start:
 * what one waits for is under way, whatever the order in which they do. */
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/ptx_gpu.cuh"
#include "kernels/cuda/ptx_remote.cuh"
#include "kernels/cuda/strip_prefill_instance.h"
#include "kernels/layout/strip.h"

namespace {

constexpr uint32_t n_cluster = strip_prefill_cluster;

/* ---- a cluster's number on the line ----
 * Taken from a counter in memory by the first of its CTAs, in whose shared memory it lies. */

/* A thread of each CTA stores it before the CTAs of the cluster wait for one another; what it does
 * between the two costs no time. */
template <typename tile>
__device__ __forceinline__ uint32_t take_number(const strip_prefill_args &args)
{
    if (!tile::can_hand_over || args.n_line_slices == 0 || cluster_ctarank() != 0) {
        return 0;
    }
    return atomicAdd(reinterpret_cast<uint32_t *>(args.handed) + strip_prefill_counter_word, 1);
}

template <typename tile> __device__ __forceinline__ void put_number(uint32_t base, uint32_t number)
{
    if (tile::can_hand_over) {
        st_shared(base + tile::number, number);
    }
}

/* Read anew wherever it is needed: registers are short. */
template <typename tile> __device__ __forceinline__ uint32_t number_on_line(uint32_t base)
{
    return ld_shared_of_rank(base + tile::number, 0);
}

/* ---- pieces ---- */

struct tile_place {
    uint32_t i_w;
    uint32_t i_x;
};

/* Unit i of the work. Bands of tiles of x, in each all of x before the next W, so that what runs at
 * one time reads little. */
__device__ __forceinline__ tile_place place_of(const strip_prefill_args &args, uint32_t i_unit,
                                               uint32_t rank)
{
    uint32_t i_band = i_unit / (args.n_band_tiles * args.n_w_units);
    uint32_t first_x = i_band * args.n_band_tiles;
    uint32_t n_x = min(args.n_band_tiles, args.n_x_tiles - first_x);
    uint32_t in_band = i_unit - first_x * args.n_w_units;
    return {in_band / n_x * n_cluster + rank, first_x + in_band % n_x};
}

struct unit_place {
    uint32_t i_w; /* of this CTA, in tiles */
    uint32_t first_m;
    bool is_half; /* of the tile's rows of x, since there are no more, or for another to take them
                   */
};

/* Whole units, then halves, or halves alone: see strip_prefill_args. */
template <typename tile>
__device__ __forceinline__ unit_place unit_of(const strip_prefill_args &args, uint32_t i_unit,
                                              uint32_t rank)
{
    if (tile::has_halves && args.n_whole_units == 0) {
        tile_place place = place_of(args, i_unit, rank);
        return {place.i_w, place.i_x * (tile::n_x / 2), true};
    }
    bool is_part = tile::has_halves && i_unit >= args.n_whole_units;
    uint32_t i_part = i_unit - args.n_whole_units;
    tile_place place = place_of(args, is_part ? args.n_whole_units + i_part / 2 : i_unit, rank);
    uint32_t first_m = place.i_x * tile::n_x + (is_part ? i_part % 2 * (tile::n_x / 2) : 0);
    return {place.i_w, first_m, tile::has_halves && (is_part || args.m - first_m <= tile::n_x / 2)};
}

/* A unit, or those slices of k of it that are this cluster's. */
struct piece {
    unit_place unit;
    uint32_t first_slice;
    uint32_t end_slice; /* 0: there is nothing there */
};

/* Piece i of a cluster: units of the rounds, by its place in the grid, then what its length of the
 * line has of units there. false: there are no more. Worked out anew wherever it is needed:
 * registers are short. */
template <typename tile>
__device__ __forceinline__ bool find_piece(const strip_prefill_args &args, uint32_t base,
                                           uint32_t i, uint32_t rank, piece &ret_piece)
{
    uint32_t n_clusters = gridDim.x / n_cluster;
    uint32_t n_slices = args.base.n_slices;
    uint32_t i_unit = i * n_clusters + blockIdx.x / n_cluster;
    if (i_unit < args.n_round_units) {
        unit_place unit = unit_of<tile>(args, i_unit, rank);
        ret_piece = {unit, 0, unit.first_m < args.m ? n_slices : 0};
        return true;
    }
    if (!tile::can_hand_over || args.n_line_slices == 0) {
        return false;
    }
    uint32_t length = args.n_line_slices;
    uint32_t first = (n_clusters - 1 - number_on_line<tile>(base)) * length;
    uint32_t i_on_line = first / n_slices + i - args.n_round_units / n_clusters;
    uint32_t begin = max(first, i_on_line * n_slices);
    uint32_t end = min(first + length, (i_on_line + 1) * n_slices);
    if (begin >= end || args.n_round_units + i_on_line >= args.n_units) {
        return false;
    }
    /* What comes before its length is the neighbour's, and the last of k. */
    ret_piece.unit = unit_of<tile>(args, args.n_round_units + i_on_line, rank);
    ret_piece.first_slice = (i_on_line + 1) * n_slices - end;
    ret_piece.end_slice = (i_on_line + 1) * n_slices - begin;
    return true;
}

/* ---- sums that are handed over ----
 * Of each cluster's first piece of the line; first a word for each warpgroup, 0 until they are
 * there. */

constexpr uint32_t n_warpgroups = 2;

__device__ __forceinline__ uint32_t handed_index(uint32_t i_cluster, uint32_t rank,
                                                 uint32_t warpgroup)
{
    return (i_cluster * n_cluster + rank) * n_warpgroups + warpgroup;
}

__device__ __forceinline__ float4 *handed_sums(const strip_prefill_args &args, uint32_t index)
{
    return reinterpret_cast<float4 *>(args.handed + strip_prefill_handed_words_bytes +
                                      static_cast<uint64_t>(index) * strip_prefill_handed_bytes);
}

template <int n_sums>
__device__ __forceinline__ void hand_over(const strip_prefill_args &args, uint32_t index,
                                          int barrier, const float (&sums)[n_sums])
{
    float4 *to = handed_sums(args, index) + thread_id() % 128;
#pragma unroll
    for (int i = 0; i < n_sums / 4; i++) {
        to[i * 128] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
    }
    __threadfence();
    bar_sync(barrier, 128);
    if (thread_id() % 128 == 0) {
        st_release_gpu(reinterpret_cast<uint32_t *>(args.handed) + index, 1);
    }
}

/* Where there are sums to go on from; the others stay. Not a branch: ptxas lets products wait for
 * each other where their sums come from one. */
template <int n_sums>
__device__ __forceinline__ void take_over(const strip_prefill_args &args, uint32_t index,
                                          bool is_there, float (&sums)[n_sums])
{
    const float4 *from = handed_sums(args, index) + thread_id() % 128;
    const uint32_t *word = reinterpret_cast<const uint32_t *>(args.handed) + index;
    while (is_there && ld_acquire_gpu(word) == 0) {
    }
#pragma unroll
    for (int i = 0; i < n_sums; i += 4) {
        ld_global_cg_v4_if(is_there, from + i / 4 * 128, sums[i], sums[i + 1], sums[i + 2],
                           sums[i + 3]);
    }
}

} // namespace
