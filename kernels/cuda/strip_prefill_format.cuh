/* strip_prefill_format.cuh - weights of every format as warps of strip_prefill_kernel.cuh widen
 * them to be rounded: the codes of a block of 32 of k, transposed over the lanes, its scales and
 * zero points.
 *
 * Formats. load(): the scales and zero points of a block, from a strip's tables; i_block counts
 * from the start of its slice, i_all from that of k. transpose(): 16 bytes of a lane, which are two
 * blocks of 4-bit codes or one of 8-bit ones. widen(): one of a block's two fragments. */
#pragma once

#include "kernels/cuda/strip_prefill_float.cuh"

namespace {

/* Where a strip's scales and zero points of a slice are. */
struct slice_tables {
    uint32_t scales;
    uint32_t zeros;
};

template <typename wide>
__device__ __forceinline__ void scale_block(const uint32_t (&pairs)[2], uint32_t (&a)[2][4])
{
    scale_fragment<wide>(pairs, a[0]);
    scale_fragment<wide>(pairs, a[1]);
}

template <typename wide_, int bits_> struct register_int {
    using wide = wide_;
    static constexpr int bits = bits_;
    static constexpr uint8_t scaling = STRIP_SCALES_PAIRS;
    uint32_t zeros[2]; /* of rows g and g + 8 */
    uint32_t scales;   /* likewise */

    __device__ __forceinline__ register_int()
    {
        zeros[0] = zeros[1] = base_zero_of<wide, bits>(1u << (bits - 1));
    }

    __device__ __forceinline__ void load(const strip_args &args, const slice_tables &at,
                                         uint32_t i_block, uint32_t)
    {
        uint32_t index = lane_id() / 4 * args.n_slice_groups + i_block * args.n_slice_groups / 8;
        scales = ld_shared(at.scales + index * 4);
        if (args.has_zeros) {
            uint32_t pair = ld_shared_u16(at.zeros + index * 2);
            zeros[0] = base_zero_of<wide, bits>(pair & 0xff);
            zeros[1] = base_zero_of<wide, bits>(pair >> 8);
        }
    }

    static __device__ __forceinline__ void transpose(const quad_place &quad, uint4 &words)
    {
        ::transpose<bits>(quad, words);
    }

    /* Fragment j of a block. */
    __device__ __forceinline__ void widen(const uint4 &words, int j, uint32_t (&a)[4]) const
    {
        if constexpr (bits == 4) {
            widen_nibbles<wide>(j == 0 ? words.x : words.y, zeros, a);
        } else {
            widen_bytes<wide>(j == 0 ? words.x : words.z, j == 0 ? words.y : words.w, zeros, a);
        }
        scale_fragment<wide>({__byte_perm(scales, 0, 0x1010), __byte_perm(scales, 0, 0x3232)}, a);
    }
};

template <typename wide_, int bits_, uint8_t scaling_> struct register_float {
    using wide = wide_;
    using codes = float_codes<wide, bits_, scaling_>;
    static constexpr int bits = bits_;
    static constexpr uint8_t scaling = scaling_;
    /* Where f32 scales are, f16 is on the way to f32. */
    static constexpr bool is_by_f16 = bits == 8 && scaling == STRIP_SCALES_STRIP;
    uint32_t scales[2]; /* words of the block's halves */

    __device__ __forceinline__ void load(const strip_args &, const slice_tables &at,
                                         uint32_t i_block, uint32_t i_all)
    {
        uint32_t g = lane_id() / 4;
        if constexpr (scaling == STRIP_SCALES_E4M3) {
            scales[0] = ld_shared_u16(at.scales + (g * 16 + i_block) * 2);
            scales[1] = ld_shared_u16(at.scales + (g * 16 + 8 + i_block) * 2);
        } else if constexpr (scaling == STRIP_SCALES_E8M0) {
            scales[0] = scales[1] = ld_shared_u16(at.scales + (g * 8 + i_block) * 2);
        } else if constexpr (scaling == STRIP_SCALES_STRIP) { /* copied with a neighbour's */
            scales[0] = scales[1] = ld_shared(at.scales + i_all / 4 % 4 * 4);
        }
    }

    static __device__ __forceinline__ void transpose(const quad_place &quad, uint4 &words)
    {
        if constexpr (bits == 4) {
            transpose_e2m1(quad, words.x, words.y);
            transpose_e2m1(quad, words.z, words.w);
        } else {
            transpose_e4m3<is_by_f16>(quad, words);
        }
    }

    /* A pair of e4m3, of row g or g + 8; scaled already where scales are f32. */
    static __device__ __forceinline__ uint32_t widen_item(uint32_t item, int i_row, float scale)
    {
        if constexpr (is_by_f16) {
            return times_f32_of_f16(wide(), e4m3_half(item, i_row != 0), scale);
        } else {
            return e4m3_pair(typename codes::traits(), i_row == 0 ? item : item << 8);
        }
    }

    /* Fragment j of a block. */
    __device__ __forceinline__ void widen(const uint4 &words, int j, uint32_t (&a)[4]) const
    {
        if constexpr (bits == 4) {
            e2m1_tile<typename codes::traits>(j == 0 ? words.x : words.y, a);
        } else {
            uint32_t pairs[2] = {j == 0 ? words.x : words.z, j == 0 ? words.y : words.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                a[i] = widen_item(pairs[i / 2], i % 2, __uint_as_float(scales[j]));
            }
        }
        if constexpr (!is_by_f16) {
            codes::scale(scales[j], a);
        }
    }
};

} // namespace
