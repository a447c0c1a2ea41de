/* w8a8_prefill_multiply.cuh - the sums of a tile of w8a8_prefill.cu, by a warpgroup for each 64
 * rows of x.
 *
 * What a thread has of 64 x 128 sums: rows g and g + 8 of its warp's 16, columns 8 j + 2 t and one
 * more, g being its lane / 4 and t its lane % 4. Element 4 j + 2 h + i is row g + 8 h, column 8 j +
 * 2 t + i. */
#pragma once

#include "kernels/cuda/w8a8_prefill_feed.cuh"

namespace {

template <w8a8_kind kind> using sum_of_kind = typename traits<kind>::element::sum;

template <w8a8_kind kind> struct fragment {
    sum_of_kind<kind> halves[2][half_n / 2];
};

struct consumer {
    const tiling &cut;
    ring_place place;
};

/* Of the thread; asked for where it is needed, since registers are short. */
__device__ __forceinline__ uint32_t own_lane()
{
    return threadIdx.x % 32;
}

__device__ __forceinline__ uint32_t own_warp()
{
    return threadIdx.x / 32;
}

__device__ __forceinline__ void wait_full(const consumer &at)
{
    mbarrier_wait_parity(shared_base() + shared_map::full + 8 * at.place.i, at.place.parity);
}

/* Gives stage i back to the feeders of the whole cluster. */
__device__ __forceinline__ void release(const consumer &at, uint32_t i)
{
    uint32_t empty = shared_base() + shared_map::empty + 8 * i;
    __syncwarp();
    if (at.cut.n_ctas == 1 && own_lane() == 0) {
        mbarrier_arrive(empty);
    } else if (at.cut.n_ctas > 1 && own_lane() < at.cut.n_ctas) {
        mbarrier_arrive_cluster(empty, own_lane());
    }
}

/* ---- e4m3: a chain for each block of k ---------------------------------------------------------
 * Of tiles of 192 and 256 columns the quarters of W take turns in sets of registers: while the sums
 * of one are added to the totals, those of the next are made. x comes to registers once for all of
 * them, since products as narrow as that would wait for shared memory if they read both sides
 * there. Halves that take turns in one set are as fast; barriers by which the warpgroups take turns
 * cost a tenth. Of narrower tiles, blocks of k take turns. */

/* A warp's 16 rows of x for a block of k. */
struct x_block {
    uint32_t steps[4][4];
};

__device__ __forceinline__ x_block load_x(const consumer &at)
{
    uint32_t i_row = own_lane() % 8, i_matrix = own_lane() / 8;
    uint32_t row = shared_base() + at.place.i * at.cut.stage_bytes +
                   (own_warp() * 2 + i_matrix % 2) * SWIZZLE_ATOM_BYTES + i_row * SWIZZLE_K;
    x_block x;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        ldmatrix_x4(row + ((2 * i + i_matrix / 2) ^ i_row) * 16, x.steps[i]);
    }
    return x;
}

using chain = float[quarter_n / 2];

__device__ __forceinline__ void start_chain(const consumer &at, const x_block &x,
                                            uint32_t i_quarter, chain &sums)
{
    uint32_t stage = shared_base() + at.place.i * at.cut.stage_bytes;
    uint64_t b =
        wgmma8_descriptor(stage + x_bytes + i_quarter * quarter_n * SWIZZLE_K, SWIZZLE_ATOM_BYTES);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        wgmma8_registers<quarter_n>::multiply(sums, x.steps[i], b + 2 * i, i > 0);
    }
    wgmma_commit();
}

/* Of a thread's two rows of x and a quarter of W, for a block of k. */
struct chain_scales {
    float of_rows[2];
};

template <w8a8_kind kind>
__device__ __forceinline__ chain_scales read_scales(uint32_t i_stage, uint32_t i_quarter)
{
    if constexpr (kind != W8A8_FP8_GROUP) {
        return {{1.0f, 1.0f}};
    }
    uint32_t x = shared_base() + shared_map::x_scales + i_stage * x_scales_bytes +
                 (own_warp() * 16 + own_lane() / 4) * 4;
    float w = __uint_as_float(
        ld_shared(shared_base() + shared_map::w_scales + i_stage * w_scales_bytes + i_quarter * 4));
    return {{__uint_as_float(ld_shared(x)) * w, __uint_as_float(ld_shared(x + 8 * 4)) * w}};
}

