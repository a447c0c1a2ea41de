/* strip_gemm.cu - weight-only integer GEMM for few rows of x (m <= 16), sm_80 and later.
 *
 *   y[i, j] = sum_g scale[j, g] * sum_{k in g} x[i, k] * (code[j, k] - zero[j, g])
 *
 * At these sizes the weight is read once and everything else must hide behind that. So:
 *
 * Operands. Weights are the A operand of mma.m16n8k16 (16 rows of W), x is B (8 rows of x; two of
 * them for m > 8). x stays in registers: a warp loads the B fragments of its 256 k once a step,
 * straight from the rows as they lie in memory; the layout (strip.h) permutes k to allow it.
 *
 * Work. A CTA owns whole strips of 16 rows, dealt out in turn (strip = cta + i * grid), so that all
 * SMs read one moving window. k is split over the warps (256 each, 4096 a step) and over time.
 * There is no split over CTAs: the order of additions depends on k alone.
 *
 * Feed. Each lane copies its own 16-byte words into its own places of shared memory with cp.async,
 * two strips ahead, and reads back only what it copied: no barrier of any kind in the loop.
 *
 * Sums (bits of y): a group of 128 k or less is one chain of mma in k order, from
 * -(offset + zero) * sum(x), where offset is what the dequantised codes carry; then
 * s = fma(acc, scale, s) over the groups of a slice; a warp adds its slices over the steps in its
 * own place of shared memory; warps are added in order; then column scale, bias, rounding.
 *
 * Dequantisation, 8 codes in 4 LOP3 and 3 shifts. bf16: a nibble masked into the mantissa of 16.0
 * is 16 + code. f16: left alone it is the subnormal code * 2^-21, exact, without an offset; the sum
 * is scaled back at the end.
 *
 * Infinities and NaN in x make every element of that row of y NaN: the offset's sum turns an
 * infinity into NaN.
 *
 * Shared memory: n_stages x warp x (2 KiB codes + scales + zeros), then a round's partial sums,
 * strip x warp x 512 bytes for each 8 rows of x. When a CTA's strips do not fit, they go in rounds,
 * each loading x again. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "ipc/base/dtype.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/strip_gemm.h"
#include "kernels/layout/strip.h"

namespace {

constexpr int n_stages = 3; /* 64 KiB in flight an SM; a fourth measures slower */
constexpr int n_units = STRIP_SLICE_K / STRIP_UNIT_K;
constexpr int n_tiles_k = STRIP_SLICE_K / 16; /* mma steps of a slice */

/* ---- element types -----------------------------------------------------------------------------
 */

/* magic: what a masked nibble is or-ed with; offset_ones: a pair of the factor by which sum(x)
 * enters a group for the symmetric zero point; offset: what a code carries beside itself, in units
 * of unit. */
struct traits_bf16 {
    static constexpr uint32_t magic = 0x41804180u;           /* 16.0 */
    static constexpr uint32_t minus_symmetric = 0xc1c0c1c0u; /* -(16 + 8) */
    static constexpr uint32_t one = 0x3f803f80u;
    static constexpr float offset = 16.0f;
    static constexpr float unit = 1.0f;
    static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2])
    {
        mma_m16n8k16_bf16(d, a, b);
    }
};

struct traits_f16 {
    static constexpr uint32_t magic = 0;                     /* subnormal: code * 2^-21 */
    static constexpr uint32_t minus_symmetric = 0x80408040u; /* -8 * 2^-21 */
    static constexpr uint32_t one = 0x3c003c00u;
    static constexpr float offset = 0.0f;
    static constexpr float unit = 0x1p-21f;
    static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2])
    {
        mma_m16n8k16_f16(d, a, b);
    }
};

/* The A fragment of a word of the layout. */
template <typename traits> __device__ __forceinline__ void dequant(uint32_t word, uint32_t (&a)[4])
{
    constexpr uint32_t mask = 0x00780078u;
    a[0] = lop3_and_or<mask, traits::magic>(word);
    a[1] = lop3_and_or<mask, traits::magic>(word >> 4);
    a[2] = lop3_and_or<mask, traits::magic>(word >> 8);
    a[3] = lop3_and_or<mask, traits::magic>(__funnelshift_r(word, word, 12));
}

