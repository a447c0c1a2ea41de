/* strip_prefill_weights.cuh - from a strip's codes to A fragments in the order of k that x has.
 *
 * In the layout, lane t of a quad holds elements 8t..8t+7 of a block of 32 (strip.h). A fragment
 * wants 2t, 2t+1, 2t+8 and 2t+9 of 16 in lane t, since x comes from shared memory as it is. So the
 * pairs of k of a block are transposed over the four lanes of the quad, before they are widened: a
 * 4 x 4 matrix, in two exchanges. */
#pragma once

#include "kernels/cuda/strip_types.cuh"
#include "kernels/cuda/wgmma.cuh"
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

/* Two words of 8-bit codes that a lane and lane t ^ 1 have, two pairs of k each: after it they are
 * the even and the odd lane's, of the pair that belongs to this one. first, second: its bytes. */
template <uint32_t first, uint32_t second>
__device__ __forceinline__ void exchange_pairs(bool is_odd, uint32_t &word_0, uint32_t &word_1)
{
    uint32_t kept = __byte_perm(word_0, word_1, is_odd ? second : first);
    uint32_t given = __byte_perm(word_0, word_1, is_odd ? first : second);
    uint32_t got = __shfl_xor_sync(0xffffffffu, given, 1);
    word_0 = is_odd ? got : kept;
    word_1 = is_odd ? kept : got;
}

/* Four words of 8-bit codes, of rows g and g + 8 in turn. After it word i, from lane i, is a pair
 * of each; two words are a fragment. */
template <uint32_t first, uint32_t second>
__device__ __forceinline__ void transpose_bytes(const quad_place &quad, uint4 &words)
{
    exchange_halves(quad.is_upper, words.x, words.z);
    exchange_halves(quad.is_upper, words.y, words.w);
    exchange_pairs<first, second>(quad.is_odd, words.x, words.y);
    exchange_pairs<first, second>(quad.is_odd, words.z, words.w);
}

/* Of e4m3, whose words lie otherwise (strip.h): a pair of row g in the lower half, one of row g + 8
 * in the upper half; or in bytes 1 and 3, and 0 and 2. */
template <bool is_in_halves>
__device__ __forceinline__ void transpose_e4m3(const quad_place &quad, uint4 &words)
{
    transpose_bytes<is_in_halves ? 0x7531 : 0x3715, is_in_halves ? 0x6420 : 0x2604>(quad, words);
}

/* ---- e2m1 ----
 * A half of a word has the bits of both pairs mixed (strip.h): those of registers 0 and 1, the
 * first pair, and those of registers 2 and 3. */

constexpr uint32_t e2m1_first_pair = 0x91f891f8u;

/* The pair of even lanes, the first one, to where the second has its bits; of odd lanes the other
 * way. */
__device__ __forceinline__ uint32_t e2m1_change_place(bool is_odd, uint32_t word)
{
    uint32_t register_0 = __funnelshift_l(word, word, is_odd ? 6 : 26);
    uint32_t sign_1 = __funnelshift_l(word, word, is_odd ? 31 : 1);
    uint32_t exponent_1 = __funnelshift_l(word, word, is_odd ? 26 : 6);
    uint32_t mantissa_1 = __funnelshift_l(word, word, is_odd ? 21 : 11);
    return (register_0 & (is_odd ? 0x81c081c0u : 0x02070207u)) |
           (sign_1 & (is_odd ? 0x10001000u : 0x20002000u)) |
           (exponent_1 & (is_odd ? 0x00300030u : 0x0c000c00u)) |
           (mantissa_1 & (is_odd ? 0x00080008u : 0x40004000u));
}

/* As transpose_nibbles(): a fragment as strip_float.cuh takes it. Of a word each lane keeps the
 * pair that is its own, which stays where it is, and takes the other from lane t ^ 1. */
__device__ __forceinline__ void transpose_e2m1(const quad_place &quad, uint32_t &word_0,
                                               uint32_t &word_1)
{
    uint32_t own = quad.is_odd ? ~e2m1_first_pair : e2m1_first_pair;
    exchange_halves(quad.is_upper, word_0, word_1);
    for (uint32_t *word : {&word_0, &word_1}) {
        uint32_t got = __shfl_xor_sync(0xffffffffu, *word, 1);
        *word = (*word & own) | e2m1_change_place(quad.is_odd, got);
    }
}

/* 16 bytes of a lane: two blocks of 4-bit codes, one of 8-bit ones. */
template <int bits> __device__ __forceinline__ void transpose(const quad_place &quad, uint4 &words)
{
    if constexpr (bits == 4) {
        transpose_nibbles(quad, words.x, words.y);
        transpose_nibbles(quad, words.z, words.w);
    } else {
        transpose_bytes<0x5410, 0x7632>(quad, words);
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
