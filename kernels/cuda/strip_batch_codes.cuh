/* strip_batch_codes.cuh - weights of every format in strip_batch_kernel.cuh: what a tile of 128 k
 * of a strip has beside its codes, and its A fragments. Values and scales are those of
 * strip_int.cuh and strip_float.cuh.
 *
 * A stage holds a lane's codes, 2 KiB a warp, then scales and zero points of the whole slice as
 * they lie in the record, which lanes share. */
#pragma once

#include "kernels/cuda/strip_float.cuh"
#include "kernels/cuda/strip_int.cuh"

namespace {

/* Where a warp finds what belongs to a tile: scales of a slice, then its zero points; and which
 * half of the slice it is. */
struct tile_of_strip {
    uint32_t scales;
    uint32_t i_half;
};

/* ---- integers ---- */

template <typename traits_, int n_groups_> struct batch_int {
    using traits = traits_;
    static constexpr int bits = traits::bits;
    static constexpr int n_groups = n_groups_; /* of a slice */
    static constexpr strip_scaling scaling = STRIP_SCALES_PAIRS;
    static constexpr bool has_starts = true;               /* a group's sum starts from what x is */
    static constexpr uint32_t scale_bytes = 32 * n_groups; /* of a slice */
    static constexpr uint32_t zero_bytes = 16 * n_groups;

    uint32_t scales; /* of this lane's rows and the tile's first group */
    uint32_t zeros;
    bool is_bf16;
    bool has_zeros;

    __device__ __forceinline__ batch_int(const strip_args &args, const tile_of_strip &at)
        : is_bf16(args.scale_dtype == DTYPE_BF16), has_zeros(args.has_zeros != 0)
    {
        uint32_t i = lane_id() / 4 * n_groups + at.i_half * (n_groups / 2);
        scales = at.scales + i * 4;
        zeros = at.scales + scale_bytes + i * 2;
    }

    /* What sums over x enter rows g and g + 8 with. */
    __device__ __forceinline__ float2 offsets(int i_group) const
    {
        if (!has_zeros) {
            return make_float2(1.0f, 1.0f);
        }
        uint32_t pair = ld_shared_u16(zeros + i_group * 2);
        return make_float2(-(traits::offset + static_cast<float>(pair & 0xff)) * traits::unit,
                           -(traits::offset + static_cast<float>(pair >> 8)) * traits::unit);
    }

    __device__ __forceinline__ float2 scale(int i_group) const
    {
        return widen_pair(ld_shared(scales + i_group * 4), is_bf16);
    }

    /* words: 16 bytes of a lane; i: the fragment in them; i_block: the 32 k of the tile. */
    __device__ __forceinline__ void fragment(const uint32_t (&words)[4], int i, int i_block,
                                             uint32_t (&a)[4]) const
    {
        (void)i_block;
        dequant_tile<traits>(words, i, a);
    }
};

/* ---- floats ---- */

template <typename traits_, strip_scaling scaling_> struct batch_float {
    using traits = traits_;
    static constexpr int bits = traits::bits;
    static constexpr strip_scaling scaling = scaling_;
    static constexpr int n_groups = scaling == STRIP_SCALES_E8M0 ? 8 : 2;
    static constexpr bool has_starts = false;
    static constexpr uint32_t scale_bytes = scaling == STRIP_SCALES_STRIP  ? 8
                                            : scaling == STRIP_SCALES_E8M0 ? 128
                                                                           : 256;
    static constexpr uint32_t zero_bytes = 0;

    uint32_t scales;   /* of this lane's rows and the tile's first group */
    uint32_t words[2]; /* of groups of 16: the scales themselves */

    __device__ __forceinline__ batch_float(const strip_args &, const tile_of_strip &at) : words{}
    {
        uint32_t lane = lane_id();
        if constexpr (scaling == STRIP_SCALES_E4M3) {
            scales = at.scales + lane / 2 * 16 + at.i_half * 8;
            uint2 pair = ld_shared_v2(scales);
            words[0] = pair.x;
            words[1] = pair.y;
        } else if constexpr (scaling == STRIP_SCALES_E8M0) {
            scales = at.scales + lane / 4 * 16 + at.i_half * 8;
        } else {
            scales = at.scales + at.i_half * 4;
        }
    }

    __device__ __forceinline__ float2 scale(int i_group) const
    {
        if constexpr (scaling == STRIP_SCALES_STRIP) {
            float one = __uint_as_float(ld_shared(scales));
            return make_float2(one, one);
        }
        if constexpr (scaling == STRIP_SCALES_E8M0) {
            uint32_t pair = ld_shared_u16(scales + i_group * 2);
            return make_float2(e8m0_scale(pair, 0), e8m0_scale(pair, 1));
        }
        return make_float2(1.0f, 1.0f);
    }

    __device__ __forceinline__ void fragment(const uint32_t (&codes)[4], int i, int i_block,
                                             uint32_t (&a)[4]) const
    {
        float_tile<traits, scaling>(codes, i, words[i_block / 2], i_block % 2, a);
    }
};

} // namespace
