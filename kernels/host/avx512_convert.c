/* avx512_convert.c - element types to and from f32, sixteen at a time, with the bits of
 * ipc/base/half. */
#include <immintrin.h>

#include "kernels/host/e4m3.h"
#include "kernels/host/vector.h"
#include "kernels/scalar.h"

#define LANES 16u

static __m512 load_16bits(const void *source, enum dtype dtype)
{
    __m256i bits = _mm256_loadu_si256(source);
    if (dtype == DTYPE_F16) {
        return _mm512_cvtph_ps(bits);
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* As in avx2_convert.c. */
static __m512 load_e8m0(__m128i bytes)
{
    __m512i codes = _mm512_cvtepu8_epi32(bytes);
    __mmask16 is_special = _mm512_cmpeq_epi32_mask(codes, _mm512_setzero_si512()) |
                           _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255));
    __m512i bits = _mm512_slli_epi32(codes, 23);
    return _mm512_castsi512_ps(
        _mm512_mask_or_epi32(bits, is_special, bits, _mm512_set1_epi32(1 << 22)));
}

static __m512 load_8bits(const void *source, enum dtype dtype)
{
    __m128i bytes = _mm_loadu_si128(source);
    switch (dtype) {
    case DTYPE_F8_E4M3:
        return _mm512_mul_ps(_mm512_cvtph_ps(e4m3_halves(bytes)), _mm512_set1_ps(E4M3_PER_HALF));
    case DTYPE_F8_E8M0:
        return load_e8m0(bytes);
    case DTYPE_U8:
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
    default:
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    }
}

static __m512 load(const void *source, enum dtype dtype, uint64_t index)
{
    const char *base = source;
    if (dtype == DTYPE_F32) {
        return _mm512_loadu_ps(base + index * 4);
    }
    if (dtype == DTYPE_F16 || dtype == DTYPE_BF16) {
        return load_16bits(base + index * 2, dtype);
    }
    return load_8bits(base + index, dtype);
}

void avx512_widen(const void *source, enum dtype dtype, uint64_t n, float *values)
{
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        _mm512_storeu_ps(values + i, load(source, dtype, i));
    }
    for (; i < n; i++) {
        values[i] = scalar_load(source, dtype, i);
    }
}

static __m512 canonical_nan(__m512 values)
{
    __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(values, is_nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}

/* As in avx2_convert.c; by integers, since VCVTNEPS2BF16 flushes denormals. */
static __m256i round_bf16(__m512 values)
{
    __m512i bits = _mm512_castps_si512(values);
    __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i half = _mm512_add_epi32(is_odd, _mm512_set1_epi32(0x7fff));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_add_epi32(bits, half), 16));
}

void avx512_narrow(const float *values, enum dtype dtype, void *target)
{
    for (uint32_t i = 0; i < HOST_PANEL_N; i += LANES) {
        __m512 v = canonical_nan(_mm512_loadu_ps(values + i));
        if (dtype == DTYPE_F32) {
            _mm512_store_ps((float *)target + i, v);
            continue;
        }
        __m256i narrow =
            dtype == DTYPE_F16 ? _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT) : round_bf16(v);
        _mm256_store_si256((__m256i *)((uint16_t *)target + i), narrow);
    }
}
