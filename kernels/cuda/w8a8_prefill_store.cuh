/* w8a8_prefill_store.cuh - the end of a tile of w8a8_prefill.cu: from sums to y.
 *
 * Elements of 16 bits go out by way of shared memory, 16 rows by 64 columns a warp at a time, so
 * that what is written are whole lines: 16-byte chunks, each exclusive-or-ed with its row, which
 * spreads them over the banks. Pairs of f32 are whole sectors as they are.
 *
 * It is run once a tile, and most of its time would go into fetching instructions: straight code
 * for all 128 sums of a thread took a tenth of a launch on an H200. So there is code for one part
 * of each type only, which goes round while the sums move on through the registers, and what is
 * rare (column scales, rows askew, columns that are not all there) goes element by element, from
 * sums in shared memory. */
#pragma once

#include "kernels/cuda/narrow.cuh"
#include "kernels/cuda/w8a8_prefill_multiply.cuh"

namespace {

constexpr uint32_t part_n = 64; /* columns that are stored at a time */

/* What is known of a thread's two rows of x. */
struct row_numbers {
    float scales[2];
    int32_t zeros[2];
    int32_t sums[2];
};

template <w8a8_kind kind>
__device__ __forceinline__ row_numbers read_rows(const w8a8_gemm_args &args, uint32_t i_m)
{
    row_numbers rows = {{args.x.scales[i_m], args.x.scales[i_m + 8]}, {}, {}};
    if constexpr (kind == W8A8_INT8) {
        rows.zeros[0] = args.x.zeros[i_m];
        rows.zeros[1] = args.x.zeros[i_m + 8];
        if (args.zeros != nullptr) {
            rows.sums[0] = args.x.sums[i_m];
            rows.sums[1] = args.x.sums[i_m + 8];
        }
    }
    return rows;
}

/* ---- numbers ---- */

__device__ __forceinline__ float2 read_pair(uint32_t shared)
{
    uint2 pair = ld_shared_v2(shared);
    return {__uint_as_float(pair.x), __uint_as_float(pair.y)};
}

/* From sums to values in f32, of a pair of columns and both rows. */
template <w8a8_kind kind>
__device__ __forceinline__ void values_of(const w8a8_gemm_args &args, uint32_t columns,
                                          const row_numbers &rows, const sum_of_kind<kind> *sums,
                                          float (&values)[4])
{
    if constexpr (kind == W8A8_INT8) {
        uint2 zeros = ld_shared_v2(columns + column_offsets::zero);
        uint2 code_sums = ld_shared_v2(columns + column_offsets::code_sum);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            column one = {};
            one.zero = static_cast<int32_t>(i % 2 == 0 ? zeros.x : zeros.y);
            one.code_sum = static_cast<int32_t>(i % 2 == 0 ? code_sums.x : code_sums.y);
            values[i] = __int2float_rn(
                without_zeros(args, one, rows.zeros[i / 2], rows.sums[i / 2], sums[i]));
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            values[i] = sums[i];
        }
    }
}

/* A pair of columns of both rows, finished in the contract's order: w8a8_finish.cuh. */
template <w8a8_kind kind>
__device__ __forceinline__ void finish_pair(const w8a8_gemm_args &args, uint32_t i_column,
                                            const row_numbers &rows, const sum_of_kind<kind> *sums,
                                            float (&values)[4])
{
    uint32_t columns = shared_base() + shared_map::columns + 4 * i_column;
    values_of<kind>(args, columns, rows, sums, values);
    float2 scale = {1.0f, 1.0f};
    if constexpr (kind != W8A8_FP8_GROUP) {
        scale = read_pair(columns + column_offsets::scale);
    }
    float2 bias = read_pair(columns + column_offsets::bias);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float value = values[i];
        if constexpr (kind != W8A8_FP8_GROUP) {
            value = __fmul_rn(value, i % 2 == 0 ? scale.x : scale.y);
        }
        value = __fmul_rn(value, rows.scales[i / 2]);
        values[i] = __fadd_rn(value, i % 2 == 0 ? bias.x : bias.y);
    }
}

