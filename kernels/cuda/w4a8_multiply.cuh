/* w4a8_multiply.cuh - the sums of a tile of w4a8_prefill.cu, by a warpgroup for each 64 rows of W,
 * a warp for each strip.
 *
 * Widening. The e4m3 bytes 0 to 15 are the numbers 0 to 15 in units of 2^-9, subnormal and just
 * above, so a code less its zero point, -15 to 15, is its magnitude as it is, with a sign: six
 * instructions for four of them, and no table.
 *
 * What a thread has of 64 x n sums: rows g and g + 8 of its warp's strip, columns (rows of x) 8 j +
 * 2 t and one more, g being its lane / 4 and t its lane % 4. Element 4 j + 2 h + i is row g + 8 h,
 * column 8 j + 2 t + i. */
#pragma once

#include "kernels/cuda/strip_types.cuh"
#include "kernels/cuda/w4a8_feed.cuh"
#include "kernels/cuda/wgmma8.cuh"

namespace {

/* Where a warp is in the rings. */
struct walk {
    ring<n_x_stages> x;
    ring<n_w_stages> w;
};

/* ---- W ---- */

/* A lane's codes of a block of k, as they are stored, with what its two rows have for them. */
struct w_block {
    uint4 units[2];
    uint32_t zeros[2]; /* four times, a byte each */
    float scales[2];
};

__device__ __forceinline__ w_block load_w(const w4a8_args &args, uint32_t i_stage, uint32_t i_half)
{
    uint32_t lane = lane_id(), strip = thread_id() / 32, g = lane / 4;
    uint32_t stage = shared_base() + shared_map::w + i_stage * w_stage_bytes;
    uint32_t codes = stage + strip * STRIP_CODES_BYTES + i_half * 2 * STRIP_UNIT_BYTES + lane * 16;
    w_block block;
    block.units[0] = ld_shared_v4(codes);
    block.units[1] = ld_shared_v4(codes + STRIP_UNIT_BYTES);
    uint32_t zeros = 0x0808;
    if (args.base.has_zeros) {
        zeros = ld_shared_u16(stage + shared_map::zeros + strip * slice_zero_bytes + g * 4 +
                              i_half * 2);
    }
    block.zeros[0] = prmt(zeros, 0x0000);
    block.zeros[1] = prmt(zeros, 0x1111);
    uint32_t scales =
        ld_shared(stage + shared_map::scales + strip * slice_scale_bytes + g * 8 + i_half * 4);
    float2 pair = widen_pair(scales, args.base.scale_dtype == DTYPE_BF16);
    block.scales[0] = pair.x;
    block.scales[1] = pair.y;
    return block;
}

/* Four codes, in the lower halves of bytes, less their zero points, as e4m3 in units of 2^-9. */
__device__ __forceinline__ uint32_t centre(uint32_t codes, uint32_t zeros)
{
    uint32_t biased = lop3_and_or<0x0f0f0f0fu, 0x80808080u>(codes) - zeros; /* 128 + value */
    uint32_t is_positive = prmt(biased, 0xba98); /* or 0: the top bit of each byte, eight times */
    return lop3_negate(biased, is_positive) + (~is_positive & 0x01010101u);
}

/* A word holds four codes of row g, and of row g + 8: strip.h. */
__device__ __forceinline__ void widen_word(uint32_t word, const uint32_t (&zeros)[2],
                                           uint32_t (&rows)[2])
{
    rows[0] = centre(__funnelshift_r(word, word, STRIP_ROTATION), zeros[0]);
    rows[1] = centre(__funnelshift_r(word, word, STRIP_ROTATION + 4), zeros[1]);
}

/* The operand a of four products of 32 k. */
struct w_steps {
    uint32_t steps[4][4];
};

__device__ __forceinline__ w_steps widen(const w_block &block)
{
    w_steps w;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const uint4 &unit = block.units[i / 2];
        uint32_t even[2], odd[2];
        widen_word(i % 2 == 0 ? unit.x : unit.z, block.zeros, even);
        widen_word(i % 2 == 0 ? unit.y : unit.w, block.zeros, odd);
        w.steps[i][0] = even[0];
        w.steps[i][1] = even[1];
        w.steps[i][2] = odd[0];
        w.steps[i][3] = odd[1];
    }
    return w;
}

/* The block of k that is next. */
__device__ __forceinline__ w_block next_w(const w4a8_args &args, uint32_t i_block, const walk &at)
{
    if (i_block % 2 == 0) {
        mbarrier_wait_parity(shared_base() + shared_map::w_full + 8 * at.w.i, at.w.parity);
    }
    return load_w(args, at.w.i, i_block % 2);
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
 * widens, the other's is under way. Barriers by which they take turns, and chains of 64 rows of
 * which two are under way, were no faster. */

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
template <int n>
__device__ __forceinline__ void multiply(const w4a8_args &args, walk &at,
                                         float (&total)[tile_rows_max / 2])
{
    constexpr int chain_n = n < 128 ? n : 128;
    constexpr uint32_t n_chains = n / chain_n;
    uint32_t n_blocks = n_k_blocks(args);
    float sums[chain_n / 2];
#pragma unroll 1
    for (uint32_t i_block = 0; i_block < n_blocks; i_block++) {
        w_block block = next_w(args, i_block, at);
        w_steps w = widen(block);
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
                to = fmaf(sums[j], block.scales[j / 2 % 2], to);
            }
        }
        at.x.step();
    }
}

} // namespace
