/* w8a8_held_rows.cuh - rows of x in f16 or bf16 to codes by scales of their largest elements: what
 * w8a8_x.cu does, for what most launches are.
 *
 * A thread block has a row, or where groups of it have scales of their own a part of one, and reads
 * it once: all of it is on its way before any of it is looked at, and stays in registers until the
 * scale is known. Magnitudes are compared two at a time, as integers, and signs go to the codes as
 * they are, so that few instructions are left for an element; a launch of many rows is bound by
 * them. */
#pragma once

#include "kernels/cuda/div_up.cuh"
#include "kernels/cuda/overlap_launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/w8a8_quantise.cuh"

namespace {

/* Elements of a unit, as they lie in memory. */
struct held_unit {
    uint32_t words[unit_k / 2];
};

/* ---- reading ---- */

/* Elements from k on are zeros. */
__device__ __forceinline__ held_unit hold(const void *row, uint32_t i_k, uint32_t k)
{
    const uint16_t *from = static_cast<const uint16_t *>(row) + i_k;
    held_unit unit = {};
    if (i_k + unit_k <= k && reinterpret_cast<uintptr_t>(row) % 16 == 0) {
        uint4 first = reinterpret_cast<const uint4 *>(from)[0];
        uint4 last = reinterpret_cast<const uint4 *>(from)[1];
        return {first.x, first.y, first.z, first.w, last.x, last.y, last.z, last.w};
    }
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        unit.words[i / 2] |= (i_k + i < k ? static_cast<uint32_t>(from[i]) : 0u) << i % 2 * 16;
    }
    return unit;
}

/* ---- scales ---- */

/* The largest magnitude of each half of the words, none of which is NaN unless it is. */
__device__ __forceinline__ uint32_t magnitudes_of(const held_unit &unit, uint32_t most)
{
#pragma unroll
    for (uint32_t word : unit.words) {
        most = __vmaxu2(most, word & 0x7fff7fffu);
    }
    return most;
}

/* The larger half, in f32's bits. */
__device__ __forceinline__ int magnitude_of(uint32_t magnitudes, dtype type)
{
    uint32_t bits = max(magnitudes & 0xffffu, magnitudes >> 16);
    return type == DTYPE_BF16
               ? static_cast<int>(bits << 16)
               : __float_as_int(__half2float(__ushort_as_half((unsigned short)bits)));
}

/* Over a run of lanes, aligned to their number; over all of the thread block. */
template <uint32_t n_lanes> __device__ __forceinline__ uint32_t most_of_lanes(uint32_t most)
{
#pragma unroll
    for (uint32_t i = 1; i < n_lanes; i *= 2) {
        most = __vmaxu2(most, __shfl_xor_sync(0xffffffffu, most, i));
    }
    return most;
}

template <uint32_t n_threads> __device__ __forceinline__ uint32_t most_of_block(uint32_t most)
{
    __shared__ uint32_t of_warps[n_threads / 32];
    most = most_of_lanes<32>(most);
    if (threadIdx.x % 32 == 0) {
        of_warps[threadIdx.x / 32] = most;
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < n_threads / 32; i++) {
        most = __vmaxu2(most, of_warps[i]);
    }
    return most;
}

__device__ __forceinline__ float held_scale(const w8a8_lay_out_args &args, uint32_t magnitudes)
{
    int magnitude = magnitude_of(magnitudes, static_cast<dtype>(args.x_dtype));
    return grid_of(args.rule, {magnitude, 0, 0}).scale;
}

/* ---- codes ---- */

__device__ __forceinline__ float2 widen_pair(uint32_t word, dtype type)
{
    if (type == DTYPE_BF16) {
        return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
    }
    return {__half2float(__ushort_as_half((unsigned short)word)),
            __half2float(__ushort_as_half((unsigned short)(word >> 16)))};
}

__device__ __forceinline__ float2 quotients_of(uint32_t word, dtype type, const divisor &by)
{
    float2 pair = widen_pair(word, type);
    return {unsigned_quotient(pair.x, by), unsigned_quotient(pair.y, by)};
}

/* Of four elements. The sign of a quotient is that of its element, and NaN, which the scale is
 * then too, has none. */
__device__ __forceinline__ uint32_t e4m3_codes(uint32_t first, uint32_t second, dtype type,
                                               const divisor &by)
{
    uint32_t low =
        __nv_cvt_float2_to_fp8x2(quotients_of(first, type, by), __NV_SATFINITE, __NV_E4M3);
    uint32_t high =
        __nv_cvt_float2_to_fp8x2(quotients_of(second, type, by), __NV_SATFINITE, __NV_E4M3);
    uint32_t signs = __byte_perm(first, second, 0x7531) & by.signs;
    return __byte_perm(low, high, 0x5410) | signs;
}

__device__ __forceinline__ uint32_t int8_codes(uint32_t first, uint32_t second, dtype type,
                                               const divisor &by)
{
    float2 low = quotients_of(first, type, by), high = quotients_of(second, type, by);
    uint32_t pair = __byte_perm(__float2int_rn(low.x), __float2int_rn(low.y), 0x0040);
    uint32_t other = __byte_perm(__float2int_rn(high.x), __float2int_rn(high.y), 0x0040);
    return __byte_perm(pair, other, 0x5410);
}