/* ---- out ---- */

/* Where a warp's part of a tile goes. */
struct y_part {
    uint32_t first_m;  /* of 16 rows */
    uint32_t first_n;  /* of part_n columns */
    uint32_t i_column; /* the same, in the tile */
};

__device__ __forceinline__ uint32_t y_room(const consumer &at)
{
    return shared_base() + shared_map::y + own_warp() * y_room_bytes;
}

/* ---- the usual way: 64 columns that are there, rows aligned, no column scales ---- */

template <w8a8_kind kind, typename y_type>
__device__ __forceinline__ void stage_part(const w8a8_gemm_args &args, const consumer &at,
                                           const y_part &part, const row_numbers &rows,
                                           const sum_of_kind<kind> *sums)
{
    uint32_t i_row = own_lane() % 16;
    uint32_t to = y_room(at) + i_row * 128;
#pragma unroll
    for (uint32_t j = 0; j < part_n / 8; j += 2) {
        uint32_t v[4];
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            float values[4];
            finish_pair<kind>(args, part.i_column + 8 * (j + i) + own_lane() % 4 * 2, rows,
                              sums + 4 * (j + i), values);
            v[2 * i] = narrow_pair(values[0], values[1], y_type());
            v[2 * i + 1] = narrow_pair(values[2], values[3], y_type());
        }
        stmatrix_x4(to + ((j + own_lane() / 16) ^ i_row % 8) * 16, v);
    }
}

/* What lies in a warp's room, to y: four rows at a time. */
__device__ __forceinline__ void store_staged(const w8a8_gemm_args &args, const consumer &at,
                                             const y_part &part)
{
    uint32_t i_row = own_lane() / 8, i_chunk = own_lane() % 8;
    uint8_t *to =
        static_cast<uint8_t *>(y_row(args, part.first_m + i_row)) + part.first_n * 2 + i_chunk * 16;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++, i_row += 4, to += 4 * args.y_stride_bytes) {
        if (part.first_m + i_row < args.m) {
            *reinterpret_cast<uint4 *>(to) =
                ld_shared_v4(y_room(at) + i_row * 128 + (i_chunk ^ i_row % 8) * 16);
        }
    }
}

template <w8a8_kind kind>
__device__ __forceinline__ void store_floats(const w8a8_gemm_args &args, const consumer &at,
                                             const y_part &part, const row_numbers &rows,
                                             const sum_of_kind<kind> *sums)
{
    uint32_t i_m = part.first_m + own_lane() / 4;
    uint8_t *to =
        static_cast<uint8_t *>(y_row(args, i_m)) + (part.first_n + own_lane() % 4 * 2) * 4;
#pragma unroll
    for (uint32_t j = 0; j < part_n / 8; j++, to += 32) {
        float values[4];
        finish_pair<kind>(args, part.i_column + 8 * j + own_lane() % 4 * 2, rows, sums + 4 * j,
                          values);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            values[i] = values[i] == values[i] ? values[i] : __int_as_float(0x7fc00000);
        }
        if (i_m < args.m) {
            *reinterpret_cast<float2 *>(to) = {values[0], values[1]};
        }
        if (i_m + 8 < args.m) {
            *reinterpret_cast<float2 *>(to + 8 * args.y_stride_bytes) = {values[2], values[3]};
        }
    }
}

/* ---- any way: element by element ---- */

template <w8a8_kind kind>
__device__ __forceinline__ void store_one(const w8a8_gemm_args &args, const column &one,
                                          uint32_t i_m, uint32_t i_n, uint32_t sum)
{
    float value;
    if constexpr (kind == W8A8_INT8) {
        int32_t x_sum = args.zeros != nullptr ? args.x.sums[i_m] : 0;
        value = __int2float_rn(
            without_zeros(args, one, args.x.zeros[i_m], x_sum, static_cast<int32_t>(sum)));
    } else {
        value = __uint_as_float(sum);
    }
    store(y_row(args, i_m), static_cast<dtype>(args.y_dtype), i_n,
          finish<kind>(args, one, args.x.scales[i_m], value));
}

