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
    using size = sizes<n_groups, has_zeros, bits>;
    static constexpr strip_scaling scaling = STRIP_SCALES_PAIRS;

    static __device__ __forceinline__ slice_source source(const strip_args &args, const warp_id &id,
                                                          uint64_t i_strip, uint32_t i_step,
                                                          uint32_t i)
    {
        return source_of<n_groups, has_zeros, bits>(args, id, i_strip, i_step, i);
    }

    static __device__ __forceinline__ void copy(const slice_source &from, const warp_id &id,
                                                uint32_t stage, uint32_t i_half)
    {
        copy_slice<n_groups, has_zeros, bits>(from, id, stage, i_half);
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
        : scales(scales_of<n_groups>(stage, id)), zeros(zeros_of<n_groups>(stage, id)),
          is_bf16(args.scale_dtype == DTYPE_BF16)
    {
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
                read_scales<n_pairs>(scales + i_group / n_pairs * 512, pairs);
            }
        }
        return widen_pair(pairs[i_group % n_pairs], is_bf16);
    }
};

} // namespace