template <bool is_int8>
__device__ __forceinline__ uint4 held_codes(const held_unit &unit, dtype type, float scale)
{
    divisor by = divisor_of(scale);
    uint32_t codes[unit_k / 4];
#pragma unroll
    for (uint32_t i = 0; i < unit_k / 4; i++) {
        uint32_t first = unit.words[2 * i], second = unit.words[2 * i + 1];
        codes[i] =
            is_int8 ? int8_codes(first, second, type, by) : e4m3_codes(first, second, type, by);
    }
    return make_uint4(codes[0], codes[1], codes[2], codes[3]);
}

/* ---- the kernel ---- */

template <uint32_t n_threads, uint32_t n_units>
__device__ __forceinline__ float block_scale(const w8a8_lay_out_args &args,
                                             const held_unit (&units)[n_units])
{
    uint32_t most = 0;
#pragma unroll
    for (uint32_t i = 0; i < n_units; i++) {
        most = magnitudes_of(units[i], most);
    }
    return held_scale(args, most_of_block<n_threads>(most));
}

/* All lanes of a warp come here. */
template <bool is_int8>
__device__ __forceinline__ void lay_out_unit(const w8a8_lay_out_args &args, const held_unit &unit,
                                             float scale, uint32_t i_k)
{
    uint32_t i_row = blockIdx.y;
    if (args.rule.act == FP8_GROUP && i_row < args.m) {
        scale = held_scale(args, most_of_lanes<group_lanes>(magnitudes_of(unit, 0)));
    }
    if (i_k >= div_up(args.k, SWIZZLE_K) * SWIZZLE_K) {
        return;
    }
    uint4 codes = held_codes<is_int8>(unit, static_cast<dtype>(args.x_dtype), scale);
    store_unit(args, i_row, i_k, cut(codes, i_k, args.k));
    if (args.kind == W8A8_FP8_GROUP && i_k % SWIZZLE_K == 0) {
        *scale_place(args.x, i_row, i_k / SWIZZLE_K) = args.rule.act == FP8_GROUP ? scale : 1.0f;
    }
}

template <bool is_int8, uint32_t n_threads, uint32_t n_units>
__global__ void __launch_bounds__(n_threads)
    lay_out_held_rows(const __grid_constant__ w8a8_lay_out_args args)
{
    constexpr uint32_t step = n_threads * unit_k;
    uint32_t i_row = blockIdx.y;
    uint32_t first_k = blockIdx.x * n_units * step + threadIdx.x * unit_k;
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    held_unit units[n_units] = {};
    float scale = 1.0f; /* of rows that are not there, too */
    if (i_row < args.m) {
#pragma unroll
        for (uint32_t i = 0; i < n_units; i++) {
            units[i] = hold(row_of(args, i_row), first_k + i * step, args.k);
        }
        scale = args.rule.act == FP8_GROUP ? 1.0f : block_scale<n_threads>(args, units);
    }
#pragma unroll
    for (uint32_t i = 0; i < n_units; i++) {
        lay_out_unit<is_int8>(args, units[i], scale, first_k + i * step);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        args.x.scales[i_row] = scale;
        args.x.zeros[i_row] = 0;
    }
}

/* ---- launching ---- */

using held_function = void (*)(w8a8_lay_out_args);

struct held_instance {
    uint32_t n_threads, n_units;
    held_function e4m3, int8;
};

#define HELD_INSTANCE(n_threads, n_units)                                                          \
    {                                                                                              \
        n_threads, n_units, lay_out_held_rows<false, n_threads, n_units>,                          \
            lay_out_held_rows<true, n_threads, n_units>                                            \
    }

/* By the k that they hold. */
const held_instance held_instances[] = {HELD_INSTANCE(256, 1), HELD_INSTANCE(256, 2),
                                        HELD_INSTANCE(512, 4)};

uint32_t held_k_of(const held_instance &one)
{
    return one.n_threads * one.n_units * unit_k;
}

bool are_held(const w8a8_lay_out_args &args)
{
    uint32_t act = args.rule.act;
    bool is_by_largest = act == FP8_TOKEN || act == FP8_GROUP || act == INT8_TOKEN;
    bool is_half = args.x_dtype == DTYPE_F16 || args.x_dtype == DTYPE_BF16;
    return is_by_largest && is_half && !args.has_sums;
}

/* A row that shares a scale is all one thread block's; the first instance is for parts of others.
 * NULL: none is for such x. */
const held_instance *find_held_instance(const w8a8_lay_out_args &args)
{
    if (!are_held(args)) {
        return nullptr;
    }
    for (const held_instance &one : held_instances) {
        if (args.rule.act == FP8_GROUP || args.k <= held_k_of(one)) {
            return &one;
        }
    }
    return nullptr;
}

cudaError_t load_held_instances()
{
    struct cudaFuncAttributes attributes;
    cudaError_t r = cudaSuccess;
    for (const held_instance &one : held_instances) {
        r = r != cudaSuccess ? r : cudaFuncGetAttributes(&attributes, one.e4m3);
        r = r != cudaSuccess ? r : cudaFuncGetAttributes(&attributes, one.int8);
    }
    return r;
}

} // namespace
