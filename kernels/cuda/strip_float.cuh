/* strip_float.cuh - weights of 8- and 4-bit floats in strip_kernel.cuh: what a code is worth, and
 * its scales. All of it exact.
 *
 * e4m3: sign, exponent and mantissa are moved to where they belong in an f16, which is the value
 * times 2^-8 (subnormals too; the sum is scaled back at the end), or in a bf16, which is the value
 * times 2^-120, and multiplied by 2^120. 4 codes are 4 LOP3 and 3 shifts, in bf16 2 products more.
 *
 * e2m1: the same, times 2^-14 in an f16 and 2^-126 in a bf16. The ALU, which has shifts to the
 * right and LOP3, is what limits 4-bit codes: the layout (strip_e2m1_of()) lets 8 codes in bf16 be
 * 5 LOP3 and one shift to the right. Shifts to the left and products are another unit's.
 *
 * Scales of groups of 16 are multiplied into the codes: the product of an e2m1 and an e4m3 has 6
 * bits, and is a multiple of 2^-18 once both types have it as 2^-8 of itself. Others are applied to
 * sums. */
#pragma once

#include "kernels/cuda/strip_x.cuh"

namespace {

/* ---- codes ---- */

struct traits_bf16_e4m3 : traits_bf16 {
    static constexpr int bits = 8;
};

struct traits_f16_e4m3 : traits_f16 {
    static constexpr int bits = 8;
    static constexpr float unit = 0x1p-8f;
};

/* has_scaled_codes: groups of 16, whose scales bring a unit of their own. */
template <bool has_scaled_codes> struct traits_bf16_e2m1 : traits_bf16 {
    static constexpr float unit = has_scaled_codes ? 0x1p-8f : 1.0f;
};

template <bool has_scaled_codes> struct traits_f16_e2m1 : traits_f16 {
    static constexpr float unit = has_scaled_codes ? 0x1p-8f : 1.0f;
    static constexpr float chain_factor = has_scaled_codes ? 1.0f : 0x1p14f;
};

__device__ __forceinline__ uint32_t scaled(traits_bf16, uint32_t pair, uint32_t scale)
{
    return mul_bf16x2(pair, scale);
}

__device__ __forceinline__ uint32_t scaled(traits_f16, uint32_t pair, uint32_t scale)
{
    return mul_f16x2(pair, scale);
}

/* Bytes 1 and 3 of a word, e4m3, as a pair. */
__device__ __forceinline__ uint32_t e4m3_pair(traits_bf16, uint32_t word)
{
    constexpr uint32_t pair_2_120 = 0x7b807b80u;
    uint32_t magnitudes = word >> 4 & 0x07f007f0u;
    return mul_bf16x2(lop3_and_or<0x80008000u>(word, magnitudes), pair_2_120);
}

__device__ __forceinline__ uint32_t e4m3_pair(traits_f16, uint32_t word)
{
    uint32_t magnitudes = word >> 1 & 0x3f803f80u;
    return lop3_and_or<0x80008000u>(word, magnitudes);
}

/* The A fragment of a word of each row. */
template <typename traits>
__device__ __forceinline__ void e4m3_tile(uint32_t upper, uint32_t lower, uint32_t (&a)[4])
{
    a[0] = e4m3_pair(traits(), upper);
    a[1] = e4m3_pair(traits(), lower);
    a[2] = e4m3_pair(traits(), upper << 8);
    a[3] = e4m3_pair(traits(), lower << 8);
}

/* The A fragment of a word, times 2^-126. The factor moves sign, exponent and mantissa of register
 * 3 by 2, 7 and 12; bits in between do not meet. */
__device__ __forceinline__ void e2m1_bits(traits_bf16, uint32_t word, uint32_t (&a)[4])
{
    constexpr uint32_t code = 0x81c081c0u;
    a[0] = word & code;
    a[1] = word << 3 & code;
    a[2] = word << 6 & code;
    a[3] = (word >> 10 & 0x001b001bu) * (1u << 2 | 1u << 7 | 1u << 12) & code;
}

/* Times 2^-14. */
__device__ __forceinline__ void e2m1_bits(traits_f16, uint32_t word, uint32_t (&a)[4])
{
    constexpr uint32_t magnitude = 0x0e000e00u;
    constexpr uint32_t exponent = 0x0c000c00u;
    constexpr uint32_t mantissa = 0x02000200u;
    constexpr uint32_t sign = 0x80008000u;
    a[0] = lop3_and_or<sign>(word, word << 3 & magnitude);
    a[1] = lop3_and_or<sign>(word << 3, word << 6 & magnitude);
    a[2] = lop3_and_or<sign>(word << 6, word << 9 & magnitude);
    a[3] = lop3_and_or<sign>(word << 2, lop3_and_or<mantissa>(word >> 5, word & exponent));
}

/* What makes that up. */
__device__ __forceinline__ uint32_t e2m1_factor(traits_bf16)
{
    return 0x7e807e80u;
}

__device__ __forceinline__ uint32_t e2m1_factor(traits_f16)
{
    return 0x74007400u;
}

/* The values themselves. */
template <typename traits>
__device__ __forceinline__ void e2m1_tile(uint32_t word, uint32_t (&a)[4])
{
    e2m1_bits(traits(), word, a);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = scaled(traits(), a[i], e2m1_factor(traits()));
    }
}