/* A chain that has ended. */
template <w8a8_kind kind>
__device__ __forceinline__ void add_chain(const chain_scales &scales, uint32_t i_quarter,
                                          chain &sums, fragment<kind> &total)
{
    wgmma_changed(sums);
    float *to = total.halves[i_quarter / 2] + i_quarter % 2 * (quarter_n / 2);
#pragma unroll
    for (uint32_t i = 0; i < quarter_n / 2; i++) {
        to[i] = kind == W8A8_FP8_GROUP ? fmaf(sums[i], scales.of_rows[i / 2 % 2], to[i])
                                       : to[i] + sums[i];
    }
}

/* A tile of n columns, 192 or 256. The last chain of a block is added when the next block has
 * begun. Where three take turns, each has a set of registers, since with two the next block would
 * begin in the set of the last; and it has to begin with two chains, since behind one ptxas puts a
 * wait of its own. */
template <w8a8_kind kind, int n>
__device__ __forceinline__ void multiply_quarters(const w8a8_gemm_args &args, consumer &at,
                                                  fragment<kind> &total)
{
    constexpr uint32_t i_end = n / quarter_n - 1;
    constexpr uint32_t n_sets = i_end == 2 ? 3 : 2, i_begun = i_end == 2 ? 1 : 0;
    uint32_t n_k_blocks = div_up(args.k, SWIZZLE_K);
    chain chains[n_sets] = {};
    chain_scales last = {};
    for (uint32_t i_block = 0; i_block < n_k_blocks; i_block++) {
        wait_full(at);
        x_block x = load_x(at);
#pragma unroll
        for (uint32_t i = 0; i <= i_end; i++) {
            start_chain(at, x, i, chains[i % n_sets]);
            if (i > 0) {
                chain_scales scales = read_scales<kind>(at.place.i, i - 1);
                wgmma_wait<1>();
                add_chain<kind>(scales, i - 1, chains[(i - 1) % n_sets], total);
            }
            if (i == i_begun) {
                add_chain<kind>(last, i_end, chains[i_end % n_sets], total);
            }
        }
        last = read_scales<kind>(at.place.i, i_end);
        wgmma_wait<0>();
        release(at, at.place.i);
        ring_on(at.cut, at.place);
    }
    add_chain<kind>(last, i_end, chains[i_end % n_sets], total);
}

/* A block of k of a tile of 64 or 128 columns, under way. */
template <int n> struct block_chain {
    chain quarters[n / quarter_n];
    uint32_t i_stage;
};

template <w8a8_kind kind, int n>
__device__ __forceinline__ void start_block(consumer &at, block_chain<n> &block)
{
    wait_full(at);
    uint32_t stage = shared_base() + at.place.i * at.cut.stage_bytes;
    uint64_t a = wgmma8_descriptor(stage + own_warp() / 4 * 64 * SWIZZLE_K, SWIZZLE_ATOM_BYTES);
    uint64_t b = wgmma8_descriptor(stage + x_bytes, SWIZZLE_ATOM_BYTES);
    auto &sums = reinterpret_cast<float(&)[n / 2]>(block.quarters);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        wgmma8<wgmma_e4m3, n>::multiply(sums, a + 2 * i, b + 2 * i, i > 0);
    }
    wgmma_commit();
    block.i_stage = at.place.i;
    ring_on(at.cut, at.place);
}

template <w8a8_kind kind, int n>
__device__ __forceinline__ void end_block(const consumer &at, block_chain<n> &block,
                                          fragment<kind> &total)
{
    chain_scales scales[n / quarter_n];
#pragma unroll
    for (uint32_t i = 0; i < n / quarter_n; i++) {
        scales[i] = read_scales<kind>(block.i_stage, i);
    }
    release(at, block.i_stage);
#pragma unroll
    for (uint32_t i = 0; i < n / quarter_n; i++) {
        add_chain<kind>(scales[i], i, block.quarters[i], total);
    }
}

/* Blocks one after another, without a loop: around a chain that is under way ptxas would let all
 * products wait for one another. */
