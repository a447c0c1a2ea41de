/* w4a8_multiply.cuh - the sums of a tile of w4a8_prefill.cu, by a warpgroup for each 64 rows of W,
 * a warp for each strip.
 *
 * Widening. The e4m3 bytes 0 to 15 are the numbers 0 to 15 in units of 2^-9, subnormal and just
 * above, so a code less its zero point, -15 to 15, is its magnitude as it is, with a sign: seven
 * instructions for four of them, five where all zero points are 8, and no table.
 *
 * What a thread has of 64 x n sums: rows g and g + 8 of its warp's strip, columns (rows of x) 8 j +
 * 2 t and one more, g being its lane / 4 and t its lane % 4. Element 4 j + 2 h + i is row g + 8 h,
 * column 8 j + 2 t + i. */
#pragma once

#include "kernels/cuda/strip_types.cuh"
#include "kernels/cuda/w4a8_feed.cuh"
#include "kernels/cuda/wgmma8.cuh"

namespace {

/* Where a warp is in the rings, and a lane in the first stage of W. */
struct walk {
    ring_place<n_x_stages> x;
    ring_place<n_w_stages> w;
    uint32_t codes;
    uint32_t scales;
    uint32_t zeros;
};

__device__ __forceinline__ walk walk_from_start()
{
    uint32_t strip = thread_id() / 32, g = lane_id() / 4;
    uint32_t stage = shared_base() + shared_map::w;
    walk at;
    at.codes = stage + strip * STRIP_CODES_BYTES + lane_id() * 16;
    at.scales = stage + shared_map::scales + strip * slice_scale_bytes + g * 8;
    at.zeros = stage + shared_map::zeros + strip * slice_zero_bytes + g * 4;
    return at;
}

/* ---- W ---- */

/* A block of k of W, half a slice: how far it is from where a lane is in the first stage. */
struct w_block {
    uint32_t stage_bytes;
    uint32_t i_half;
};

/* The block of k that is next. */
__device__ __forceinline__ w_block next_w(uint32_t i_block, const walk &at)
{
    if (i_block % 2 == 0) {
        mbarrier_wait_parity(shared_base() + shared_map::w_full + 8 * at.w.i, at.w.parity);
    }
    return {at.w.i * w_stage_bytes, i_block % 2};
}

/* Of the lane's two rows. */
__device__ __forceinline__ float2 load_w_scales(const w4a8_args &args, const walk &at,
                                                const w_block &block)
{
    uint32_t scales = ld_shared(at.scales + block.stage_bytes + block.i_half * 4);
    return widen_pair(scales, args.base.scale_dtype == DTYPE_BF16);
}

/* Bits of a where those of mask are 1, else of b. */
__device__ __forceinline__ uint32_t select(uint32_t mask, uint32_t a, uint32_t b)
{
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(result) : "r"(mask), "r"(a), "r"(b));
    return result;
}

/* Four codes, in the lower halves of bytes, less their zero points, as e4m3 in units of 2^-9. */
__device__ __forceinline__ uint32_t centre(uint32_t codes, uint32_t zeros)
{
    uint32_t biased = lop3_and_or<0x0f0f0f0fu, 0x80808080u>(codes) - zeros; /* 128 + value */
    uint32_t is_positive = prmt(biased, 0xba98); /* or 0: the top bit of each byte, eight times */
    return lop3_negate(biased, is_positive) + (~is_positive & 0x01010101u);
}

/* The same with 8 for zero point, where the lower three bits and whether the fourth is set, in all
 * of a byte's bits, say it all. */
__device__ __forceinline__ uint32_t centre_at_8(uint32_t codes, uint32_t is_positive)
{
    uint32_t low = codes & 0x07070707u;
    return select(is_positive, low, 0x88888888u - low);
}

/* A word holds four codes of row g, and of row g + 8: strip.h. Turned to where those of one row are
 * lower halves of bytes, it has those of the other in upper halves, with their fourth bits on top.
 */
template <bool has_zeros>
__device__ __forceinline__ void widen_word(uint32_t word, const uint32_t (&zeros)[2],
                                           uint32_t (&rows)[2])
{
    uint32_t first = __funnelshift_r(word, word, STRIP_ROTATION);
    uint32_t second = __funnelshift_r(word, word, STRIP_ROTATION + 4);
    if constexpr (has_zeros) {
        rows[0] = centre(first, zeros[0]);
        rows[1] = centre(second, zeros[1]);
    } else {
        rows[0] = centre_at_8(first, prmt(second, 0xa98b));
        rows[1] = centre_at_8(second, prmt(first, 0xba98));
    }
}

