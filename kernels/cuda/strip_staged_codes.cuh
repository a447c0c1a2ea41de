/* strip_staged_codes.cuh - weights of every format as warps of strip_staged_kernel.cuh widen them:
 * what a lane copies of a stage of a strip, and what it makes of a block of 32 of k.
 *
 * Lane 4 g + t holds k = 8t..8t+7 of rows g and g + 8 of a block of 32, 16 bytes each once widened,
 * which is a chunk of a row of the tile that the tensor core reads: nothing is exchanged between
 * lanes.
 *
 * Formats. load(): a lane's share of a block, from its slot. widen(): fragments of it as a[j][i], j
 * the half of 8 k, i as in mma.m16n8k16: row g or g + 8 (i % 2), the first or second pair of k
 * (i / 2). */
#pragma once

#include "kernels/cuda/strip_float.cuh"
#include "kernels/cuda/strip_prefill_weights.cuh"
#include "kernels/cuda/strip_staged_tile.cuh"

namespace {

/* A block of 32 of k, and the lane that wants its share of it. */
struct block_place {
    uint32_t slot;
    uint32_t lane;
    uint32_t i_slice; /* of the record */
    uint32_t i_part;  /* the 64 of k of the slice */
    uint32_t i_block; /* of it */
};

/* What a lane loads of a block. */
template <int bits> struct raw_block {
    uint32_t codes[bits / 2];
    uint32_t scale;
    uint32_t zeros; /* of rows g and g + 8 */
};

template <int bits>
__device__ __forceinline__ void load_codes(const block_place &at, uint32_t (&codes)[bits / 2])
{
    if constexpr (bits == 4) {
        uint2 v = ld_shared_v2(at.slot + at.i_part % 2 * STRIP_UNIT_BYTES + at.lane * 16 +
                               at.i_block * 8);
        codes[0] = v.x;
        codes[1] = v.y;
    } else {
        uint4 v = ld_shared_v4(at.slot + (at.i_part % 2 * 2 + at.i_block) * STRIP_UNIT_BYTES +
                               at.lane * 16);
        codes[0] = v.x;
        codes[1] = v.y;
        codes[2] = v.z;
        codes[3] = v.w;
    }
}

/* ---- integers: (code - zero) * scale, rounded to the type of x ---- */

template <typename wide_, int bits_> struct staged_int {
    using wide = wide_;
    static constexpr int bits = bits_;
    static constexpr uint8_t scaling = STRIP_SCALES_PAIRS;
    static constexpr bool is_exact = false;
    static constexpr uint32_t scales = STRIP_N * k_job * bits / 8; /* in a slot, behind codes */
    static constexpr uint32_t zeros = scales + 8 * 8 * 4;
    static constexpr uint32_t slot_bytes = zeros + 8 * 8 * 2;
    using raw = raw_block<bits>;

    static __device__ __forceinline__ raw load(const strip_prefill_args &args,
                                               const block_place &at)
    {
        uint32_t n_groups = args.base.n_slice_groups;
        uint32_t i_group =
            at.lane / 4 * n_groups + at.i_part * n_groups / 4 + (n_groups == 8 ? at.i_block : 0);
        raw block;
        load_codes<bits>(at, block.codes);
        block.scale = ld_shared(at.slot + scales + i_group * 4);
        block.zeros = args.base.has_zeros ? ld_shared_u16(at.slot + zeros + i_group * 2)
                                          : 0x0101u << (bits - 1);
        return block;
    }

    static __device__ __forceinline__ void widen(const raw &block, uint32_t (&a)[2][4])
    {
        uint32_t zero[2] = {base_zero_of<wide, bits>(block.zeros & 0xff),
                            base_zero_of<wide, bits>(block.zeros >> 8)};
        uint32_t pairs[2] = {__byte_perm(block.scale, 0, 0x1010),
                             __byte_perm(block.scale, 0, 0x3232)};
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if constexpr (bits == 4) {
                uint32_t word = __funnelshift_r(block.codes[j], block.codes[j], STRIP_ROTATION);
                widen_nibbles<wide>(word, zero, a[j]);
            } else {
                a[j][0] = widen_pair_of(wide(), block.codes[2 * j], 0, zero[0]);
                a[j][1] = widen_pair_of(wide(), block.codes[2 * j + 1], 0, zero[1]);
                a[j][2] = widen_pair_of(wide(), block.codes[2 * j], 2, zero[0]);
                a[j][3] = widen_pair_of(wide(), block.codes[2 * j + 1], 2, zero[1]);
            }
        }
        scale_block<wide>(pairs, a);
    }
};