__device__ __forceinline__ float2 widen_pair(uint32_t pair, bool is_bf16)
{
    if (is_bf16) {
        return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    }
    return __half22float2(*reinterpret_cast<const __half2 *>(&pair));
}

__device__ float load_elem(const void *array, uint32_t dtype, uint32_t index)
{
    if (dtype == DTYPE_F32) {
        return static_cast<const float *>(array)[index];
    }
    if (dtype == DTYPE_F16) {
        return __half2float(static_cast<const __half *>(array)[index]);
    }
    return __bfloat162float(static_cast<const __nv_bfloat16 *>(array)[index]);
}

/* Every NaN becomes the canonical quiet one of its type. */
__device__ void store_elem(void *array, uint32_t dtype, uint32_t index, float value)
{
    bool is_nan = value != value;
    if (dtype == DTYPE_F32) {
        static_cast<float *>(array)[index] = is_nan ? __uint_as_float(0x7fc00000u) : value;
        return;
    }
    uint16_t bits = dtype == DTYPE_F16 ? __half_as_ushort(__float2half_rn(value))
                                       : __bfloat16_as_ushort(__float2bfloat16_rn(value));
    uint16_t nan = dtype == DTYPE_F16 ? 0x7e00u : 0x7fc0u;
    static_cast<uint16_t *>(array)[index] = is_nan ? nan : bits;
}

/* ---- who does what -----------------------------------------------------------------------------
 */

struct warp_id {
    uint32_t warp;
    uint32_t n_warps;
    uint32_t lane;
    uint32_t g; /* row of the fragment, and row of x */
    uint32_t t; /* place in the quad */
};

__device__ __forceinline__ warp_id this_warp()
{
    uint32_t lane = threadIdx.x % 32;
    return {threadIdx.x / 32, blockDim.x / 32, lane, lane / 4, lane % 4};
}

__device__ __forceinline__ uint32_t own_strips(const strip_args &args)
{
    return args.n_own_min + (blockIdx.x < args.n_own_extra ? 1 : 0);
}

/* Slices of a step, which is also how many warps work in it. */
__device__ __forceinline__ uint32_t step_slices(const strip_args &args, uint32_t i_step)
{
    return min(STRIP_STEP_SLICES, args.n_slices - i_step * STRIP_STEP_SLICES);
}

/* ---- the feed ----------------------------------------------------------------------------------
 */

/* Sizes of a record, and of its copy in a stage: each lane has scales and zero points of its own.
 */
template <int n_groups, bool has_zeros> struct sizes {
    static constexpr uint32_t lane_scales = 4 * n_groups;
    static constexpr uint32_t lane_zeros = has_zeros ? 2 * n_groups : 0;
    static constexpr uint32_t slice = STRIP_CODES_BYTES + 8 * (lane_scales + lane_zeros);
    static constexpr uint32_t stage = STRIP_CODES_BYTES + 32 * (lane_scales + lane_zeros);
};

/* Where the next copy comes from: rounds, steps within a round, strips within a step. */
struct cursor {
    const uint8_t *codes; /* this lane's */
    const uint8_t *scales;
    const uint8_t *zeros;
    uint32_t stride_bytes; /* to the next own strip */
    uint32_t n_left;       /* strips of this step and round; 0: all is copied */
    uint32_t i_step;
    uint32_t first_strip; /* of the round, counted in own strips */
};

