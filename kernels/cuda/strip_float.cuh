/* strip_float.cuh - weights of 8- and 4-bit floats in strip_kernel.cuh: what a code is worth, and
 * its scales. All of it exact.
 *
 * e4m3: sign, exponent and mantissa are moved to where they belong in an f16, which is the value
 * times 2^-8 (subnormals too; the sum is scaled back at the end), or in a bf16, which is the value
 * times 2^-120, and multiplied by 2^120. 4 codes are 4 LOP3 and 3 shifts, in bf16 2 products more.
 *
 * e2m1: the upper bytes of 4 magnitudes come from a table of 8 bytes by one PRMT, for bf16 the
 * lower ones by another (they are 0 in f16); signs are or-ed into the upper ones.
 *
 * Scales of groups of 16 are multiplied into the codes: the product of an e2m1 and an e4m3 has 6
 * bits, and is a multiple of 2^-18 once f16 has the scale as 2^-8 of itself. Others are applied to
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

struct traits_bf16_e2m1 : traits_bf16 {};

/* unit: that of the scales, for groups of 16. */
template <bool has_scaled_codes> struct traits_f16_e2m1 : traits_f16 {
    static constexpr float unit = has_scaled_codes ? 0x1p-8f : 1.0f;
};

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

/* Upper bytes of the codes of nibbles 0 to 3 and 4 to 7, with their signs. */
struct e2m1_bytes {
    uint32_t low;
    uint32_t high;
};

__device__ __forceinline__ e2m1_bytes e2m1_upper(uint32_t word, uint32_t select, uint32_t table_low,
                                                 uint32_t table_high)
{
    uint32_t low = __byte_perm(table_low, table_high, select);
    uint32_t high = __byte_perm(table_low, table_high, select >> 16);
    return {lop3_and_or<0x80808080u>(word, low), lop3_and_or<0x80808080u>(word << 4, high)};
}

/* The A fragment of a word: 0, 0.5, 1, 1.5, 2, 3, 4 and 6 by index. */
__device__ __forceinline__ void e2m1_tile(traits_f16, uint32_t word, uint32_t (&a)[4])
{
    e2m1_bytes upper = e2m1_upper(word, word & 0x77777777u, 0x3e3c3800u, 0x46444240u);
    a[0] = __byte_perm(upper.low, 0, 0x1404);
    a[1] = __byte_perm(upper.low, 0, 0x3424);
    a[2] = __byte_perm(upper.high, 0, 0x1404);
    a[3] = __byte_perm(upper.high, 0, 0x3424);
}

