/* strip_columns.cuh - the end of several sums at once: what store_y() of strip_types.cuh does to
 * one, with what it needs of a column of y read once, and side by side: an element after the other,
 * their chains of instructions took 64 rows 10 us. */
#pragma once

#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/strip_types.cuh"

namespace {

/* What ends the sums of a column of y. */
struct y_column {
    float row_scale;
    float scale;
    float bias;
};

__device__ __forceinline__ y_column load_column(const strip_args &args, uint32_t i_n)
{
    y_column column = {};
    if (args.row_scales != nullptr) {
        column.row_scale =
            load_elem(args.row_scales, args.scale_dtype, i_n / args.row_scale_group_n);
    }
    if (args.column_scales != nullptr) {
        column.scale = args.column_scales[i_n];
    }
    if (args.bias != nullptr) {
        column.bias = load_elem(args.bias, args.bias_dtype, i_n);
    }
    return column;
}

/* The end of n sums, each of a column of its own and of two rows of x in turn: scales of the
 * column, those of the rows, bias. factor: 1 / traits::unit. */
template <int n>
__device__ __forceinline__ void end_sums(const strip_args &args, float factor,
                                         const y_column (&columns)[n], const float (&x_scales)[2],
                                         float (&sums)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        sums[i] *= factor;
    }
    if (args.row_scales != nullptr) {
#pragma unroll
        for (int i = 0; i < n; i++) {
            sums[i] *= columns[i].row_scale;
        }
    }
    if (args.column_scales != nullptr) {
#pragma unroll
        for (int i = 0; i < n; i++) {
            sums[i] = args.is_column_divisor ? divide(sums[i], columns[i].scale)
                                             : sums[i] * columns[i].scale;
        }
    }
    if (args.x_scales != nullptr) {
#pragma unroll
        for (int i = 0; i < n; i++) {
            sums[i] *= x_scales[i % 2];
        }
    }
    if (args.bias != nullptr) {
#pragma unroll
        for (int i = 0; i < n; i++) {
            sums[i] += columns[i].bias;
        }
    }
}

/* What y has for a value, in its lower bits. Every NaN becomes the canonical quiet one of its type.
 */
__device__ __forceinline__ uint32_t elem_bits(uint32_t dtype, float value)
{
    bool is_nan = value != value;
    if (dtype == DTYPE_F32) {
        return is_nan ? 0x7fc00000u : __float_as_uint(value);
    }
    if (dtype == DTYPE_F16) {
        return is_nan ? 0x7e00u : __half_as_ushort(__float2half_rn(value));
    }
    return is_nan ? 0x7fc0u : cvt_rn_bf16x2(value, 0);
}

} // namespace
