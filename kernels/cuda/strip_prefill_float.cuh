/* strip_prefill_float.cuh - float codes as the kernels of strip_prefill.cu widen them: the value of
 * a code times its scale, rounded to the type of x where that is not exact. */
#pragma once

#include "kernels/cuda/strip_float.cuh"
#include "kernels/cuda/strip_prefill_instance.h"
#include "kernels/cuda/strip_prefill_weights.cuh"

namespace {

/* The types that strip_float.cuh knows x by. */
template <typename wide> struct float_traits_of;
template <> struct float_traits_of<wide_bf16> {
    using type = traits_bf16;
};
template <> struct float_traits_of<wide_f16> {
    using type = traits_f16;
};

__device__ __forceinline__ uint32_t times_f32(wide_bf16, uint32_t pair, float scale)
{
    return cvt_rn_bf16x2(__uint_as_float(pair << 16) * scale,
                         __uint_as_float(pair & 0xffff0000u) * scale);
}

__device__ __forceinline__ uint32_t times_f32(wide_f16, uint32_t pair, float scale)
{
    float2 v = __half22float2(*reinterpret_cast<const __half2 *>(&pair));
    __half2 product = __floats2half2_rn(v.x * scale, v.y * scale);
    return *reinterpret_cast<uint32_t *>(&product);
}

/* Two e4m3, the lower or the upper half of a word, as a pair of f16. */
__device__ __forceinline__ uint32_t e4m3_half(uint32_t word, bool is_upper)
{
    uint32_t pair = 0;
    PTX_SM90("cvt.rn.f16x2.e4m3x2 %0, %1;"
             : "=r"(pair)
             : "h"(static_cast<uint16_t>(is_upper ? word >> 16 : word)));
    return pair;
}

/* A pair of f16 times a scale, in the type of x. */
__device__ __forceinline__ uint32_t times_f32_of_f16(wide_bf16, uint32_t pair, float scale)
{
    float2 v = __half22float2(*reinterpret_cast<const __half2 *>(&pair));
    return cvt_rn_bf16x2(v.x * scale, v.y * scale);
}

__device__ __forceinline__ uint32_t times_f32_of_f16(wide_f16, uint32_t pair, float scale)
{
    return times_f32(wide_f16(), pair, scale);
}

/* A fragment by the scales of rows g and g + 8. */
template <typename wide>
__device__ __forceinline__ void scale_fragment(const uint32_t (&pairs)[2], uint32_t (&a)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = wide::times(a[i], pairs[i % 2]);
    }
}

template <typename wide>
__device__ __forceinline__ void scale_fragment_f32(const float (&scales)[2], uint32_t (&a)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = times_f32(wide(), a[i], scales[i % 2]);
    }
}

/* A byte in both upper halves, e8m0, as a pair of bf16; the first is a subnormal. */
__device__ __forceinline__ uint32_t e8m0_pair(uint32_t upper_bytes)
{
    return __vmaxu2(upper_bytes >> 1, 0x00400040u);
}

/* Fragments of codes, and their scales. scaling: what a slice's are, or that there are none but
 * those for all of k. word: of rows g and g + 8, a byte each; or of the strip, f32. */
template <typename wide, int bits, uint8_t scaling> struct float_codes {
    using traits = typename float_traits_of<wide>::type;
    /* What a code is widened to, as a multiple of its value. */
    static constexpr float unit = bits == 8 && !wide::is_bf16 ? 0x1p-8f : 1.0f;

    static __device__ __forceinline__ void scale(uint32_t word, uint32_t (&a)[4])
    {
        if constexpr (scaling == STRIP_SCALES_E4M3) {
            scale_fragment<wide>({e4m3_scale<traits>(word, 0), e4m3_scale<traits>(word, 1)}, a);
        } else if constexpr (scaling == STRIP_SCALES_STRIP) {
            float one = __uint_as_float(word) * (1.0f / unit);
            scale_fragment_f32<wide>({one, one}, a);
        } else if constexpr (scaling == STRIP_SCALES_E8M0 && wide::is_bf16) {
            scale_fragment<wide>(
                {e8m0_pair(__byte_perm(word, 0, 0x0404)), e8m0_pair(__byte_perm(word, 0, 0x1414))},
                a);
        } else if constexpr (scaling == STRIP_SCALES_E8M0) {
            scale_fragment_f32<wide>(
                {e8m0_scale(word, 0) * (1.0f / unit), e8m0_scale(word, 1) * (1.0f / unit)}, a);
        }
    }
};

} // namespace