__device__ __forceinline__ void e2m1_tile(traits_bf16, uint32_t word, uint32_t (&a)[4])
{
    uint32_t select = word & 0x77777777u;
    e2m1_bytes upper = e2m1_upper(word, select, 0x3f3f3f00u, 0x40404040u);
    uint32_t lower_low = __byte_perm(0xc0800000u, 0xc0804000u, select);
    uint32_t lower_high = __byte_perm(0xc0800000u, 0xc0804000u, select >> 16);
    a[0] = __byte_perm(lower_low, upper.low, 0x5140);
    a[1] = __byte_perm(lower_low, upper.low, 0x7362);
    a[2] = __byte_perm(lower_high, upper.high, 0x5140);
    a[3] = __byte_perm(lower_high, upper.high, 0x7362);
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

__device__ __forceinline__ uint32_t scaled(traits_bf16, uint32_t pair, uint32_t scale)
{
    return mul_bf16x2(pair, scale);
}

__device__ __forceinline__ uint32_t scaled(traits_f16, uint32_t pair, uint32_t scale)
{
    return mul_f16x2(pair, scale);
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

/* ---- the format ---- */

template <typename traits_, strip_scaling scaling_> struct float_format {
    using traits = traits_;
    static constexpr int bits = traits::bits;
    static constexpr strip_scaling scaling = scaling_;
    static constexpr int n_groups = scaling == STRIP_SCALES_E8M0 ? 8 : 2;
    static constexpr bool has_zeros = false;

    struct size {
        static constexpr uint32_t codes = STRIP_CODES_BYTES_OF(bits);
        static constexpr uint32_t lane_scales = scaling == STRIP_SCALES_STRIP ? 8 : 16;
        static constexpr uint32_t scales = scaling == STRIP_SCALES_STRIP  ? 8
                                           : scaling == STRIP_SCALES_E8M0 ? 128
                                                                          : 256;
        static constexpr uint32_t slice = codes + scales;
        static constexpr uint32_t stage = STRIP_CODES_BYTES + 32 * lane_scales;
    };

    static __device__ __forceinline__ slice_source source(const strip_args &args, const warp_id &id,
                                                          uint64_t i_strip, uint32_t i_step,
                                                          uint32_t i)
    {
        const uint8_t *record = record_of(args, i_strip, i_step, size::slice);
        uint32_t i_lane = scaling == STRIP_SCALES_STRIP  ? 0
                          : scaling == STRIP_SCALES_E8M0 ? id.g
                                                         : 2 * id.g + id.t / 2;
        uint32_t codes = i * size::codes + id.lane * 16;
        uint32_t scales =
            step_slices(args, i_step) * size::codes + i * size::scales + i_lane * size::lane_scales;
        return {record + codes, scales - codes, 0};
    }

    static __device__ __forceinline__ uint32_t scales_place(const warp_id &id, uint32_t stage)
    {
        return stage + STRIP_CODES_BYTES + id.lane * size::lane_scales - id.lane * 16;
    }

    static __device__ __forceinline__ void copy(const slice_source &from, const warp_id &id,
                                                uint32_t stage, uint32_t i_half)
    {
        copy_codes(from, stage, i_half);
        cp_async<size::lane_scales>(scales_place(id, stage), from.codes + from.scales_offset);
    }

    template <int n_m8> static constexpr uint32_t starts_bytes = 0;

    template <int n_m8>
    static __device__ __forceinline__ void prepare(uint32_t, const x_fragments (&)[n_m8])
    {
    }

    /* What a lane reads of a slice beside codes. e8m0 scales stay in shared memory until they are
     * used: registers are short. */
    uint32_t words[4];
    uint32_t place;

    __device__ __forceinline__ float_format(const strip_args &, const warp_id &id, uint32_t stage)
        : words{}, place(scales_place(id, stage))
    {
        if constexpr (scaling == STRIP_SCALES_STRIP) {
            uint2 pair = ld_shared_v2(place);
            words[0] = pair.x;
            words[1] = pair.y;
        }
        if constexpr (scaling == STRIP_SCALES_E4M3) {
            uint4 v = ld_shared_v4(place);
            words[0] = v.x & 0x7f7f7f7fu;
            words[1] = v.y & 0x7f7f7f7fu;
            words[2] = v.z & 0x7f7f7f7fu;
            words[3] = v.w & 0x7f7f7f7fu;
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
                                             uint32_t (&a)[4]) const
    {
        if constexpr (bits == 8) {
            e4m3_tile<traits>(codes[2 * j], codes[2 * j + 1], a);
        } else {
            e2m1_tile(traits(), codes[j], a);
        }
        if constexpr (scaling == STRIP_SCALES_E4M3) {
            int i_block = 2 * i_vector + j / 2;
            uint32_t word = words[i_block / 2];
            uint32_t upper = positive_e4m3(traits(), word, i_block % 2 * 2);
            uint32_t lower = positive_e4m3(traits(), word, i_block % 2 * 2 + 1);
            a[0] = scaled(traits(), a[0], upper);
            a[1] = scaled(traits(), a[1], lower);
            a[2] = scaled(traits(), a[2], upper);
            a[3] = scaled(traits(), a[3], lower);
        }
    }

    /* Of rows g and g + 8. */
    __device__ __forceinline__ float2 scale(int i_group) const
    {
        if constexpr (scaling == STRIP_SCALES_STRIP) {
            float one = __uint_as_float(words[i_group]);
            return make_float2(one, one);
        }
        if constexpr (scaling == STRIP_SCALES_E8M0) {
            uint32_t word = ld_shared(place + i_group / 2 * 4);
            return make_float2(e8m0_scale(word, i_group % 2 * 2),
                               e8m0_scale(word, i_group % 2 * 2 + 1));
        }
        return make_float2(1.0f, 1.0f);
    }
};

} // namespace