template <w8a8_kind kind, int n, uint32_t n_blocks>
__device__ __forceinline__ void multiply_run(consumer &at, fragment<kind> &total)
{
    block_chain<n> blocks[2] = {};
#pragma unroll
    for (uint32_t i = 0; i < n_blocks; i++) {
        start_block<kind, n>(at, blocks[i % 2]);
        if (i > 0) {
            wgmma_wait<1>();
            end_block<kind, n>(at, blocks[(i - 1) % 2], total);
        }
    }
    wgmma_wait<0>();
    end_block<kind, n>(at, blocks[(n_blocks - 1) % 2], total);
}

/* A tile of 64 or 128 columns: with one block at a time, most of it would be spent waiting. */
template <w8a8_kind kind, int n>
__device__ __forceinline__ void multiply_blocks(const w8a8_gemm_args &args, consumer &at,
                                                fragment<kind> &total)
{
    constexpr uint32_t n_in_run = 4;
    uint32_t n_k_blocks = div_up(args.k, SWIZZLE_K);
    uint32_t i_block = 0;
    for (; i_block + n_in_run <= n_k_blocks; i_block += n_in_run) {
        multiply_run<kind, n, n_in_run>(at, total);
    }
    for (; i_block < n_k_blocks; i_block++) {
        multiply_run<kind, n, 1>(at, total);
    }
}

/* ---- one chain ---- */

/* n: the tile's columns. A stage is given back once the next one's products are under way. */
template <w8a8_kind kind, int n>
__device__ __forceinline__ void multiply_at_once(const w8a8_gemm_args &args, consumer &at,
                                                 fragment<kind> &total)
{
    using multiplier = wgmma8<typename traits<kind>::element, n>;
    auto &sums = reinterpret_cast<sum_of_kind<kind>(&)[n / 2]>(total);
    uint32_t n_k_blocks = div_up(args.k, SWIZZLE_K);
    uint32_t i_last = 0;
    for (uint32_t i_block = 0; i_block < n_k_blocks; i_block++) {
        wait_full(at);
        uint32_t stage = shared_base() + at.place.i * at.cut.stage_bytes;
        uint64_t a = wgmma8_descriptor(stage + own_warp() / 4 * 64 * SWIZZLE_K, SWIZZLE_ATOM_BYTES);
        uint64_t b = wgmma8_descriptor(stage + x_bytes, SWIZZLE_ATOM_BYTES);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            multiplier::multiply(sums, a + 2 * i, b + 2 * i, i > 0 || i_block > 0);
        }
        wgmma_commit();
        if (i_block > 0) {
            wgmma_wait<1>();
            release(at, i_last);
        }
        i_last = at.place.i;
        ring_on(at.cut, at.place);
    }
    wgmma_wait<0>();
    wgmma_changed(sums);
    release(at, i_last);
}

template <w8a8_kind kind, bool is_one_chain, int n>
__device__ __forceinline__ void multiply_columns(const w8a8_gemm_args &args, consumer &at,
                                                 fragment<kind> &total)
{
    if constexpr (is_one_chain) {
        multiply_at_once<kind, n>(args, at, total);
    } else if constexpr (n > half_n) {
        multiply_quarters<kind, n>(args, at, total);
    } else {
        multiply_blocks<kind, n>(args, at, total);
    }
}

/* The sums of all of k: in one chain whole numbers, and e4m3 where the client asks for that. The
 * latter has no tiles of 64 or 192 columns: with a third width ptxas, short of registers, lets
 * products wait for one another. */
template <w8a8_kind kind, bool is_one_chain>
__device__ __forceinline__ void multiply(const w8a8_gemm_args &args, const tile &tile, consumer &at,
                                         fragment<kind> &total)
{
    constexpr bool has_quarters = !(is_one_chain && kind == W8A8_FP8);
    if (tile.n_columns == n_columns_max) {
        multiply_columns<kind, is_one_chain, n_columns_max>(args, at, total);
    } else if (!has_quarters || tile.n_columns == half_n) {
        multiply_columns<kind, is_one_chain, half_n>(args, at, total);
    } else if constexpr (has_quarters) {
        if (tile.n_columns == quarter_n) {
            multiply_columns<kind, is_one_chain, quarter_n>(args, at, total);
        } else {
            multiply_columns<kind, is_one_chain, 3 * quarter_n>(args, at, total);
        }
    }
}

} // namespace
