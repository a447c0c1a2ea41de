/* e4m3.h - e4m3 in vector registers, for files built with AVX2.
 *
 * Shifted so that its exponent's last bit comes to lie on that of a binary16, an e4m3 code is that
 * binary16 2^-8 times as large, its subnormals included: the hardware's own widening and one
 * multiplication by a power of two give the exact f32. */
#pragma once

#include <immintrin.h>

#define E4M3_PER_HALF 256.0f

/* e4m3_halves() - sixteen codes as binary16, 2^-8 times as large; NaN as NaN. */
static inline __attribute__((always_inline)) __m256i e4m3_halves(__m128i codes)
{
    const __m256i nan = _mm256_set1_epi16((short)0xbf80); /* sign, and all ones of a code */
    __m256i halves = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7), nan);
    __m256i negative = _mm256_or_si256(halves, _mm256_set1_epi16((short)0x8000));
    return _mm256_or_si256(halves, _mm256_srli_epi16(_mm256_cmpeq_epi16(negative, nan), 1));
}
