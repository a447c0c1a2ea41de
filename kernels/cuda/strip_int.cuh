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
    using x = x_slice<n_groups_>;
    static constexpr int bits = traits::bits;
    static constexpr int n_groups = n_groups_;
    static constexpr bool has_zeros = has_zeros_;
    using size = sizes<n_groups, has_zeros, bits>;
    static constexpr strip_scaling scaling = STRIP_SCALES_PAIRS;

    static __device__ __forceinline__ slice_source source(const strip_args &args, const warp_id &id,
                                                          uint64_t i_strip, uint32_t i_step)
    {
        return source_of<n_groups, has_zeros, bits>(args, id, i_strip, i_step, id.warp);
    }

    static __device__ __forceinline__ void copy(const slice_source &from, const warp_id &id,
                                                uint32_t stage)
    {
        copy_slice<n_groups, has_zeros, bits>(from, id, stage);
    }

    static __device__ __forceinline__ void prepare(x &x)
    {
        sum_groups<traits, n_groups, has_zeros>(x);
    }

    /* What a lane reads of a slice beside codes. */
    uint32_t pairs[n_groups];
    uint32_t zeros;
    bool is_bf16;

    __device__ __forceinline__ int_format(const strip_args &args, const warp_id &id, uint32_t stage)
        : zeros(zeros_of<n_groups, bits>(stage, id)), is_bf16(args.scale_dtype == DTYPE_BF16)
    {
        read_scales<n_groups>(scales_of<n_groups, bits>(stage, id), pairs);
    }

    template <int n_m8>
    __device__ __forceinline__ void start(const x (&x)[n_m8], int i_group,
                                          float (&acc)[n_m8][4]) const
    {
        float2 offsets = make_float2(1, 1);
        if constexpr (has_zeros) {
            offsets = read_offsets<traits>(zeros, i_group);
        }
#pragma unroll
        for (int i = 0; i < n_m8; i++) {
            float a = x[i].starts[i_group][0];
            float b = x[i].starts[i_group][1];
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

    __device__ __forceinline__ float2 scale(int i_group) const
    {
        return widen_pair(pairs[i_group], is_bf16);
    }
};

} // namespace
