/* avx2_convert.c - element types to and from f32, eight at a time, with the bits of ipc/base/half.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/host/e4m3.h"
#include "kernels/host/vector.h"
#include "kernels/scalar.h"

#define LANES 8u

static __m256 load_f32(const void *source)
{
    return _mm256_loadu_ps(source);
}

static __m256 load_f16(const void *source)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(source));
}

static __m256 load_bf16(const void *source)
{
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(source));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

static __m256 load_e4m3(const void *source)
{
    __m128i halves = _mm256_castsi256_si128(e4m3_halves(_mm_loadl_epi64(source)));
    return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(E4M3_PER_HALF));
}

/* The code becomes the exponent. What it cannot say so, 2^-127 (code 0) and NaN (255), are the zero
 * and the infinity of that exponent with the mantissa's highest bit set. */
static __m256 load_e8m0(const void *source)
{
    __m256i codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(source));
    __m256i is_first = _mm256_cmpeq_epi32(codes, _mm256_setzero_si256());
    __m256i is_last = _mm256_cmpeq_epi32(codes, _mm256_set1_epi32(255));
    __m256i highest =
        _mm256_and_si256(_mm256_or_si256(is_first, is_last), _mm256_set1_epi32(1 << 22));
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(codes, 23), highest));
}

static __m256 load_u8(const void *source)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(source)));
}

static __m256 load_i8(const void *source)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(source)));
}

static __m256 load(const void *source, enum dtype dtype, uint64_t index)
{
    const char *base = source;
    switch (dtype) {
    case DTYPE_F32:
        return load_f32(base + index * 4);
    case DTYPE_F16:
        return load_f16(base + index * 2);
    case DTYPE_BF16:
        return load_bf16(base + index * 2);
    case DTYPE_F8_E4M3:
        return load_e4m3(base + index);
    case DTYPE_F8_E8M0:
        return load_e8m0(base + index);
    case DTYPE_U8:
        return load_u8(base + index);
    default:
        return load_i8(base + index);
    }
}

void avx2_widen(const void *source, enum dtype dtype, uint64_t n, float *values)
{
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        _mm256_storeu_ps(values + i, load(source, dtype, i));
    }
    for (; i < n; i++) {
        values[i] = scalar_load(source, dtype, i);
    }
}

static __m256 canonical_nan(__m256 values)
{
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(values, nan, _mm256_cmp_ps(values, values, _CMP_UNORD_Q));
}

/* Nearest even by integers: half a unit of the last place kept, minus one bit where that place is
 * even. A finite value may carry into infinity, as it should; the canonical NaN stays itself. */
static __m128i round_bf16(__m256 values)
{
    __m256i bits = _mm256_castps_si256(values);
    __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i half = _mm256_add_epi32(is_odd, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}

void avx2_narrow(const float *values, enum dtype dtype, void *target)
{
    for (uint32_t i = 0; i < HOST_PANEL_N; i += LANES) {
        __m256 v = canonical_nan(_mm256_loadu_ps(values + i));
        if (dtype == DTYPE_F32) {
            _mm256_store_ps((float *)target + i, v);
            continue;
        }
        __m128i narrow =
            dtype == DTYPE_F16 ? _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT) : round_bf16(v);
        _mm_store_si128((__m128i *)((uint16_t *)target + i), narrow);
    }
}