/* 32 columns at a time, by a lane each. */
template <w8a8_kind kind>
__device__ __forceinline__ void store_each(const w8a8_gemm_args &args, const consumer &at,
                                           const y_part &part, const sum_of_kind<kind> *sums)
{
#pragma unroll
    for (uint32_t i_first = 0; i_first < part_n; i_first += 32) {
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t i_row = own_lane() / 4 + i / 2 % 2 * 8;
            uint32_t i_column = i / 4 * 8 + own_lane() % 4 * 2 + i % 2;
            uint32_t bits;
            memcpy(&bits, sums + i_first / 2 + i, sizeof(bits));
            st_shared(y_room(at) + i_row * 128 + i_column * 4, bits);
        }
        __syncwarp();
        uint32_t i_n = part.first_n + i_first + own_lane();
        const column one = column_of<kind>(args, min(i_n, args.n - 1));
#pragma unroll 1
        for (uint32_t i_row = 0; i_row < 16; i_row++) {
            uint32_t bits = ld_shared(y_room(at) + i_row * 128 + own_lane() * 4);
            if (part.first_m + i_row < args.m && i_n < args.n) {
                store_one<kind>(args, one, part.first_m + i_row, i_n, bits);
            }
        }
        __syncwarp();
    }
}

/* ---- a tile ---- */

__device__ __forceinline__ bool is_usual(const w8a8_gemm_args &args, const y_part &part)
{
    uint64_t odd_bytes = reinterpret_cast<uintptr_t>(args.prefill_y) | args.y_stride_bytes;
    return args.column_scales == nullptr && odd_bytes % 16 == 0 && part.first_n + part_n <= args.n;
}

template <w8a8_kind kind, typename y_type>
__device__ __forceinline__ void store_part(const w8a8_gemm_args &args, const consumer &at,
                                           const y_part &part, const row_numbers &rows,
                                           const sum_of_kind<kind> *sums)
{
    if (!is_usual(args, part)) {
        store_each<kind>(args, at, part, sums);
    } else if constexpr (sizeof(y_type) == 4) {
        store_floats<kind>(args, at, part, rows, sums);
    } else {
        stage_part<kind, y_type>(args, at, part, rows, sums);
        __syncwarp();
        store_staged(args, at, part);
        __syncwarp();
    }
}

/* All sums move to where those of the part before were. */
template <w8a8_kind kind> __device__ __forceinline__ void next_part(fragment<kind> &total)
{
    constexpr uint32_t n = n_columns_max / 2;
    constexpr uint32_t n_part = part_n / 2;
#pragma unroll
    for (uint32_t i = 0; i < n - n_part; i++) {
        total.sums[i] = total.sums[i + n_part];
    }
}

template <w8a8_kind kind, typename y_type>
__device__ __forceinline__ void store_as(const w8a8_gemm_args &args, const consumer &at,
                                         const tile &tile, const row_numbers &rows,
                                         fragment<kind> &total)
{
    y_part part = {tile.first_m + own_warp() * 16, tile.first_n, 0};
#pragma unroll 1
    while (part.i_column < tile.n_columns) {
        store_part<kind, y_type>(args, at, part, rows, total.sums);
        next_part<kind>(total);
        part.first_n += part_n;
        part.i_column += part_n;
    }
}

/* total is no more than room behind it. */
template <w8a8_kind kind>
__device__ __forceinline__ void store_tile(const w8a8_gemm_args &args, const consumer &at,
                                           const tile &tile, const row_numbers &rows,
                                           fragment<kind> &total)
{
    if (args.y_dtype == DTYPE_BF16) {
        store_as<kind, __nv_bfloat16>(args, at, tile, rows, total);
    } else if (args.y_dtype == DTYPE_F16) {
        store_as<kind, __half>(args, at, tile, rows, total);
    } else {
        store_as<kind, float>(args, at, tile, rows, total);
    }
}

} // namespace
