/* w8a8_place.cuh - codes and scales of x to where those who multiply read them: w8a8_args.h. */
#pragma once

#include <cuda_fp8.h>

#include "kernels/cuda/w8a8_args.h"
#include "kernels/layout/swizzle.h"

namespace {

constexpr uint32_t unit_k = 16; /* elements along k that are stored at a time */

/* Where a row's unit lies in the stages, and the scale of its group. */
__device__ __forceinline__ uint8_t *unit_place(const w8a8_x &x, uint32_t i_row, uint32_t i_k)
{
    uint32_t i_block = i_k / SWIZZLE_K;
    uint32_t in_stage = i_block % x.stage_blocks * x.n_rows * SWIZZLE_K +
                        i_row / SWIZZLE_ROWS * SWIZZLE_ATOM_BYTES +
                        swizzle_byte_of(i_row % SWIZZLE_ROWS, i_k % SWIZZLE_K);
    return x.stages + static_cast<uint64_t>(i_block / x.stage_blocks) * x.stage_bytes + in_stage;
}

/* A unit where 4-bit codes are multiplied with it, in the order in which words of theirs hold k
 * (strip.h): words 0 and 2, then 1 and 3, lie side by side, and in each of them k 0, 2, 1 and 3. */
__device__ __forceinline__ void store_in_strip_order(const w8a8_x &x, uint32_t i_row, uint32_t i_k,
                                                     const uint4 &codes)
{
    constexpr uint32_t order = 0x3120;
    uint32_t block_k = i_k / 32 * 32, to = i_k % 32 / 2;
    uint8_t *even = unit_place(x, i_row, block_k) + to;
    uint8_t *odd = unit_place(x, i_row, block_k + unit_k) + to;
    *reinterpret_cast<uint2 *>(even) =
        make_uint2(__byte_perm(codes.x, 0, order), __byte_perm(codes.z, 0, order));
    *reinterpret_cast<uint2 *>(odd) =
        make_uint2(__byte_perm(codes.y, 0, order), __byte_perm(codes.w, 0, order));
}

__device__ __forceinline__ uint32_t halves_of(uint32_t pair)
{
    __half2_raw halves =
        __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
    return halves.x | static_cast<uint32_t>(halves.y) << 16;
}

/* A unit as f16, which holds every e4m3. */
__device__ __forceinline__ void store_values(const w8a8_x &x, uint32_t i_row, uint32_t i_k,
                                             const uint4 &codes)
{
    uint8_t *row = x.stages + static_cast<uint64_t>(i_row) * x.stage_bytes;
    uint4 *to = reinterpret_cast<uint4 *>(row + i_k * sizeof(uint16_t));
    to[0] = make_uint4(halves_of(codes.x), halves_of(codes.x >> 16), halves_of(codes.y),
                       halves_of(codes.y >> 16));
    to[1] = make_uint4(halves_of(codes.z), halves_of(codes.z >> 16), halves_of(codes.w),
                       halves_of(codes.w >> 16));
}

__device__ __forceinline__ void store_unit(const w8a8_lay_out_args &args, uint32_t i_row,
                                           uint32_t i_k, const uint4 &codes)
{
    if (args.form == W8A8_X_STRIPS) {
        store_in_strip_order(args.x, i_row, i_k, codes);
    } else if (args.form == W8A8_X_ROWS) {
        store_values(args.x, i_row, i_k, codes);
    } else {
        *reinterpret_cast<uint4 *>(unit_place(args.x, i_row, i_k)) = codes;
    }
}

__device__ __forceinline__ float *scale_place(const w8a8_x &x, uint32_t i_row, uint32_t i_block)
{
    uint8_t *stage = x.stages + static_cast<uint64_t>(i_block / x.stage_blocks) * x.stage_bytes;
    float *scales = reinterpret_cast<float *>(stage + x.stage_blocks * x.n_rows * SWIZZLE_K);
    return scales + i_block % x.stage_blocks * x.n_rows + i_row;
}

} // namespace
