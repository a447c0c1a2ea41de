/* avx2_convert.c - element types to and from f32, eight at a time, with the bits of ipc/base/half.
 */
#include <immintrin.h>
#include <string.h>

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

static __m256 load(const void *source, enum dtype dtype, uint64_t index)
{
    const char *base = source;
    if (dtype == DTYPE_F32) {
        return load_f32(base + index * 4);
    }
    return dtype == DTYPE_F16 ? load_f16(base + index * 2) : load_bf16(base + index * 2);
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