/* The operand a of four products of 32 k. */
struct w_steps {
    uint32_t steps[4][4];
};

template <bool has_zeros>
__device__ __forceinline__ w_steps widen(const walk &at, const w_block &block)
{
    uint32_t zeros[2] = {};
    if constexpr (has_zeros) {
        uint32_t pair = ld_shared_u16(at.zeros + block.stage_bytes + block.i_half * 2);
        zeros[0] = prmt(pair, 0x0000);
        zeros[1] = prmt(pair, 0x1111);
    }
    w_steps w;
#pragma unroll
    for (uint32_t i = 0; i < 4; i += 2) {
        uint4 unit = ld_shared_v4(at.codes + block.stage_bytes +
                                  (block.i_half * 2 + i / 2) * STRIP_UNIT_BYTES);
        const uint32_t words[4] = {unit.x, unit.y, unit.z, unit.w};
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t rows[2];
            widen_word<has_zeros>(words[j], zeros, rows);
            w.steps[i + j / 2][j % 2 * 2] = rows[0];
            w.steps[i + j / 2][j % 2 * 2 + 1] = rows[1];
        }
    }
    return w;
}

/* Give a stage of W back, once its last words have been used: until then they may still be on their
 * way here. */
__device__ __forceinline__ void release_w(walk &at)
{
    __syncwarp();
    if (lane_id() == 0) {
        mbarrier_arrive(shared_base() + shared_map::w_empty + 8 * at.w.i);
    }
    at.w.step();
}

/* ---- sums ----
 * A chain is a block of k by 128 rows of x, or 64. While a warpgroup adds one to its totals, or
 * widens, the other's is under way. No faster were barriers by which they take turns, chains of 64
 * rows of which two are under way, and half a block widened ahead while products are. */

__device__ __forceinline__ void release_x(uint32_t i_stage)
{
    __syncwarp();
    if (lane_id() < n_cluster) {
        mbarrier_arrive_cluster(shared_base() + shared_map::x_empty + 8 * i_stage, lane_id());
    }
}

template <int n>
__device__ __forceinline__ void multiply_chain(const w_steps &w, uint32_t i_stage, uint32_t i_chain,
                                               float (&sums)[n / 2])
{
    uint64_t b = wgmma8_descriptor(shared_base() + i_stage * x_stage_bytes + i_chain * n * k_block,
                                   SWIZZLE_ATOM_BYTES);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        wgmma8_registers<n>::multiply(sums, w.steps[i], b + 2 * i, i > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_changed(sums);
}

/* Of a unit of n rows of x, all of k, to the first n / 2 of total. */
template <int n, bool has_zeros>
__device__ __forceinline__ void multiply(const w4a8_args &args, walk &at,
                                         float (&total)[tile_rows_max / 2])
{
    constexpr int chain_n = n < 128 ? n : 128;
    constexpr uint32_t n_chains = n / chain_n;
    uint32_t n_blocks = n_k_blocks(args);
    float sums[chain_n / 2];
#pragma unroll 1
    for (uint32_t i_block = 0; i_block < n_blocks; i_block++) {
        w_block block = next_w(i_block, at);
        float2 scales = load_w_scales(args, at, block);
        w_steps w = widen<has_zeros>(at, block);
        if (i_block % 2 == 1 || i_block + 1 == n_blocks) {
            release_w(at);
        }
        mbarrier_wait_parity(shared_base() + shared_map::x_full + 8 * at.x.i, at.x.parity);
#pragma unroll
        for (uint32_t i = 0; i < n_chains; i++) {
            multiply_chain<chain_n>(w, at.x.i, i, sums);
            if (i + 1 == n_chains) {
                release_x(at.x.i);
            }
#pragma unroll
            for (uint32_t j = 0; j < chain_n / 2; j++) {
                float &to = total[i * (chain_n / 2) + j];
                to = fmaf(sums[j], j / 2 % 2 == 0 ? scales.x : scales.y, to);
            }
        }
        at.x.step();
    }
}

} // namespace