/* ---- scales ---- */

/* Byte i of a word of e4m3 without signs: a pair of a scale, times traits' unit. A product puts it
 * into both halves, since the ALU is what is short. */
__device__ __forceinline__ uint32_t positive_e4m3(traits_bf16, uint32_t word, uint32_t i)
{
    constexpr uint32_t pair_2_120 = 0x7b807b80u;
    return mul_bf16x2(__byte_perm(word, 0, 0x4440u + i) * 0x00100010u, pair_2_120);
}

__device__ __forceinline__ uint32_t positive_e4m3(traits_f16, uint32_t word, uint32_t i)
{
    return __byte_perm(word, 0, 0x4440u + i) * 0x00800080u;
}

/* Of any word: scales are not negative, but may be -0. */
template <typename traits> __device__ __forceinline__ uint32_t e4m3_scale(uint32_t word, int i)
{
    return positive_e4m3(traits(), word & 0x7f7f7f7fu, i);
}

/* Two blocks' scales of a row, for codes as e2m1_bits() makes them: bytes 0 and 2 of a word for row
 * g, bytes 1 and 3 for row g + 8. Times 2^118, for products of 2^-8. */
__device__ __forceinline__ uint32_t e4m3_scales(traits_bf16, uint32_t word, int i_row)
{
    constexpr uint32_t pair_2_118 = 0x7a807a80u;
    constexpr uint32_t pair_2_120 = 0x7b807b80u;
    uint32_t bits = (i_row == 0 ? word << 4 : word >> 4) & 0x07f007f0u;
    return mul_bf16x2(mul_bf16x2(bits, pair_2_120), pair_2_118);
}

/* Times 2^6. */
__device__ __forceinline__ uint32_t e4m3_scales(traits_f16, uint32_t word, int i_row)
{
    constexpr uint32_t pair_2_14 = 0x74007400u;
    uint32_t bits = (i_row == 0 ? word << 7 : word >> 1) & 0x3f803f80u;
    return mul_f16x2(bits, pair_2_14);
}

/* Byte i of a word, e8m0: 2^(byte - 127), of which the first is a subnormal. */
__device__ __forceinline__ float e8m0_scale(uint32_t word, int i)
{
    uint32_t exponent = (i == 3   ? word >> 1
                         : i == 2 ? word << 7
                         : i == 1 ? word << 15
                                  : word << 23);
    return __uint_as_float(max(exponent & 0x7f800000u, 0x00400000u));
}

/* ---- a vector of the layout ---- */

/* A fragment i of the 16 bytes of a lane. Of groups of 16, block i_block of two has its scales in
 * scales (e4m3_scales()), and they are multiplied in. */
template <typename traits, strip_scaling scaling>
__device__ __forceinline__ void float_tile(const uint32_t (&codes)[4], int i, uint32_t scales,
                                           int i_block, uint32_t (&a)[4])
{
    if constexpr (traits::bits == 8) {
        e4m3_tile<traits>(codes[2 * i], codes[2 * i + 1], a);
    } else if constexpr (scaling == STRIP_SCALES_E4M3) {
        e2m1_bits(traits(), codes[i], a);
        uint32_t half = i_block == 0 ? 0x1010u : 0x3232u;
        uint32_t upper = __byte_perm(e4m3_scales(traits(), scales, 0), 0, half);
        uint32_t lower = __byte_perm(e4m3_scales(traits(), scales, 1), 0, half);
        a[0] = scaled(traits(), a[0], upper);
        a[1] = scaled(traits(), a[1], lower);
        a[2] = scaled(traits(), a[2], upper);
        a[3] = scaled(traits(), a[3], lower);
    } else if constexpr (traits::chain_factor != 1.0f) {
        e2m1_bits(traits(), codes[i], a);
    } else {
        e2m1_tile<traits>(codes[i], a);
    }
}

/* All there is of float codes, their scales and x, each as ONE(traits, scaling, dtype of x). */
#define STRIP_FLOAT_FORMATS(ONE)                                                                   \
    ONE(traits_bf16_e4m3, STRIP_SCALES_STRIP, DTYPE_BF16),                                         \
        ONE(traits_f16_e4m3, STRIP_SCALES_STRIP, DTYPE_F16),                                       \
        ONE(traits_bf16_e4m3, STRIP_SCALES_E8M0, DTYPE_BF16),                                      \
        ONE(traits_f16_e4m3, STRIP_SCALES_E8M0, DTYPE_F16),                                        \
        ONE(traits_bf16_e2m1<false>, STRIP_SCALES_E8M0, DTYPE_BF16),                               \
        ONE(traits_f16_e2m1<false>, STRIP_SCALES_E8M0, DTYPE_F16),                                 \
        ONE(traits_bf16_e2m1<true>, STRIP_SCALES_E4M3, DTYPE_BF16),                                \
        ONE(traits_f16_e2m1<true>, STRIP_SCALES_E4M3, DTYPE_F16)