template <int n_groups, bool has_zeros>
__device__ __forceinline__ void cursor_seek(const strip_args &args, const warp_id &id, cursor &at)
{
    using size = sizes<n_groups, has_zeros>;
    uint32_t n = step_slices(args, at.i_step);
    uint32_t whole_bytes = strip_align(STRIP_STEP_SLICES * size::slice);
    uint32_t record_bytes = strip_align(n * size::slice);
    uint64_t strip = blockIdx.x + static_cast<uint64_t>(at.first_strip) * gridDim.x;
    const uint8_t *record = args.records +
                            static_cast<uint64_t>(at.i_step) * args.n_strips * whole_bytes +
                            strip * record_bytes;
    at.codes = record + id.warp * STRIP_CODES_BYTES + id.lane * 16;
    at.scales = record + n * STRIP_CODES_BYTES + (id.warp * 8 + id.g) * size::lane_scales;
    at.zeros = record + n * (STRIP_CODES_BYTES + 8 * size::lane_scales) +
               (id.warp * 8 + id.g) * size::lane_zeros;
    at.stride_bytes = gridDim.x * record_bytes;
    at.n_left = min(args.n_round_strips, own_strips(args) - at.first_strip);
}

/* To the next step this warp has a slice in, or to the next round, or to the end. */
template <int n_groups, bool has_zeros>
__device__ __forceinline__ void cursor_turn(const strip_args &args, const warp_id &id, cursor &at)
{
    at.i_step++;
    if (at.i_step * STRIP_STEP_SLICES + id.warp >= args.n_slices) {
        at.i_step = 0;
        at.first_strip += args.n_round_strips;
    }
    if (at.first_strip < own_strips(args)) {
        cursor_seek<n_groups, has_zeros>(args, id, at);
    }
}

/* This lane's scales and zero points in a stage. Eight scales are two vectors, 512 bytes apart. */
template <int n_groups>
__device__ __forceinline__ uint32_t scales_of(uint32_t stage, const warp_id &id)
{
    constexpr int lane_bytes = n_groups == 8 ? 16 : 4 * n_groups;
    return stage + STRIP_CODES_BYTES + id.lane * lane_bytes - id.lane * 16;
}

template <int n_groups>
__device__ __forceinline__ uint32_t zeros_of(uint32_t stage, const warp_id &id)
{
    return stage + STRIP_CODES_BYTES + 32 * 4 * n_groups + id.lane * 2 * n_groups - id.lane * 16;
}

/* One strip's slice into a stage (the address of this lane's first word there). Always one group of
 * copies, empty at the end, so that waiting can count. */
template <int n_groups, bool has_zeros>
__device__ __forceinline__ void fetch(const strip_args &args, const warp_id &id, cursor &at,
                                      uint32_t stage)
{
    using size = sizes<n_groups, has_zeros>;
    if (at.n_left > 0) {
#pragma unroll
        for (int i_unit = 0; i_unit < n_units; i_unit++) {
            cp_async<16>(stage + i_unit * STRIP_UNIT_BYTES, at.codes + i_unit * STRIP_UNIT_BYTES);
        }
        if constexpr (size::lane_scales <= 16) {
            cp_async<size::lane_scales>(scales_of<n_groups>(stage, id), at.scales);
        } else {
            cp_async<16>(scales_of<n_groups>(stage, id), at.scales);
            cp_async<16>(scales_of<n_groups>(stage, id) + 512, at.scales + 16);
        }
        if constexpr (has_zeros) {
            cp_async<size::lane_zeros>(zeros_of<n_groups>(stage, id), at.zeros);
            at.zeros += at.stride_bytes;
        }
        at.codes += at.stride_bytes;
        at.scales += at.stride_bytes;
        if (--at.n_left == 0) {
            cursor_turn<n_groups, has_zeros>(args, id, at);
        }
    }
    cp_async_commit();
}

/* ---- x -----------------------------------------------------------------------------------------
 */

/* The B fragments of a slice, and for each group the factors with which it starts: for symmetric
 * weights -(offset + zero) * sum(x), else sum(x); columns 2t and 2t + 1 of the fragment. */
template <int n_groups> struct x_slice {
    uint32_t fragments[n_tiles_k][2];
    float starts[n_groups][2];
};

template <int n_groups>
__device__ __forceinline__ void set_block(x_slice<n_groups> &x, int i_block, const uint4 &v)
{
    x.fragments[2 * i_block][0] = v.x;
    x.fragments[2 * i_block][1] = v.y;
    x.fragments[2 * i_block + 1][0] = v.z;
    x.fragments[2 * i_block + 1][1] = v.w;
}