/* ---- floats: code * scale, rounded to the type of x where it is not exact ----
 * scaling: what a slice's scales are, or that there are none but those for all of k. is_exact:
 * scales of whole strips are left to the sums. */

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

template <typename wide_, int bits_, uint8_t scaling_, bool is_exact_> struct staged_float {
    using wide = wide_;
    using traits = typename float_traits_of<wide>::type;
    static constexpr int bits = bits_;
    static constexpr uint8_t scaling = scaling_;
    static constexpr bool is_exact = is_exact_;
    static constexpr bool is_strip_scaled = scaling == STRIP_SCALES_STRIP;
    static constexpr uint32_t scales = STRIP_N * k_job * bits / 8; /* in a slot, behind codes */
    static constexpr uint32_t zeros = scales;
    static constexpr uint32_t slot_bytes = scales + (scaling == STRIP_SCALES_E4M3   ? 256
                                                     : scaling == STRIP_SCALES_E8M0 ? 128
                                                                                    : 16);
    using raw = raw_block<bits>;
    /* What a code is widened to, as a multiple of its value; and then what sums are. */
    static constexpr float unit = bits == 8 && !wide::is_bf16 ? 0x1p-8f : 1.0f;

    /* Of rows g and g + 8, a byte each; of the strip, f32. */
    static __device__ __forceinline__ uint32_t load_scale(const block_place &at)
    {
        uint32_t g = at.lane / 4;
        uint32_t i_block = at.i_part * 2 + at.i_block;
        switch (scaling) {
        case STRIP_SCALES_E8M0:
            return ld_shared_u16(at.slot + scales + (g * 8 + i_block) * 2);
        case STRIP_SCALES_E4M3:
            return ld_shared_u16(at.slot + scales + ((g * 2 + at.lane % 4 / 2) * 8 + i_block) * 2);
        case STRIP_SCALES_STRIP: /* copied with a neighbour */
            return ld_shared(at.slot + scales + at.i_slice % 2 * 8 + at.i_part / 2 * 4);
        default:
            return 0;
        }
    }

    static __device__ __forceinline__ raw load(const strip_prefill_args &, const block_place &at)
    {
        raw block = {};
        load_codes<bits>(at, block.codes);
        block.scale = load_scale(at);
        return block;
    }

    /* By the scales of rows g and g + 8. */
    static __device__ __forceinline__ void scale_f32(const float (&scales)[2], uint32_t (&a)[2][4])
    {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            a[i / 4][i % 4] = times_f32(wide(), a[i / 4][i % 4], scales[i % 2] * (1.0f / unit));
        }
    }

    static __device__ __forceinline__ void scale(uint32_t word, uint32_t (&a)[2][4])
    {
        if constexpr (scaling == STRIP_SCALES_E4M3) {
            uint32_t pairs[2] = {e4m3_scale<traits>(word, 0), e4m3_scale<traits>(word, 1)};
            scale_block<wide>(pairs, a);
        } else if constexpr (scaling == STRIP_SCALES_STRIP) {
            float one = __uint_as_float(word);
            scale_f32({one, one}, a);
        } else if constexpr (wide::is_bf16) {
            uint32_t pairs[2] = {e8m0_pair(__byte_perm(word, 0, 0x0404)),
                                 e8m0_pair(__byte_perm(word, 0, 0x1414))};
            scale_block<wide>(pairs, a);
        } else {
            scale_f32({e8m0_scale(word, 0), e8m0_scale(word, 1)}, a);
        }
    }

    /* A byte in both upper halves, e8m0, as a pair of bf16; the first is a subnormal. */
    static __device__ __forceinline__ uint32_t e8m0_pair(uint32_t upper_bytes)
    {
        return __vmaxu2(upper_bytes >> 1, 0x00400040u);
    }

    static __device__ __forceinline__ void widen(const raw &block, uint32_t (&a)[2][4])
    {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if constexpr (bits == 8) {
                e4m3_tile<traits>(block.codes[2 * j], block.codes[2 * j + 1], a[j]);
            } else {
                e2m1_tile<traits>(block.codes[j], a[j]);
            }
        }
        if constexpr (scaling != STRIP_PREFILL_NO_SCALES && !(is_exact && is_strip_scaled)) {
            scale(block.scale, a);
        }
    }
};

} // namespace
