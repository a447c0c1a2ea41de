/* strip_types.cuh - what the strip kernels do with element types: dequantisation, widening,
 * narrowing. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ipc/base/dtype.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/strip_args.h"

struct wgmma_bf16; /* of wgmma.cuh */
struct wgmma_f16;

namespace {

/* For each pair of codes and x. magic: what a masked nibble is or-ed with; minus_symmetric: a pair
 * of the factor by which sum(x) enters a group for the symmetric zero point; offset: what a
 * dequantised code carries beside itself, in units of unit; chain_factor: of a group's sum, before
 * its scale. */
struct traits_bf16 {
    static constexpr int bits = 4;
    using wgmma_element = struct wgmma_bf16;
    static constexpr uint32_t magic = 0x41804180u;           /* 16.0 */
    static constexpr uint32_t minus_symmetric = 0xc1c0c1c0u; /* -(16 + 8) */
    static constexpr uint32_t one = 0x3f803f80u;
    static constexpr float offset = 16.0f;
    static constexpr float unit = 1.0f;
    static constexpr float chain_factor = 1.0f;
    static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2])
    {
        mma_m16n8k16_bf16(d, a, b);
    }
};

struct traits_f16 {
    static constexpr int bits = 4;
    using wgmma_element = struct wgmma_f16;
    static constexpr uint32_t magic = 0;                     /* subnormal: code * 2^-21 */
    static constexpr uint32_t minus_symmetric = 0x80408040u; /* -8 * 2^-21 */
    static constexpr uint32_t one = 0x3c003c00u;
    static constexpr float offset = 0.0f;
    static constexpr float unit = 0x1p-21f;
    static constexpr float chain_factor = 1.0f;
    static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2])
    {
        mma_m16n8k16_f16(d, a, b);
    }
};

/* The A fragment of a word of 4-bit codes. */
template <typename traits> __device__ __forceinline__ void dequant(uint32_t word, uint32_t (&a)[4])
{
    constexpr uint32_t mask = 0x00780078u;
    a[0] = lop3_and_or<mask, traits::magic>(word);
    a[1] = lop3_and_or<mask, traits::magic>(word >> 4);
    a[2] = lop3_and_or<mask, traits::magic>(word >> 8);
    a[3] = lop3_and_or<mask, traits::magic>(__funnelshift_r(word, word, 12));
}

/* ---- 8-bit codes ---- */

/* Dequantised as code - 128, which is exact in both types. */
struct traits_bf16_u8 : traits_bf16 {
    static constexpr int bits = 8;
    static constexpr uint32_t minus_symmetric = 0; /* -(-128 + 128) */
    static constexpr float offset = -128.0f;
};

struct traits_f16_u8 : traits_f16 {
    static constexpr int bits = 8;
    static constexpr uint32_t minus_symmetric = 0;
    static constexpr float offset = -128.0f;
    static constexpr float unit = 1.0f;
};

/* Bytes i and i + 1 of a word. bf16: in the mantissa of 2^23 in f32, and down again; f16: in the
 * mantissa of 1024. */
__device__ __forceinline__ uint32_t byte_pair(traits_bf16_u8, uint32_t word, uint32_t i)
{
    constexpr uint32_t two_23 = 0x4b000000u;
    float a = __uint_as_float(__byte_perm(word, two_23, 0x7540u + i)) - 8388736.0f;
    float b = __uint_as_float(__byte_perm(word, two_23, 0x7541u + i)) - 8388736.0f;
    return cvt_rn_bf16x2(a, b);
}

__device__ __forceinline__ uint32_t byte_pair(traits_f16_u8, uint32_t word, uint32_t i)
{
    constexpr uint32_t pair_1024 = 0x64646464u;
    constexpr uint32_t pair_1152 = 0x64806480u;
    return sub_f16x2(__byte_perm(word, pair_1024, 0x4140u + i * 0x0101u), pair_1152);
}

/* ---- a vector of the layout ---- */

/* A fragments in the 16 bytes of a lane. */
template <typename traits> constexpr int n_vector_tiles = 16 / traits::bits;

template <typename traits>
__device__ __forceinline__ void dequant_tile(const uint32_t (&words)[4], int i, uint32_t (&a)[4])
{
    if constexpr (traits::bits == 4) {
        dequant<traits>(words[i], a);
    } else {
        uint32_t upper = words[2 * i]; /* row g */
        uint32_t lower = words[2 * i + 1];
        a[0] = byte_pair(traits(), upper, 0);
        a[1] = byte_pair(traits(), lower, 0);
        a[2] = byte_pair(traits(), upper, 2);
        a[3] = byte_pair(traits(), lower, 2);
    }
}

__device__ __forceinline__ float2 widen_pair(uint32_t pair, bool is_bf16)
{
    if (is_bf16) {
        return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    }
    return __half22float2(*reinterpret_cast<const __half2 *>(&pair));
}

__device__ float load_elem(const void *array, uint32_t dtype, uint32_t index)
{
    if (dtype == DTYPE_F32) {
        return static_cast<const float *>(array)[index];
    }
    if (dtype == DTYPE_F16) {
        return __half2float(static_cast<const __half *>(array)[index]);
    }
    return __bfloat162float(static_cast<const __nv_bfloat16 *>(array)[index]);
}

/* Every NaN becomes the canonical quiet one of its type. */
__device__ void store_elem(void *array, uint32_t dtype, uint32_t index, float value)
{
    bool is_nan = value != value;
    if (dtype == DTYPE_F32) {
        static_cast<float *>(array)[index] = is_nan ? __uint_as_float(0x7fc00000u) : value;
        return;
    }
    uint16_t bits = dtype == DTYPE_F16 ? __half_as_ushort(__float2half_rn(value))
                                       : __bfloat16_as_ushort(__float2bfloat16_rn(value));
    uint16_t nan = dtype == DTYPE_F16 ? 0x7e00u : 0x7fc0u;
    static_cast<uint16_t *>(array)[index] = is_nan ? nan : bits;
}

/* The end of a sum: column scale, scale of the row of x, bias, rounding. */
template <typename traits>
__device__ __forceinline__ void store_y(const strip_args &args, void *const *y_rows, uint32_t m,
                                        uint32_t i_n, uint32_t i_m, float total)
{
    if (i_n >= args.n || i_m >= m) {
        return;
    }
    total *= 1.0f / traits::unit;
    if (args.row_scales != nullptr) {
        total *= load_elem(args.row_scales, args.scale_dtype, i_n / args.row_scale_group_n);
    }
    if (args.column_scales != nullptr) {
        float scale = args.column_scales[i_n];
        total = args.is_column_divisor ? __fdiv_rn(total, scale) : total * scale;
    }
    if (args.x_scales != nullptr) {
        total *= args.x_scales[i_m];
    }
    if (args.bias != nullptr) {
        total += load_elem(args.bias, args.bias_dtype, i_n);
    }
    store_elem(y_rows[i_m], args.y_dtype, i_n, total);
}

} // namespace
