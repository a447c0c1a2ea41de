/* strip_staged_codes.cuh - float weights as warps of strip_staged_kernel.cuh widen them:
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

#include "kernels/cuda/strip_prefill_format.cuh"
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

/* ---- floats: code * scale ----
 * scaling: what a slice's scales are, or that there are none but those for all of k. Scales of
 * whole strips are left to the sums. */

template <typename wide_, int bits_, uint8_t scaling_> struct staged_float {
    using wide = wide_;
    using codes = float_codes<wide, bits_, scaling_>;
    using traits = typename codes::traits;
    static constexpr int bits = bits_;
    static constexpr uint8_t scaling = scaling_;
    static constexpr bool is_strip_scaled = scaling == STRIP_SCALES_STRIP;
    static constexpr uint32_t scales = STRIP_N * k_job * bits / 8; /* in a slot, behind codes */
    static constexpr uint32_t slot_bytes = scales + (scaling == STRIP_SCALES_E4M3   ? 256
                                                     : scaling == STRIP_SCALES_E8M0 ? 128
                                                                                    : 16);
    using raw = raw_block<bits>;
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

    static __device__ __forceinline__ raw load(const block_place &at)
    {
        raw block = {};
        load_codes<bits>(at, block.codes);
        block.scale = load_scale(at);
        return block;
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
            if constexpr (!is_strip_scaled) {
                codes::scale(block.scale, a[j]);
            }
        }
    }
};

} // namespace
