/* strip_finish.cuh - the partial sums of the strip kernel, and their end: they are added up, and y
 * is written. */
#pragma once

#include "kernels/cuda/strip_feed.cuh"
#include "kernels/cuda/strip_rows.cuh"

namespace {

/* Sums of a strip of the round: for each warp and 8 rows of x 32 lanes of 4 floats. place: this
 * lane's of its warp. */

/* What this warp has of a strip so far. */
template <int n_m8>
__device__ __forceinline__ void take(uint32_t place, bool is_first, float (&sums)[n_m8][4])
{
#pragma unroll
    for (int i = 0; i < n_m8; i++) {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (!is_first) {
            v = ld_shared_v4(place + i * 512);
        }
        sums[i][0] = __uint_as_float(v.x);
        sums[i][1] = __uint_as_float(v.y);
        sums[i][2] = __uint_as_float(v.z);
        sums[i][3] = __uint_as_float(v.w);
    }
}

template <int n_m8>
__device__ __forceinline__ void keep(uint32_t place, const float (&sums)[n_m8][4])
{
#pragma unroll
    for (int i = 0; i < n_m8; i++) {
        st_shared_v4(place + i * 512, make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]));
    }
}

/* An element of a round's y, one a thread, and where its sums lie among the floats of a strip. */
struct element {
    uint32_t i_strip;
    uint32_t i_row;
    uint32_t i_m;
    uint32_t place;
};

/* One or two rows of x: only places of rows that are there. More: place by place. */
template <int n_m8> __device__ __forceinline__ uint32_t elements_of_strip(uint32_t m)
{
    return m <= 2 ? STRIP_N * m : n_m8 * 128;
}

template <int n_m8> __device__ __forceinline__ element element_of(uint32_t i, uint32_t m)
{
    if (m <= 2) {
        uint32_t i_row = i % STRIP_N;
        uint32_t i_m = m == 1 ? 0 : i / STRIP_N % 2;
        return {i / STRIP_N / m, i_row, i_m, i_row % 8 * 16 + i_row / 8 * 2 + i_m};
    }
    uint32_t place = i % (n_m8 * 128);
    return {i / (n_m8 * 128), place / 16 % 8 + place / 2 % 2 * 8,
            place / 128 * 8 + place / 4 % 4 * 2 + place % 2, place};
}

/* A place's sum over the warps: each four in order, then these quarters. With all warps there,
 * which is the rule, every load is on its way before the first is used. */
__device__ __forceinline__ float sum_warps(const float *place, uint32_t stride, uint32_t n_warps)
{
    float total = 0;
    if (n_warps == STRIP_STEP_SLICES) {
        float all[STRIP_STEP_SLICES];
#pragma unroll
        for (int warp = 0; warp < STRIP_STEP_SLICES; warp++) {
            all[warp] = place[warp * stride];
        }
#pragma unroll
        for (int first = 0; first < STRIP_STEP_SLICES; first += 4) {
            total += ((all[first] + all[first + 1]) + all[first + 2]) + all[first + 3];
        }
        return total;
    }
    for (uint32_t first = 0; first < n_warps; first += 4) {
        float quarter = place[first * stride];
        for (uint32_t warp = first + 1; warp < min(first + 4, n_warps); warp++) {
            quarter += place[warp * stride];
        }
        total += quarter;
    }
    return total;
}

/* Add up each four warps, in order, then these quarters, and write y: an element a thread. */
template <typename traits, int n_m8>
__device__ __forceinline__ void finish(const strip_args &args, const gk_ahead *ahead,
                                       const strip_rows &rows, const warp_id &id, const float *sums,
                                       uint32_t first_strip, uint32_t n_strips)
{
    uint32_t m = n_rows_of(args, ahead, rows);
    uint32_t n = n_strips * elements_of_strip<n_m8>(m);
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        element one = element_of<n_m8>(i, m);
        const float *place = sums + one.i_strip * id.n_warps * n_m8 * 128 + one.place;
        float total = sum_warps(place, n_m8 * 128, id.n_warps);
        uint32_t i_strip = blockIdx.x + (first_strip + one.i_strip) * gridDim.x;
        uint32_t i_n = i_strip * STRIP_N + one.i_row;
        store_y<traits>(args, rows.y, m, i_n, one.i_m, total);
    }
}

} // namespace
