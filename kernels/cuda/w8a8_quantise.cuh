/* w8a8_quantise.cuh - rows of x to 8-bit codes, 16 elements along k at a time: a unit of a swizzled
 * tile. Eight lanes side by side share a group of 128. */
#pragma once

#include "kernels/cuda/any_values.cuh"
#include "kernels/cuda/quantise_rules.cuh"
#include "kernels/cuda/w8a8_place.cuh"

namespace {

constexpr uint32_t group_lanes = SWIZZLE_K / unit_k;

/* ---- reading ---- */

__device__ __forceinline__ void widen(const uint4 (&words)[2], dtype type, float (&values)[unit_k])
{
    const uint32_t *pairs = &words[0].x;
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        uint32_t bits = pairs[i / 2] >> i % 2 * 16 & 0xffffu;
        values[i] = type == DTYPE_BF16 ? __uint_as_float(bits << 16)
                                       : __half2float(__ushort_as_half((unsigned short)bits));
    }
}

/* Elements of a row from i_k on; 0 from k on. */
__device__ __forceinline__ void load_unit(const void *row, dtype type, uint32_t i_k, uint32_t k,
                                          float (&values)[unit_k])
{
    bool is_whole = i_k + unit_k <= k && reinterpret_cast<uintptr_t>(row) % 16 == 0;
    if (is_whole && type != DTYPE_F32) {
        const uint4 *from =
            reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(row) + i_k);
        uint4 words[2] = {from[0], from[1]};
        widen(words, type, values);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        values[i] = i_k + i < k ? load(row, type, i_k + i) : 0.0f;
    }
}

__device__ __forceinline__ uint4 load_codes(const void *row, uint32_t i_k, uint32_t k)
{
    const uint8_t *codes = static_cast<const uint8_t *>(row) + i_k;
    if (i_k + unit_k <= k && reinterpret_cast<uintptr_t>(codes) % 16 == 0) {
        return *reinterpret_cast<const uint4 *>(codes);
    }
    uint4 unit = {};
    uint32_t *words = &unit.x;
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        words[i / 4] |= i_k + i < k ? static_cast<uint32_t>(codes[i]) << i % 4 * 8 : 0u;
    }
    return unit;
}

/* ---- extents ---- */

__device__ __forceinline__ extent join(const extent &a, const extent &b)
{
    return {max(a.magnitude, b.magnitude), min(a.low, b.low), max(a.high, b.high)};
}

/* Over a run of lanes, aligned to their number. */
template <uint32_t n_lanes> __device__ __forceinline__ extent join_lanes(extent one)
{
#pragma unroll
    for (uint32_t i = 1; i < n_lanes; i *= 2) {
        extent other = {__shfl_xor_sync(0xffffffffu, one.magnitude, i),
                        __shfl_xor_sync(0xffffffffu, one.low, i),
                        __shfl_xor_sync(0xffffffffu, one.high, i)};
        one = join(one, other);
    }
    return one;
}

/* Schemes of e4m3 need magnitudes alone. */
__device__ __forceinline__ extent extent_of(const quantise_rule &rule,
                                            const float (&values)[unit_k])
{
    extent one = {0, 0, 0};
    if (rule.act <= FP8_GROUP) {
#pragma unroll
        for (uint32_t i = 0; i < unit_k; i++) {
            one.magnitude = max(one.magnitude, __float_as_int(values[i]) & MAGNITUDE_MASK);
        }
        return one;
    }
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        extend(one, values[i]);
    }
    return one;
}

/* ---- codes ---- */

/* Two at a time, of rows that have a scale of their own. */
__device__ __forceinline__ uint4 scaled_codes_of(const grid &grid, const float (&values)[unit_k])
{
    uint4 unit = {};
    uint32_t *words = &unit.x;
    divisor by = divisor_of(grid.scale);
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i += 2) {
        float2 pair = {copysignf(unsigned_quotient(values[i], by), values[i]),
                       copysignf(unsigned_quotient(values[i + 1], by), values[i + 1])};
        uint32_t codes = __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3);
        words[i / 4] |= codes << i % 4 * 8;
    }
    return unit;
}