/* ---- the format ---- */

template <typename traits_, strip_scaling scaling_> struct float_format {
    using traits = traits_;
    static constexpr int bits = traits::bits;
    static constexpr strip_scaling scaling = scaling_;
    static constexpr int n_groups = scaling == STRIP_SCALES_E8M0 ? 8 : 2;
    static constexpr bool has_zeros = false;

    /* Lanes that copy scales: all four of a quad have the same ones, or two have. Of the strip's
     * own each lane has a copy. Copies of 16 bytes for every lane take a tenth longer, and room
     * that sums of strips need; those of 8 bytes, as integers have them, do not. */
    static constexpr uint32_t n_scale_lanes = scaling == STRIP_SCALES_E8M0   ? 8
                                              : scaling == STRIP_SCALES_E4M3 ? 16
                                                                             : 32;
    static constexpr uint32_t n_sharing = 32 / n_scale_lanes;

    struct size {
        static constexpr uint32_t codes = STRIP_CODES_BYTES_OF(bits);
        static constexpr uint32_t lane_scales = scaling == STRIP_SCALES_STRIP ? 8 : 16;
        static constexpr uint32_t scales =
            scaling == STRIP_SCALES_STRIP ? 8 : n_scale_lanes * lane_scales;
        static constexpr uint32_t slice = codes + scales;
        static constexpr uint32_t stage = STRIP_CODES_BYTES + n_scale_lanes * lane_scales;
    };

    static __device__ __forceinline__ slice_source source(const strip_args &args, const warp_id &id,
                                                          uint64_t i_strip, uint32_t i_step,
                                                          uint32_t i)
    {
        const uint8_t *record = record_of(args, i_strip, i_step, size::slice);
        uint32_t i_lane = scaling == STRIP_SCALES_STRIP ? 0 : id.lane / n_sharing;
        uint32_t codes = i * size::codes + id.lane * 16;
        uint32_t scales =
            step_slices(args, i_step) * size::codes + i * size::scales + i_lane * size::lane_scales;
        return {record + codes, scales - codes, 0};
    }

    static __device__ __forceinline__ uint32_t scales_place(const warp_id &id, uint32_t stage)
    {
        return stage + STRIP_CODES_BYTES + id.lane / n_sharing * size::lane_scales - id.lane * 16;
    }

    /* The stage was read by other lanes, too. */
    static __device__ __forceinline__ void copy(const slice_source &from, const warp_id &id,
                                                uint32_t stage, uint32_t i_half)
    {
        copy_codes(from, stage, i_half);
        if (n_sharing > 1) {
            __syncwarp();
        }
        if (id.lane % n_sharing == 0) {
            cp_async<size::lane_scales>(scales_place(id, stage), from.codes + from.scales_offset);
        }
    }

    template <int n_m8> static constexpr uint32_t starts_bytes = 0;

    template <int n_m8>
    static __device__ __forceinline__ void prepare(uint32_t, const x_fragments (&)[n_m8])
    {
    }

    /* What a lane reads of a slice beside codes: the strip's two scales, or the four bytes of
     * others that are in use. They stay in shared memory until then: registers are short. */
    uint32_t words[2];
    uint32_t place;

    __device__ __forceinline__ float_format(const strip_args &, const warp_id &id, uint32_t stage)
        : words{}, place(scales_place(id, stage))
    {
        if (n_sharing > 1) {
            __syncwarp(); /* what another lane copied is there */
        }
        if constexpr (scaling == STRIP_SCALES_STRIP) {
            uint2 pair = ld_shared_v2(place);
            words[0] = pair.x;
            words[1] = pair.y;
        }
    }

    template <int n_m8>
    __device__ __forceinline__ void start(uint32_t, int, float (&acc)[n_m8][4]) const
    {
#pragma unroll
        for (int i = 0; i < n_m8; i++) {
            acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = 0.0f;
        }
    }

    /* i_vector, j: a lane's 16 bytes of the slice, and the tile in them. */
    __device__ __forceinline__ void fragment(const uint32_t (&codes)[4], int i_vector, int j,
                                             uint32_t (&a)[4])
    {
        if (scaling == STRIP_SCALES_E4M3 && j == 0) {
            words[0] = ld_shared(place + i_vector * 4);
        }
        float_tile<traits, scaling>(codes, j, words[0], j / 2, a);
    }

    /* Of rows g and g + 8. */
    __device__ __forceinline__ float2 scale(int i_group)
    {
        if constexpr (scaling == STRIP_SCALES_STRIP) {
            float one = __uint_as_float(words[i_group]);
            return make_float2(one, one);
        }
        if constexpr (scaling == STRIP_SCALES_E8M0) {
            if (i_group % 2 == 0) {
                words[0] = ld_shared(place + i_group / 2 * 4);
            }
            return make_float2(e8m0_scale(words[0], i_group % 2 * 2),
                               e8m0_scale(words[0], i_group % 2 * 2 + 1));
        }
        return make_float2(1.0f, 1.0f);
    }
};

} // namespace
