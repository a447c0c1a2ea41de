/* w8a8_store.cuh - the end of w8a8_gemm.cu: finished sums to y.
 *
 * A CTA has few rows of W and is at the end once, so nothing hides how long that takes. What is
 * known of the rows of x, and where those of y lie, waits in shared memory; there is straight code
 * for each type of y; and 16-bit elements, of which a thread has pairs along x, are transposed
 * (movmatrix), so that it stores pairs along y, and four threads 16 bytes side by side. */
#pragma once

#include "kernels/cuda/narrow.cuh"
#include "kernels/cuda/w8a8_finish.cuh"

namespace {

/* Of the rows of x and y of a launch, in shared memory: as in struct w8a8_x. */
struct known_rows {
    float scales[CUDA_ROWS_MAX];
    int32_t zeros[CUDA_ROWS_MAX];
    int32_t sums[CUDA_ROWS_MAX]; /* only where the weight has zero points */
    void *y[CUDA_ROWS_MAX];
};

/* A thread's sums: W rows first_n + g and 8 more, x rows first_m + 2 t and one more, and 8, 16, ...
 * behind these. Rows of W from end_n on are not stored. */
struct sum_place {
    uint32_t first_n;
    uint32_t end_n;
    uint32_t first_m;
    uint32_t lane;
};

/* Eight rows of x: element 2 h + i is W row g + 8 h, x row 2 t + i. i_m: x row 2 t. */
template <w8a8_kind kind>
__device__ __forceinline__ void
finish_block(const w8a8_gemm_args &args, const known_rows &rows, const column (&columns)[2],
             uint32_t i_m, const typename traits<kind>::element::sum (&sums)[4], float (&values)[4])
{
    float2 scales = *reinterpret_cast<const float2 *>(&rows.scales[i_m]);
    int2 zeros = {}, x_sums = {};
    if constexpr (kind == W8A8_INT8) {
        zeros = *reinterpret_cast<const int2 *>(&rows.zeros[i_m]);
        if (args.zeros != nullptr) {
            x_sums = *reinterpret_cast<const int2 *>(&rows.sums[i_m]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const column &one = columns[i / 2];
        float value;
        if constexpr (kind == W8A8_INT8) {
            value = __int2float_rn(without_zeros(args, one, i % 2 == 0 ? zeros.x : zeros.y,
                                                 i % 2 == 0 ? x_sums.x : x_sums.y, sums[i]));
        } else {
            value = sums[i];
        }
        values[i] = finish<kind>(args, one, i % 2 == 0 ? scales.x : scales.y, value);
    }
}

/* Two elements of a row of y, column and the next. */
__device__ __forceinline__ void store_pair(void *row, uint32_t column, uint32_t end_n,
                                           uint32_t pair)
{
    uint16_t *to = static_cast<uint16_t *>(row) + column;
    if (column + 2 <= end_n && reinterpret_cast<uintptr_t>(to) % 4 == 0) {
        *reinterpret_cast<uint32_t *>(to) = pair;
        return;
    }
    if (column < end_n) {
        to[0] = static_cast<uint16_t>(pair);
    }
    if (column + 1 < end_n) {
        to[1] = static_cast<uint16_t>(pair >> 16);
    }
}

template <typename element>
__device__ __forceinline__ void store_block(const w8a8_gemm_args &args, const known_rows &rows,
                                            const sum_place &at, uint32_t first_m,
                                            const float (&values)[4], element type)
{
    uint32_t g = at.lane / 4, t = at.lane % 4;
    uint32_t upper = movmatrix_trans(narrow_pair(values[0], values[1], type));
    uint32_t lower = movmatrix_trans(narrow_pair(values[2], values[3], type));
    if (first_m + g < args.m) {
        void *row = rows.y[first_m + g];
        store_pair(row, at.first_n + 2 * t, at.end_n, upper);
        store_pair(row, at.first_n + 2 * t + 8, at.end_n, lower);
    }
}

__device__ __forceinline__ void store_block(const w8a8_gemm_args &args, const known_rows &rows,
                                            const sum_place &at, uint32_t first_m,
                                            const float (&values)[4], float)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t i_n = at.first_n + at.lane / 4 + i / 2 * 8;
        uint32_t i_m = first_m + at.lane % 4 * 2 + i % 2;
        if (i_n < at.end_n && i_m < args.m) {
            store(rows.y[i_m], DTYPE_F32, i_n, values[i]);
        }
    }
}

template <w8a8_kind kind, int n, typename element>
__device__ __forceinline__ void
store_sums_as(const w8a8_gemm_args &args, const known_rows &rows, const column (&columns)[2],
              const sum_place &at, const typename traits<kind>::element::sum (&sums)[n / 2])
{
#pragma unroll
    for (int j = 0; j < n / 8; j++) {
        uint32_t first_m = at.first_m + 8 * j;
        const typename traits<kind>::element::sum four[4] = {sums[4 * j], sums[4 * j + 1],
                                                             sums[4 * j + 2], sums[4 * j + 3]};
        float values[4];
        finish_block<kind>(args, rows, columns, first_m + at.lane % 4 * 2, four, values);
        store_block(args, rows, at, first_m, values, element());
    }
}

/* n rows of x. By a whole warp. */
template <w8a8_kind kind, int n>
__device__ __forceinline__ void store_sums(const w8a8_gemm_args &args, const known_rows &rows,
                                           const column (&columns)[2], const sum_place &at,
                                           const typename traits<kind>::element::sum (&sums)[n / 2])
{
    if (args.y_dtype == DTYPE_BF16) {
        store_sums_as<kind, n, __nv_bfloat16>(args, rows, columns, at, sums);
    } else if (args.y_dtype == DTYPE_F16) {
        store_sums_as<kind, n, __half>(args, rows, columns, at, sums);
    } else {
        store_sums_as<kind, n, float>(args, rows, columns, at, sums);
    }
}

} // namespace
