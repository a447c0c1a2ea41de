/* w8a8_prefill_multiply.cuh - the sums of a tile of w8a8_prefill.cu, by a warpgroup for each 64
 * rows of x.
 *
 * What a thread has of 64 x 128 sums: rows g and g + 8 of its warp's 16, columns 8 j + 2 t and one
 * more, g being its lane / 4 and t its lane % 4. Element 4 j + 2 h + i is row g + 8 h, column 8 j +
 * 2 t + i. */
#pragma once

#include "kernels/cuda/ptx_remote.cuh"
#include "kernels/cuda/w8a8_prefill_feed.cuh"

namespace {

template <w8a8_kind kind> using sum_of_kind = typename traits<kind>::element::sum;

template <w8a8_kind kind> struct fragment {
    sum_of_kind<kind> sums[n_columns_max / 2];
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

/* A warp of those that multiply. */
struct consumer {
    const tiling &cut;
    ring_place place;
    uint32_t i_warpgroup; /* the same in all lanes, as the compiler can tell */
    uint32_t release_to;  /* the first empty barrier, of the CTA whose rank is the lane's */
};

__device__ __forceinline__ consumer consumer_of(const tiling &cut)
{
    uint32_t rank = min(own_lane(), cut.n_ctas - 1);
    return {cut,
            {0, 0},
            __shfl_sync(0xffffffffu, own_warp() / 4, 0),
            mbarrier_of_rank(shared_base() + shared_map::empty, rank)};
}

__device__ __forceinline__ void wait_full(const consumer &at)
{
    mbarrier_wait_parity(shared_base() + shared_map::full + 8 * at.place.i, at.place.parity);
}

/* Gives stage i back to the feeders of the whole cluster. */
__device__ __forceinline__ void release(const consumer &at, uint32_t i)
{
    __syncwarp();
    if (own_lane() < at.cut.n_ctas) {
        mbarrier_arrive_remote(at.release_to + 8 * i);
    }
}

/* Both sides of a stage: lower halves of descriptors. */
struct operands {
    uint32_t x;
    uint32_t w;
};

__device__ __forceinline__ operands operands_at(const consumer &at)
{
    uint32_t stage = shared_base() + at.place.i * at.cut.stage_bytes;
    return {wgmma_descriptor_low(stage + at.i_warpgroup * 64 * SWIZZLE_K),
            wgmma_descriptor_low(stage + x_bytes)};
}

/* ---- e4m3: a chain for each block of k ---------------------------------------------------------
 * Tiles of 192 and 256 columns have one chain under way at a time, of a block of k by 192 or 128
 * columns. What there is to do for the next one is done meanwhile, so that between two chains a
 * warpgroup only adds sums to its totals: if that takes no longer than the other's chain, the
 * tensor core is always busy. Of narrower tiles, blocks of k take turns in two sets of registers.
 */

using chain = float[quarter_n / 2];

/* Of a thread's two rows of x and a quarter of W, for a block of k. */
struct chain_scales {
    float of_rows[2];
};

/* Of all of a block of k: a thread's two rows of x, and the quarters of W. */
struct block_scales {
    float of_x[2];
    float of_w[n_columns_max / quarter_n];
};

template <w8a8_kind kind> __device__ __forceinline__ block_scales read_scales(uint32_t i_stage)
{
    if constexpr (kind != W8A8_FP8_GROUP) {
        return {};
    }
    uint32_t x = shared_base() + shared_map::x_scales + i_stage * x_scales_bytes +
                 (own_warp() * 16 + own_lane() / 4) * 4;
    uint4 w = ld_shared_v4(shared_base() + shared_map::w_scales + i_stage * w_scales_bytes);
    return {
        {__uint_as_float(ld_shared(x)), __uint_as_float(ld_shared(x + 8 * 4))},
        {__uint_as_float(w.x), __uint_as_float(w.y), __uint_as_float(w.z), __uint_as_float(w.w)}};
}

__device__ __forceinline__ chain_scales scales_of(const block_scales &block, uint32_t i_quarter)
{
    return {{block.of_x[0] * block.of_w[i_quarter], block.of_x[1] * block.of_w[i_quarter]}};
}

/* A chain that has ended. */
template <w8a8_kind kind>
__device__ __forceinline__ void add_chain(const chain_scales &scales, uint32_t i_quarter,
                                          chain &sums, fragment<kind> &total)
{
    wgmma_changed(sums);
    float *to = total.sums + i_quarter * (quarter_n / 2);
#pragma unroll
    for (uint32_t i = 0; i < quarter_n / 2; i++) {
        to[i] = kind == W8A8_FP8_GROUP ? fmaf(sums[i], scales.of_rows[i / 2 % 2], to[i])
                                       : to[i] + sums[i];
    }
}

/* Starts one of n columns. */
template <int n>
__device__ __forceinline__ void start_chain(const operands &from, uint32_t first_column,
                                            chain (&quarters)[n / quarter_n])
{
    auto &sums = reinterpret_cast<float(&)[n / 2]>(quarters);
    uint32_t w = from.w + (first_column * SWIZZLE_K >> 4);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        wgmma8<wgmma_e4m3, n>::multiply(sums, wgmma_descriptor(from.x + 2 * i),
                                        wgmma_descriptor(w + 2 * i), i > 0);
    }
    wgmma_commit();
}

/* A tile of n columns, 192 or 256, in chains of chain_n. */
template <w8a8_kind kind, int n, int chain_n>
__device__ __forceinline__ void multiply_chains(const w8a8_gemm_args &args, consumer &at,
                                                fragment<kind> &total)
{
    constexpr uint32_t n_chains = n / chain_n, n_quarters = chain_n / quarter_n;
    uint32_t n_k_blocks = div_up(args.k, SWIZZLE_K);
    chain quarters[n_quarters] = {};
    wait_full(at);
    block_scales scales = read_scales<kind>(at.place.i);
    operands from = operands_at(at);
    uint32_t i_last = 0;
#pragma unroll 1
    for (uint32_t i_block = 0; i_block < n_k_blocks; i_block++) {
        uint32_t i_stage = at.place.i;
#pragma unroll
        for (uint32_t i_chain = 0; i_chain < n_chains; i_chain++) {
            start_chain<chain_n>(from, i_chain * chain_n, quarters);
            chain_scales own[n_quarters];
#pragma unroll
            for (uint32_t i = 0; i < n_quarters; i++) {
                own[i] = scales_of(scales, i_chain * n_quarters + i);
            }
            if (i_chain + 1 == n_chains) {
                ring_on(at.cut, at.place);
                from = operands_at(at);
                asm volatile("" : "+r"(from.x), "+r"(from.w)); /* now, not behind the wait */
                if (i_block + 1 < n_k_blocks) {
                    wait_full(at);
                    scales = read_scales<kind>(at.place.i);
                }
            }
            if (i_chain == 0 && i_block > 0) {
                release(at, i_last);
            }
            wgmma_wait<0>();
#pragma unroll
            for (uint32_t i = 0; i < n_quarters; i++) {
                add_chain<kind>(own[i], i_chain * n_quarters + i, quarters[i], total);
            }
        }
        i_last = i_stage;
    }
    release(at, i_last);
}

/* A block of k of a tile of 64 or 128 columns, under way. */
template <int n> struct block_chain {
    chain quarters[n / quarter_n];
    uint32_t i_stage;
};

template <int n> __device__ __forceinline__ void start_block(consumer &at, block_chain<n> &block)
{
    wait_full(at);
    start_chain<n>(operands_at(at), 0, block.quarters);
    block.i_stage = at.place.i;
    ring_on(at.cut, at.place);
}

template <w8a8_kind kind, int n>
__device__ __forceinline__ void end_block(const consumer &at, block_chain<n> &block,
                                          fragment<kind> &total)
{
    block_scales scales = read_scales<kind>(block.i_stage);
    release(at, block.i_stage);
#pragma unroll
    for (uint32_t i = 0; i < n / quarter_n; i++) {
        add_chain<kind>(scales_of(scales, i), i, block.quarters[i], total);
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
        start_block<n>(at, blocks[i % 2]);
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
        operands from = operands_at(at);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            multiplier::multiply(sums, wgmma_descriptor(from.x + 2 * i),
                                 wgmma_descriptor(from.w + 2 * i), i > 0 || i_block > 0);
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
        multiply_chains<kind, n, n == n_columns_max ? half_n : n>(args, at, total);
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
