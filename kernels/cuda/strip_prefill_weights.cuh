/* strip_prefill_weights.cuh - from a strip's codes to A fragments in the order of k that x has.
 *
 * In the layout, lane t of a quad holds elements 8t..8t+7 of a block of 32 (strip.h). A fragment
 * wants 2t, 2t+1, 2t+8 and 2t+9 of 16 in lane t, since x comes from shared memory as it is. So the
 * pairs of k of a block are transposed over the four lanes of the quad, before they are widened: a
 * 4 x 4 matrix, in two exchanges. */
#pragma once

#include "kernels/cuda/strip_types.cuh"
#include "kernels/cuda/wgmma_tile.cuh"
#include "kernels/layout/strip.h"

namespace {

/* What a lane does in the exchanges. */
struct quad_place {
    uint32_t give;    /* the bytes that go to lane t ^ 1, for __byte_perm */
    uint32_t merge_0; /* own bytes with those that came, for the first word and the second */
    uint32_t merge_1;
    bool is_odd;
    bool is_upper; /* lanes 2 and 3 */
};

__device__ __forceinline__ quad_place quad_place_of(uint32_t lane)
{
    bool is_odd = lane % 2 != 0;
    return {is_odd ? 0x6420u : 0x7531u, is_odd ? 0x3514u : 0x5240u, is_odd ? 0x3716u : 0x7260u,
            is_odd, lane % 4 >= 2};
}

/* Lanes t and t ^ 2 each keep what belongs to them of two words: 0 to the lower, 1 to the upper
 * lanes. What comes from the lower lanes is then word 0. */
__device__ __forceinline__ void exchange_halves(bool is_upper, uint32_t &word_0, uint32_t &word_1)
{
    uint32_t got = __shfl_xor_sync(0xffffffffu, is_upper ? word_0 : word_1, 2);
    word_0 = is_upper ? got : word_0;
    word_1 = is_upper ? word_1 : got;
}

/* Two words of 4-bit codes, a block of 32 of k, as they lie in memory. After it each is a fragment:
 * bytes 0 and 2 are its first pair of k, 1 and 3 its second, and there nibbles 0 and 4 are row g,
 * 1 and 5 row g + 8. */
__device__ __forceinline__ void transpose_nibbles(const quad_place &quad, uint32_t &word_0,
                                                  uint32_t &word_1)
{
    word_0 = __funnelshift_r(word_0, word_0, STRIP_ROTATION);
    word_1 = __funnelshift_r(word_1, word_1, STRIP_ROTATION);
    uint32_t got = __shfl_xor_sync(0xffffffffu, __byte_perm(word_0, word_1, quad.give), 1);
    word_0 = __byte_perm(word_0, got, quad.merge_0);
    word_1 = __byte_perm(word_1, got, quad.merge_1);
    exchange_halves(quad.is_upper, word_0, word_1);
}

/* The same of 8-bit codes, four words. After it word i, from lane i, is a pair of row g, then one
 * of row g + 8; two are a fragment. */
__device__ __forceinline__ void transpose_bytes(const quad_place &quad, uint4 &words)
{
    uint32_t items[4];
    items[0] = __byte_perm(words.x, words.y, 0x5410);
    items[1] = __byte_perm(words.x, words.y, 0x7632);
    items[2] = __byte_perm(words.z, words.w, 0x5410);
    items[3] = __byte_perm(words.z, words.w, 0x7632);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t kept = quad.is_odd ? items[i + 1] : items[i];
        uint32_t got = __shfl_xor_sync(0xffffffffu, quad.is_odd ? items[i] : items[i + 1], 1);
        items[i] = quad.is_odd ? got : kept;
        items[i + 1] = quad.is_odd ? kept : got;
    }
    exchange_halves(quad.is_upper, items[0], items[2]);
    exchange_halves(quad.is_upper, items[1], items[3]);
    words = make_uint4(items[0], items[1], items[2], items[3]);
}

