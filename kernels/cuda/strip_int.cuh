/* strip_int.cuh - integer weights in strip_kernel.cuh.
 *
 * Dequantisation, 4 bits: 8 codes in 4 LOP3 and 3 shifts. bf16: a nibble masked into the mantissa
 * of 16.0 is 16 + code. f16: left alone it is the subnormal code * 2^-21, exact, without an offset;
 * the sum is scaled back at the end. 8 bits: code - 128, exact in both types.
 *
 * A group's sum starts from -(offset + zero) * sum(x), where offset is what the dequantised codes
 * carry. Infinities and NaN in x make every element of that row of y NaN: that sum turns an
 * infinity into NaN. */
#pragma once

#include "kernels/cuda/strip_x.cuh"

namespace {

template <typename traits_, int n_groups_, bool has_zeros_> struct int_format {
    using traits = traits_;
    static constexpr int bits = traits::bits;
    static constexpr int n_groups = n_groups_;
    static constexpr bool has_zeros = has_zeros_;
    static constexpr strip_scaling scaling = STRIP_SCALES_PAIRS;

    /* Scales and zero points of groups of 128 are few: each lane has a copy of its own. Those of
     * shorter groups a stage has once, as they lie in memory, 16 bytes copied by each of the first
     * lanes: with copies for every lane, groups of 32 left room for two strips' sums, and x was
     * read for every second strip. */
    static constexpr bool is_shared = n_groups > 2;
    using parts = sizes<n_groups, has_zeros, bits>;
    static constexpr uint32_t scales_bytes = 8 * parts::lane_scales;
    static constexpr uint32_t zeros_bytes = 8 * parts::lane_zeros;
    struct size {
        static constexpr uint32_t slice = parts::slice;
        static constexpr uint32_t stage =
            is_shared ? STRIP_CODES_BYTES + (scales_bytes + zeros_bytes + 127) / 128 * 128
                      : parts::stage;
    };

    static __device__ __forceinline__ slice_source source(const strip_args &args, const warp_id &id,
                                                          uint64_t i_strip, uint32_t i_step,
                                                          uint32_t i)
    {
        slice_source from = source_of<n_groups, has_zeros, bits>(args, id, i_strip, i_step, i);
        if constexpr (is_shared) {
            uint32_t n = step_slices(args, i_step);
            uint32_t part = id.lane * 16; /* of the slice's scales, then of its zero points */
            uint32_t place = part < scales_bytes ? n * parts::codes + i * scales_bytes + part
                                                 : n * (parts::codes + scales_bytes) +
                                                       i * zeros_bytes + part - scales_bytes;
            from.scales_offset = place - (i * parts::codes + id.lane * 16);
        }
        return from;
    }

    static __device__ __forceinline__ void copy(const slice_source &from, const warp_id &id,
                                                uint32_t stage, uint32_t i_half)
    {
        if constexpr (is_shared) {
            copy_codes(from, stage, i_half);
            __syncwarp(); /* the stage was read by other lanes, too */
            if (id.lane * 16 < scales_bytes + zeros_bytes) {
                cp_async<16>(stage + STRIP_CODES_BYTES, from.codes + from.scales_offset);
            }
        } else {
            copy_slice<n_groups, has_zeros, bits>(from, id, stage, i_half);
        }
    }

    /* What groups start from waits in shared memory, since registers are short: 8 floats, for as
     * many rows of x, a group and block of rows. starts: this lane's two of the first. */
    template <int n_m8> static constexpr uint32_t starts_bytes = n_groups *n_m8 * 32;

    template <int n_m8>
    static __device__ __forceinline__ void prepare(uint32_t starts, const x_fragments (&x)[n_m8])
    {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < n_m8 * n_groups; i += 2) {
            int i_m8 = i / n_groups;
            int first = i % n_groups;
            float sums[2][2];
            sum_two_groups<traits, n_groups, has_zeros>(x[i_m8], first, sums);
#pragma unroll
            for (int j = 0; lane_id() < 4 && j < 2; j++) {
                uint32_t place = starts + ((first + j) * n_m8 + i_m8) * 32;
                st_shared(place, __float_as_uint(sums[j][0]));
                st_shared(place + 4, __float_as_uint(sums[j][1]));
            }
        }
        __syncwarp();
    }

    /* What a lane reads of a slice beside codes; of eight scales four at a time. */
    static constexpr int n_pairs = n_groups < 4 ? n_groups : 4;
    uint32_t pairs[n_pairs];
    uint32_t scales;
    uint32_t zeros;
    bool is_bf16;

    __device__ __forceinline__ int_format(const strip_args &args, const warp_id &id, uint32_t stage)
        : is_bf16(args.scale_dtype == DTYPE_BF16)
    {
        if constexpr (is_shared) {
            __syncwarp(); /* what another lane copied is there */
            scales = stage + STRIP_CODES_BYTES - id.lane * 16 + id.g * parts::lane_scales;
            zeros =
                stage + STRIP_CODES_BYTES - id.lane * 16 + scales_bytes + id.g * parts::lane_zeros;
        } else {
            scales = scales_of<n_groups>(stage, id);
            zeros = zeros_of<n_groups>(stage, id);
        }
        if constexpr (n_groups <= n_pairs) {
            read_scales<n_groups>(scales, pairs);
        }
    }

    template <int n_m8>
    __device__ __forceinline__ void start(uint32_t starts, int i_group, float (&acc)[n_m8][4]) const
    {
        float2 offsets = make_float2(1, 1);
        if constexpr (has_zeros) {
            offsets = read_offsets<traits>(zeros, i_group);
        }
#pragma unroll
        for (int i = 0; i < n_m8; i++) {
            uint2 pair = ld_shared_v2(starts + (i_group * n_m8 + i) * 32);
            float a = __uint_as_float(pair.x);
            float b = __uint_as_float(pair.y);
            acc[i][0] = has_zeros ? offsets.x * a : a;
            acc[i][1] = has_zeros ? offsets.x * b : b;
            acc[i][2] = has_zeros ? offsets.y * a : a;
            acc[i][3] = has_zeros ? offsets.y * b : b;
        }
    }

    __device__ __forceinline__ void fragment(const uint32_t (&words)[4], int i_vector, int j,
                                             uint32_t (&a)[4]) const
    {
        (void)i_vector;
        dequant_tile<traits>(words, j, a);
    }

    __device__ __forceinline__ float2 scale(int i_group)
    {
        if constexpr (n_groups > n_pairs) {
            if (i_group % n_pairs == 0) {
                read_scales<n_pairs>(scales + i_group * 4, pairs);
            }
        }
        return widen_pair(pairs[i_group % n_pairs], is_bf16);
    }
};

} // namespace