__device__ __forceinline__ uint4 codes_of(const quantise_rule &rule, const grid &grid,
                                          const float (&values)[unit_k])
{
    if (rule.act == FP8_TOKEN || rule.act == FP8_GROUP) {
        return scaled_codes_of(grid, values);
    }
    uint4 unit = {};
    uint32_t *words = &unit.x;
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        uint32_t code = rule.act <= FP8_GROUP ? e4m3_code(grid, values[i])
                                              : static_cast<uint32_t>(static_cast<int32_t>(
                                                    int8_value(grid, values[i]) + grid.zero)) &
                                                    0xffu;
        words[i / 4] |= code << i % 4 * 8;
    }
    return unit;
}

__device__ __forceinline__ int32_t sum_of(const uint4 &unit)
{
    return __dp4a(static_cast<int>(unit.x), 0x01010101, 0) +
           __dp4a(static_cast<int>(unit.y), 0x01010101, 0) +
           __dp4a(static_cast<int>(unit.z), 0x01010101, 0) +
           __dp4a(static_cast<int>(unit.w), 0x01010101, 0);
}

__device__ __forceinline__ const void *row_of(const w8a8_lay_out_args &args, uint32_t i_row)
{
    const w8a8_prefill_x &prefill = args.prefill;
    return prefill.rows == nullptr ? args.rows[i_row] : prefill.rows + i_row * prefill.stride_bytes;
}

__device__ __forceinline__ const float *scales_of(const w8a8_lay_out_args &args, uint32_t i_row)
{
    const w8a8_prefill_x &prefill = args.prefill;
    return prefill.rows == nullptr ? args.scale_rows[i_row]
                                   : reinterpret_cast<const float *>(
                                         prefill.scale_rows + i_row * prefill.scale_stride_bytes);
}

/* Codes from k on stand for no element: they must be 0 bytes, not zero points. */
__device__ __forceinline__ uint4 cut(uint4 unit, uint32_t i_k, uint32_t k)
{
    if (i_k + unit_k <= k) {
        return unit;
    }
    uint8_t *bytes = reinterpret_cast<uint8_t *>(&unit);
#pragma unroll
    for (uint32_t i = 0; i < unit_k; i++) {
        bytes[i] = i_k + i < k ? bytes[i] : 0;
    }
    return unit;
}

__device__ __forceinline__ bool is_given(const w8a8_lay_out_args &args)
{
    return args.x_dtype == DTYPE_I8 || args.x_dtype == DTYPE_F8_E4M3;
}

/* A row's codes from i_k on, and the scale of their group: 1 where the kind has none. All lanes of
 * a warp come here; a lane whose place is not inside gets zeros. */
struct x_unit {
    uint4 codes;
    float scale;
};

__device__ __forceinline__ x_unit make_unit(const w8a8_lay_out_args &args, grid grid,
                                            uint32_t i_row, uint32_t i_k)
{
    bool is_inside = i_row < args.m && i_k < args.k;
    bool has_group_scale = args.rule.act == FP8_GROUP;
    x_unit unit = {{}, 1.0f};
    if (is_given(args)) {
        unit.codes = is_inside ? load_codes(row_of(args, i_row), i_k, args.k) : unit.codes;
        unit.scale = is_inside && has_group_scale ? scales_of(args, i_row)[i_k / SWIZZLE_K] : 1.0f;
        return unit;
    }
    float values[unit_k] = {};
    if (is_inside) {
        load_unit(row_of(args, i_row), static_cast<dtype>(args.x_dtype), i_k, args.k, values);
    }
    if (has_group_scale) {
        grid = grid_of(args.rule, join_lanes<group_lanes>(extent_of(args.rule, values)));
        unit.scale = is_inside ? grid.scale : 1.0f;
    }
    unit.codes = is_inside ? cut(codes_of(args.rule, grid, values), i_k, args.k) : unit.codes;
    return unit;
}

/* Must a row be read whole before its codes can be made? */
__device__ __forceinline__ bool has_row_extent(const w8a8_lay_out_args &args)
{
    return !is_given(args) && args.rule.act != FP8_GROUP && args.rule.act != FP8_TENSOR;
}

/* Scale and zero point of a row where that is not so. */
__device__ __forceinline__ grid known_grid(const w8a8_lay_out_args &args, uint32_t i_row)
{
    bool is_static = args.rule.act == FP8_TENSOR || args.rule.act == INT8_TENSOR;
    if (i_row >= args.m || args.rule.act == FP8_GROUP) {
        return {1.0f, 0.0f};
    }
    float zero = args.rule.act == INT8_TENSOR ? static_cast<float>(args.rule.act_zero) : 0.0f;
    return {is_static ? args.rule.act_scale : scales_of(args, i_row)[0], zero};
}

} // namespace
