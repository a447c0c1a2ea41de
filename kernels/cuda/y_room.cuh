/* y_room.cuh - y on its way out by way of shared memory, so that a row's 64 columns are whole
 * lines, in w4a8_prefill.cu and strip_prefill.cu: a warpgroup puts what wgmma leaves it of 64
 * columns by some rows into a room of its own, and copies it out as it lies.
 *
 * A row is 128 bytes of 16-bit elements, or 256 of f32. Chunks of 16 bytes lie exclusive-or-ed with
 * their row, which spreads them over the banks. */
#pragma once

#include "kernels/cuda/ptx.cuh"

namespace {

template <int elem_bytes>
__device__ __forceinline__ uint32_t staged_chunk(uint32_t i_row, uint32_t i)
{
    return elem_bytes == 2 ? i ^ i_row % 8 : i ^ i_row / 2 % 4 * 2;
}

/* 2 n rows of 16-bit elements, by warp i_warp of the four; pair_of() narrows two rows' sums. */
template <int n, typename narrowing>
__device__ __forceinline__ void stage_pairs(uint32_t room, uint32_t i_warp, const float (&sums)[n],
                                            narrowing &&pair_of)
{
    uint32_t i_matrix = lane_id() / 8;
    uint32_t i_row = lane_id() % 8;
    uint32_t i_chunk = 2 * i_warp + i_matrix % 2;
    uint32_t to = room + (8 * (i_matrix / 2) + i_row) * 128 + staged_chunk<2>(i_row, i_chunk) * 16;
#pragma unroll
    for (int i = 0; i < n / 8; i++) {
        uint32_t v[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[j] = pair_of(sums[8 * i + 2 * j], sums[8 * i + 2 * j + 1]);
        }
        stmatrix_x4_trans(to + i * 16 * 128, v);
    }
}

/* 2 n rows of f32, likewise. */
template <int n, typename conversion>
__device__ __forceinline__ void stage_words(uint32_t room, uint32_t i_warp, const float *sums,
                                            conversion &&bits_of)
{
    uint32_t g = lane_id() / 4;
    uint32_t t = lane_id() % 4;
#pragma unroll
    for (int i = 0; i < n; i++) {
        uint32_t i_row = i / 4 * 8 + 2 * t + i % 2;
        uint32_t column = i_warp * 16 + g + i % 4 / 2 * 8;
        st_shared(room + i_row * 256 + staged_chunk<4>(i_row, column / 4) * 16 + column % 4 * 4,
                  bits_of(sums[i]));
    }
}

/* Where a warpgroup's 64 columns go. */
struct y_columns {
    void *y;
    uint64_t stride_bytes;
    uint32_t m; /* rows there are */
    uint32_t n; /* columns there are */
    uint32_t first_n;
};

/* Are they all there, and rows aligned for copies of 16 bytes? */
__device__ __forceinline__ bool is_whole(const y_columns &to)
{
    return (reinterpret_cast<uintptr_t>(to.y) | to.stride_bytes) % 16 == 0 &&
           to.first_n + 64 <= to.n;
}

/* 16 bytes of a row, where they do not all belong to it or lie askew. */
template <int elem_bytes>
__device__ __forceinline__ void store_elements(uint8_t *row, uint32_t column, uint32_t n,
                                               const uint4 &v)
{
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (uint32_t i = 0; i < 16 / elem_bytes; i++) {
        if (column + i < n && elem_bytes == 4) {
            reinterpret_cast<uint32_t *>(row)[column + i] = words[i % 4];
        } else if (column + i < n) {
            reinterpret_cast<uint16_t *>(row)[column + i] =
                static_cast<uint16_t>(words[i / 2 % 4] >> i % 2 * 16);
        }
    }
}

/* n_bytes of the room, rows from first_m on, by thread i_thread of 128. */
template <uint32_t n_bytes, int elem_bytes>
__device__ __forceinline__ void copy_out(const y_columns &to, bool is_whole, uint32_t room,
                                         uint32_t first_m, uint32_t i_thread)
{
    constexpr uint32_t n_row_chunks = 4 * elem_bytes;
#pragma unroll 1
    for (uint32_t i = i_thread; i < n_bytes / 16; i += 128) {
        uint32_t i_row = i / n_row_chunks;
        uint32_t i_chunk = i % n_row_chunks;
        if (first_m + i_row >= to.m) {
            return;
        }
        uint4 v = ld_shared_v4(room + i_row * n_row_chunks * 16 +
                               staged_chunk<elem_bytes>(i_row, i_chunk) * 16);
        uint8_t *row = static_cast<uint8_t *>(to.y) + (first_m + i_row) * to.stride_bytes;
        uint32_t column = to.first_n + i_chunk * 16 / elem_bytes;
        if (is_whole) {
            *reinterpret_cast<uint4 *>(row + column * elem_bytes) = v;
        } else {
            store_elements<elem_bytes>(row, column, to.n, v);
        }
    }
}

} // namespace