/* 16 bytes of a lane: two blocks of 4-bit codes, one of 8-bit ones. */
template <int bits> __device__ __forceinline__ void transpose(const quad_place &quad, uint4 &words)
{
    if constexpr (bits == 4) {
        transpose_nibbles(quad, words.x, words.y);
        transpose_nibbles(quad, words.z, words.w);
    } else {
        transpose_bytes(quad, words);
    }
}

/* ---- widening: code - zero, exact ----
 * wide: x and the type of the fragments. base: what codes and zero points are or-ed into, so that a
 * subtraction leaves their difference: integers just above a power of two. */

struct wide_bf16 {
    using wgmma_element = wgmma_bf16;
    static constexpr bool is_bf16 = true;
    static constexpr uint32_t base = 0x43004300u; /* 128: room for 4 bits */
    static __device__ __forceinline__ uint32_t minus(uint32_t pair, uint32_t base_zero)
    {
        return sub_bf16x2(pair, base_zero);
    }
    static __device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b)
    {
        return mul_bf16x2(a, b);
    }
};

struct wide_f16 {
    using wgmma_element = wgmma_f16;
    static constexpr bool is_bf16 = false;
    static constexpr uint32_t base = 0x64006400u; /* 1024 */
    static __device__ __forceinline__ uint32_t minus(uint32_t pair, uint32_t base_zero)
    {
        return sub_f16x2(pair, base_zero);
    }
    static __device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b)
    {
        return mul_f16x2(a, b);
    }
};

/* A fragment of a word that transpose_nibbles() left. */
template <typename wide>
__device__ __forceinline__ void widen_nibbles(uint32_t word, const uint32_t (&zeros)[2],
                                              uint32_t (&a)[4])
{
    constexpr uint32_t mask = 0x000f000fu;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = wide::minus(lop3_and_or<mask, wide::base>(word >> 4 * i), zeros[i % 2]);
    }
}

/* Bytes i and i + 1 of an item. bf16 has no room for 8 bits above a power of two, f32 has. */
__device__ __forceinline__ uint32_t widen_pair_of(wide_bf16, uint32_t item, uint32_t i,
                                                  uint32_t base_zero)
{
    constexpr uint32_t two_23 = 0x4b000000u;
    float zero = __uint_as_float(base_zero);
    float a = __uint_as_float(__byte_perm(item, two_23, 0x7540u + i)) - zero;
    float b = __uint_as_float(__byte_perm(item, two_23, 0x7541u + i)) - zero;
    return cvt_rn_bf16x2(a, b);
}

__device__ __forceinline__ uint32_t widen_pair_of(wide_f16, uint32_t item, uint32_t i,
                                                  uint32_t base_zero)
{
    return sub_f16x2(__byte_perm(item, wide_f16::base, 0x5150u + i * 0x0101u), base_zero);
}

/* A fragment of two items. */
template <typename wide>
__device__ __forceinline__ void widen_bytes(uint32_t item_0, uint32_t item_1,
                                            const uint32_t (&zeros)[2], uint32_t (&a)[4])
{
    a[0] = widen_pair_of(wide(), item_0, 0, zeros[0]);
    a[1] = widen_pair_of(wide(), item_0, 2, zeros[1]);
    a[2] = widen_pair_of(wide(), item_1, 0, zeros[0]);
    a[3] = widen_pair_of(wide(), item_1, 2, zeros[1]);
}

/* A zero point as widen_ takes it. */
template <typename wide, int bits> __device__ __forceinline__ uint32_t base_zero_of(uint32_t zero)
{
    return bits == 8 && wide::is_bf16 ? 0x4b000000u | zero : wide::base | zero * 0x00010001u;
}

/* The two fragments of a block of 32, transposed. words: for 4-bit codes the block's two in x and
 * y. */
template <typename wide, int bits>
__device__ __forceinline__ void widen_block(const uint4 &words, const uint32_t (&zeros)[2],
                                            uint32_t (&a)[2][4])
{
    if constexpr (bits == 4) {
        widen_nibbles<wide>(words.x, zeros, a[0]);
        widen_nibbles<wide>(words.y, zeros, a[1]);
    } else {
        widen_bytes<wide>(words.x, words.y, zeros, a[0]);
        widen_bytes<wide>(words.z, words.w, zeros, a[1]);
    }
}

} // namespace