/* Eight elements of a row of x from position i_k on, through the permutation; zeros beyond the end.
 */
__device__ __noinline__ uint4 gather_x8(const strip_args &args, const uint16_t *row, uint32_t i_k)
{
    uint32_t pairs[4] = {0, 0, 0, 0};
    for (uint32_t i = 0; i < 8; i++) {
        if (row != nullptr && i_k + i < args.k) {
            uint32_t from = args.perm != nullptr ? args.perm[i_k + i] : i_k + i;
            pairs[i / 2] |= static_cast<uint32_t>(row[from]) << 16 * (i % 2);
        }
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

/* Rows that start on 16 bytes and need no permutation come as vectors, all loads in flight at once.
 */
template <int n_groups>
__device__ __forceinline__ void load_fragments(const strip_args &args, const warp_id &id,
                                               uint32_t i_slice, uint32_t first_m,
                                               x_slice<n_groups> &x)
{
    uint32_t i_m = first_m + id.g;
    const uint16_t *row = static_cast<const uint16_t *>(i_m < args.m ? args.x_rows[i_m] : nullptr);
    uint32_t first_k = i_slice * STRIP_SLICE_K + 8 * id.t;
    bool is_vector = args.perm == nullptr && reinterpret_cast<uintptr_t>(row) % 16 == 0 &&
                     (i_slice + 1) * STRIP_SLICE_K <= args.k;
    if (__all_sync(0xffffffffu, is_vector)) {
#pragma unroll
        for (int i = 0; i < n_tiles_k / 2; i++) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (row != nullptr) {
                v = *reinterpret_cast<const uint4 *>(row + first_k + 32 * i);
            }
            set_block(x, i, v);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < n_tiles_k / 2; i++) {
        set_block(x, i, gather_x8(args, row, first_k + 32 * i));
    }
}

template <typename traits, int n_groups, bool has_zeros>
__device__ __forceinline__ void sum_groups(x_slice<n_groups> &x)
{
    constexpr uint32_t factor = has_zeros ? traits::one : traits::minus_symmetric;
    constexpr int n_tiles = n_tiles_k / n_groups;
    const uint32_t factors[4] = {factor, factor, factor, factor};
    float sums[n_groups][2][4] = {}; /* two short chains instead of a long one */
#pragma unroll
    for (int i = 0; i < n_tiles; i++) {
#pragma unroll
        for (int i_group = 0; i_group < n_groups; i_group++) {
            traits::mma(sums[i_group][i % 2], factors, x.fragments[i_group * n_tiles + i]);
        }
    }
#pragma unroll
    for (int i_group = 0; i_group < n_groups; i_group++) {
        x.starts[i_group][0] = sums[i_group][0][0] + sums[i_group][1][0];
        x.starts[i_group][1] = sums[i_group][0][1] + sums[i_group][1][1];
    }
}

/* ---- one slice of one strip ---------------------------------------------------------------------
 */

/* Scales of rows g and g + 8, a word a group. */
template <int n_groups>
__device__ __forceinline__ void read_scales(uint32_t scales, uint32_t (&pairs)[n_groups])
{
    if constexpr (n_groups == 2) {
        uint2 v = ld_shared_v2(scales);
        pairs[0] = v.x;
        pairs[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < n_groups; i += 4) {
            uint4 v = ld_shared_v4(scales + i / 4 * 512);
            pairs[i] = v.x;
            pairs[i + 1] = v.y;
            pairs[i + 2] = v.z;
            pairs[i + 3] = v.w;
        }
    }
}

/* -(offset + zero) of rows g and g + 8 for a group, in the unit of the dequantised codes. */
template <typename traits>
__device__ __forceinline__ float2 read_offsets(uint32_t zeros, int i_group)
{
    uint32_t word = ld_shared(zeros + i_group / 2 * 4) >> i_group % 2 * 16;
    return make_float2(-(traits::offset + static_cast<float>(word & 0xff)) * traits::unit,
                       -(traits::offset + static_cast<float>(word >> 8 & 0xff)) * traits::unit);
}

/* offsets: used by weights with zero points only. */
template <int n_groups, bool has_zeros>
__device__ __forceinline__ void start_group(const x_slice<n_groups> &x, int i_group,
                                            const float2 &offsets, float (&acc)[4])
{
    float a = x.starts[i_group][0];
    float b = x.starts[i_group][1];
    acc[0] = has_zeros ? offsets.x * a : a;
    acc[1] = has_zeros ? offsets.x * b : b;
    acc[2] = has_zeros ? offsets.y * a : a;
    acc[3] = has_zeros ? offsets.y * b : b;
}

__device__ __forceinline__ void end_group(const float (&acc)[4], const float2 &scales,
                                          float (&sum)[4])
{
    sum[0] = fmaf(acc[0], scales.x, sum[0]);
    sum[1] = fmaf(acc[1], scales.x, sum[1]);
    sum[2] = fmaf(acc[2], scales.y, sum[2]);
    sum[3] = fmaf(acc[3], scales.y, sum[3]);
}

template <typename traits, int n_m8, int n_groups, bool has_zeros>
__device__ __forceinline__ void multiply_slice(const strip_args &args, const warp_id &id,
                                               uint32_t stage, const x_slice<n_groups> (&x)[n_m8],
                                               float (&sums)[n_m8][4])
{
    constexpr int tiles_per_group = n_tiles_k / n_groups;
    bool is_bf16 = args.scale_dtype == DTYPE_BF16;
    uint32_t pairs[n_groups];
    read_scales<n_groups>(scales_of<n_groups>(stage, id), pairs);
    float acc[n_m8][4];
#pragma unroll
    for (int i_unit = 0; i_unit < n_units; i_unit++) {
        uint4 v = ld_shared_v4(stage + i_unit * STRIP_UNIT_BYTES);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i_word = 0; i_word < 4; i_word++) {
            int i_tile = 4 * i_unit + i_word;
            int i_group = i_tile / tiles_per_group;
            if (i_tile % tiles_per_group == 0) {
                float2 offsets = make_float2(0, 0);
                if constexpr (has_zeros) {
                    offsets = read_offsets<traits>(zeros_of<n_groups>(stage, id), i_group);
                }
                for (int i = 0; i < n_m8; i++) {
                    start_group<n_groups, has_zeros>(x[i], i_group, offsets, acc[i]);
                }
            }
            uint32_t a[4];
            dequant<traits>(words[i_word], a);
            for (int i = 0; i < n_m8; i++) {
                traits::mma(acc[i], a, x[i].fragments[i_tile]);
            }
            if (i_tile % tiles_per_group == tiles_per_group - 1) {
                float2 pair = widen_pair(pairs[i_group], is_bf16);
                for (int i = 0; i < n_m8; i++) {
                    end_group(acc[i], pair, sums[i]);
                }
            }
        }
    }
}

/* ---- partial sums and the end of a round --------------------------------------------------------
 */

/* A lane's place for a strip of the round: 4 floats, 32 lanes side by side. */
template <int n_m8>
__device__ __forceinline__ float4 *partial(float4 *partials, const warp_id &id, uint32_t i_strip,
                                           uint32_t warp, int i_m8)
{
    return partials + ((i_strip * id.n_warps + warp) * n_m8 + i_m8) * 32;
}

template <int n_m8>
__device__ __forceinline__ void keep(float4 *partials, const warp_id &id, uint32_t i_strip,
                                     bool is_first, const float (&sums)[n_m8][4])
{
#pragma unroll
    for (int i = 0; i < n_m8; i++) {
        float4 *place = partial<n_m8>(partials, id, i_strip, id.warp, i) + id.lane;
        float4 before = is_first ? make_float4(0, 0, 0, 0) : *place;
        *place = make_float4(before.x + sums[i][0], before.y + sums[i][1], before.z + sums[i][2],
                             before.w + sums[i][3]);
    }
}

template <typename traits>
__device__ __forceinline__ void store_y(const strip_args &args, uint32_t i_n, uint32_t i_m,
                                        float total)
{
    if (i_n >= args.n || i_m >= args.m) {
        return;
    }
    total *= 1.0f / traits::unit;
    if (args.column_scales != nullptr) {
        float scale = args.column_scales[i_n];
        total = args.is_column_divisor ? __fdiv_rn(total, scale) : total * scale;
    }
    if (args.bias != nullptr) {
        total += load_elem(args.bias, args.bias_dtype, i_n);
    }
    store_elem(args.y_rows[i_m], args.y_dtype, i_n, total);
}

/* Add up the warps, in order, and write y. For one or two rows of x: an element a thread, since
 * most of the partial sums are of rows that are not there. */
template <typename traits, int n_m8>
__device__ __forceinline__ void finish_few(const strip_args &args, const warp_id &id,
                                           const float4 *partials, uint32_t first_strip,
                                           uint32_t n_strips)
{
    uint32_t i_row = threadIdx.x % STRIP_N;
    for (uint32_t i = threadIdx.x / STRIP_N; i < n_strips * args.m; i += blockDim.x / STRIP_N) {
        uint32_t i_m = args.m == 1 ? 0 : i % 2;
        uint32_t i_strip = args.m == 1 ? i : i / 2;
        uint32_t i_n = (blockIdx.x + (first_strip + i_strip) * gridDim.x) * STRIP_N + i_row;
        const float *place = &partials[i_strip * id.n_warps * n_m8 * 32 + i_row % 8 * 4].x;
        place += i_row / 8 * 2 + i_m;
        float total = 0;
#pragma unroll 16
        for (uint32_t warp = 0; warp < id.n_warps; warp++) {
            total += place[warp * n_m8 * 128];
        }
        store_y<traits>(args, i_n, i_m, total);
    }
}

/* The same for more: a lane's place a thread. */
template <typename traits, int n_m8>
__device__ __forceinline__ void finish_many(const strip_args &args, const warp_id &id,
                                            const float4 *partials, uint32_t first_strip,
                                            uint32_t n_strips)
{
    for (uint32_t i = threadIdx.x; i < n_strips * n_m8 * 32; i += blockDim.x) {
        uint32_t lane = i % 32;
        uint32_t i_strip = i / (32 * n_m8);
        uint32_t i_m = i / 32 % n_m8 * 8 + lane % 4 * 2;
        uint32_t i_n = (blockIdx.x + (first_strip + i_strip) * gridDim.x) * STRIP_N + lane / 4;
        const float4 *place = partials + i_strip * id.n_warps * n_m8 * 32 + i % (32 * n_m8);
        float4 total = make_float4(0, 0, 0, 0);
#pragma unroll 16
        for (uint32_t warp = 0; warp < id.n_warps; warp++) {
            float4 v = place[warp * n_m8 * 32];
            total = make_float4(total.x + v.x, total.y + v.y, total.z + v.z, total.w + v.w);
        }
        store_y<traits>(args, i_n, i_m, total.x);
        store_y<traits>(args, i_n, i_m + 1, total.y);
        store_y<traits>(args, i_n + 8, i_m, total.z);
        store_y<traits>(args, i_n + 8, i_m + 1, total.w);
    }
}

/* ---- the kernel --------------------------------------------------------------------------------
 */

/* Fill all stages but one. */
template <int n_groups, bool has_zeros>
__device__ __forceinline__ void prime(const strip_args &args, const warp_id &id, cursor &at,
                                      uint32_t first_stage, uint32_t stage_bytes)
{
#pragma unroll
    for (int i = 0; i < n_stages - 1; i++) {
        fetch<n_groups, has_zeros>(args, id, at, first_stage + i * stage_bytes);
    }
}

template <typename traits, int n_m8, int n_groups, bool has_zeros>
__global__ void __launch_bounds__(512, 1) strip_gemm(const __grid_constant__ strip_args args)
{
    using size = sizes<n_groups, has_zeros>;
    extern __shared__ __align__(16) uint8_t shared[];
    warp_id id = this_warp();
    uint32_t stage_bytes = id.n_warps * size::stage;
    uint32_t first_stage = static_cast<uint32_t>(__cvta_generic_to_shared(shared)) +
                           id.warp * size::stage + id.lane * 16;
    uint32_t last_stage = first_stage + (n_stages - 1) * stage_bytes;
    float4 *partials = reinterpret_cast<float4 *>(shared + n_stages * stage_bytes);

    /* A launch that overlaps the one before has time for weights and none to lose for x; alone, x
     * must not queue behind the weights. */
    cursor at = {};
    cursor_seek<n_groups, has_zeros>(args, id, at);
    bool is_primed = args.may_overlap;
    if (is_primed) {
        prime<n_groups, has_zeros>(args, id, at, first_stage, stage_bytes);
        griddepcontrol_launch_dependents();
        griddepcontrol_wait();
    }
    uint32_t stage = first_stage;
    uint32_t free_stage = last_stage;
    uint32_t n_own = own_strips(args);
    x_slice<n_groups> x[n_m8];
    for (uint32_t first_strip = 0; first_strip < n_own; first_strip += args.n_round_strips) {
        uint32_t n_strips = min(args.n_round_strips, n_own - first_strip);
        for (uint32_t i_slice = id.warp; i_slice < args.n_slices; i_slice += STRIP_STEP_SLICES) {
            if (first_strip == 0 || args.n_slices > STRIP_STEP_SLICES) {
#pragma unroll
                for (int i = 0; i < n_m8; i++) {
                    load_fragments(args, id, i_slice, 8 * i, x[i]);
                }
                if (!is_primed) {
                    prime<n_groups, has_zeros>(args, id, at, first_stage, stage_bytes);
                    is_primed = true;
                }
#pragma unroll
                for (int i = 0; i < n_m8; i++) {
                    sum_groups<traits, n_groups, has_zeros>(x[i]);
                }
            }
            for (uint32_t i_strip = 0; i_strip < n_strips; i_strip++) {
                cp_async_wait<n_stages - 2>();
                fetch<n_groups, has_zeros>(args, id, at, free_stage);
                float sums[n_m8][4] = {};
                multiply_slice<traits, n_m8, n_groups, has_zeros>(args, id, stage, x, sums);
                keep<n_m8>(partials, id, i_strip, i_slice == id.warp, sums);
                free_stage = stage;
                stage = stage == last_stage ? first_stage : stage + stage_bytes;
            }
        }
        __syncthreads();
        if (args.m <= 2) {
            finish_few<traits, n_m8>(args, id, partials, first_strip, n_strips);
        } else {
            finish_many<traits, n_m8>(args, id, partials, first_strip, n_strips);
        }
        if (n_own - first_strip > args.n_round_strips) {
            __syncthreads();
        }
    }
}

/* ---- launching ---------------------------------------------------------------------------------
 */

using kernel_function = void (*)(strip_args);

struct instance {
    uint8_t x_dtype;
    uint8_t n_m8;
    uint8_t n_groups;
    bool has_zeros;
    kernel_function function;
    uint32_t stage_of_warp_bytes;
};

template <typename traits, int n_m8, int n_groups, bool has_zeros>
constexpr instance make_instance(uint8_t x_dtype)
{
    return {x_dtype,
            n_m8,
            n_groups,
            has_zeros,
            strip_gemm<traits, n_m8, n_groups, has_zeros>,
            sizes<n_groups, has_zeros>::stage};
}

#define INSTANCES(traits, dtype)                                                                   \
    make_instance<traits, 1, 2, false>(dtype), make_instance<traits, 1, 2, true>(dtype),           \
        make_instance<traits, 2, 2, false>(dtype), make_instance<traits, 2, 2, true>(dtype),       \
        make_instance<traits, 1, 4, false>(dtype), make_instance<traits, 1, 4, true>(dtype),       \
        make_instance<traits, 2, 4, false>(dtype), make_instance<traits, 2, 4, true>(dtype),       \
        make_instance<traits, 1, 8, false>(dtype), make_instance<traits, 1, 8, true>(dtype),       \
        make_instance<traits, 2, 8, false>(dtype), make_instance<traits, 2, 8, true>(dtype)

const instance instances[] = {INSTANCES(traits_bf16, DTYPE_BF16), INSTANCES(traits_f16, DTYPE_F16)};

const instance *find_instance(const strip_args &args)
{
    uint32_t n_m8 = args.m > 8 ? 2 : 1;
    for (const instance &one : instances) {
        if (one.x_dtype == args.x_dtype && one.n_m8 == n_m8 &&
            one.n_groups == args.n_slice_groups && one.has_zeros == (args.has_zeros != 0)) {
            return &one;
        }
    }
    return nullptr;
}

/* What the launcher knows of a device; filled in by strip_gemm_load(). */
struct device_limits {
    uint32_t n_sms;
    uint32_t shared_bytes; /* a CTA may have */
};

constexpr int n_devices_max = 64;
device_limits limits_of_device[n_devices_max];

cudaError_t query_limits(int *ret_device)
{
    int device, n_sms, shared_bytes;
    cudaError_t r = cudaGetDevice(&device);
    if (r == cudaSuccess) {
        r = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    }
    if (r == cudaSuccess) {
        r = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
    if (r == cudaSuccess && device >= n_devices_max) {
        r = cudaErrorInvalidDevice;
    }
    if (r == cudaSuccess) {
        limits_of_device[device] = {static_cast<uint32_t>(n_sms),
                                    static_cast<uint32_t>(shared_bytes)};
        *ret_device = device;
    }
    return r;
}

/* Few warps a CTA (short k) leave room for more CTAs an SM, each with its share of the memory. */
struct shape_of_launch {
    uint32_t n_ctas;
    uint32_t n_threads;
    uint32_t shared_bytes;
};

shape_of_launch plan(const device_limits &limits, const instance &one, strip_args &args)
{
    uint32_t n_warps = args.n_slices < STRIP_STEP_SLICES ? args.n_slices : STRIP_STEP_SLICES;
    uint32_t n_ctas_per_sm = STRIP_STEP_SLICES / n_warps;
    uint32_t n_ctas = limits.n_sms * n_ctas_per_sm;
    n_ctas = n_ctas < args.n_strips ? n_ctas : args.n_strips;
    uint32_t reserved = 1024 * n_ctas_per_sm; /* the system's own, a CTA */
    uint32_t budget = (limits.shared_bytes + 1024 - reserved) / n_ctas_per_sm;
    uint32_t stages_bytes = n_stages * n_warps * one.stage_of_warp_bytes;
    uint32_t strip_bytes = n_warps * one.n_m8 * 512;
    uint32_t n_own = (args.n_strips + n_ctas - 1) / n_ctas;
    uint32_t n_fit = (budget - stages_bytes) / strip_bytes;
    args.n_round_strips = n_own < n_fit ? n_own : n_fit;
    args.n_own_min = args.n_strips / n_ctas;
    args.n_own_extra = args.n_strips % n_ctas;
    return {n_ctas, 32 * n_warps, stages_bytes + args.n_round_strips * strip_bytes};
}

} // namespace

int strip_gemm_load(void)
{
    int device = 0;
    cudaError_t r = query_limits(&device);
    for (const instance &one : instances) {
        if (r == cudaSuccess) {
            r = cudaFuncSetAttribute(reinterpret_cast<const void *>(one.function),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(limits_of_device[device].shared_bytes));
        }
    }
    return r;
}

int strip_gemm_enqueue(struct strip_args *args, bool may_overlap, void *stream)
{
    int device;
    cudaError_t r = cudaGetDevice(&device);
    const instance *one = find_instance(*args);
    if (r != cudaSuccess || one == nullptr) {
        return r != cudaSuccess ? r : cudaErrorInvalidValue;
    }
    const device_limits &limits = limits_of_device[device];
    shape_of_launch shape = plan(limits, *one, *args);
    args->may_overlap = may_overlap;
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = may_overlap ? 1 : 0;
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.n_ctas;
    config.blockDim = shape.n_threads;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &overlap;
    config.numAttrs = 1;
    void *parameters[] = {args};
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void *>(one->function), parameters);
}
