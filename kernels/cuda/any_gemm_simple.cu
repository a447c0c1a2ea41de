/* any_gemm_simple.cu - y = x W^T (+ bias) for every code, with the bits of the host kernels: the
 * reference on the device, and the kernel of last resort.
 *
 * One thread owns one element of y. A thread block owns 32 columns of one row of y; its 8 warps
 * take the blocks of k (NUMERICS.md: at most 128 elements, never across a group) in turns, each
 * summing its block in fp32 with k ascending; warp 0 then adds the 8 sums in the order of k. So the
 * order of every rounding is the contract's, whatever the shape and the layout. Each warp first
 * brings its 128 elements of x, act-order undone, to shared memory as fp32, so that its loop loads
 * nothing but codes: a warp's row, 16 to 128 bytes, several rows in flight. Shared memory: 8 x 128
 * floats of x, 8 x 32 sums. x that the weight wants quantised is quantised before
 * (any_quantise.cu). The alternative, a thread that walks all of k, has an eighth of the loads in
 * flight. */
#include "kernels/cuda/any_gemm_simple.h"

#include <cuda_runtime.h>

#include "kernels/cuda/any_values.cuh"
#include "kernels/cuda/strip_read.cuh"
#include "kernels/layout/swizzle.h"

#define COLUMNS 32u
#define WARPS   8u
#define BLOCK_K 128u
#define STEP_K  32u /* loads in flight */

/* enum gk_code and enum gk_column_scale; gk.h is C. any_gemm_simple_row.c holds them equal. */
enum { CODE_F32 = 1, CODE_F16, CODE_BF16, CODE_U4, CODE_U8, CODE_E4M3, CODE_E2M1 };
enum { STRIP_INT = CODE_E2M1 + 1, STRIP_E4M3, STRIP_E2M1 }; /* in strips */
enum { COLUMN_SCALE_NONE, COLUMN_SCALE_MULTIPLIES, COLUMN_SCALE_DIVIDES };

/* A sum on its way: whole numbers where x is INT8. */
struct total {
    float value;
    int32_t whole;
};

static __device__ struct strip_slice slice_at(const struct any_gemm &gemm, uint32_t i_k,
                                              uint32_t i_n)
{
    return strip_slice_at(gemm.strips.lie, i_n, i_k);
}

/* Integers are signed there: back to unsigned. */
template <uint32_t CODE>
static __device__ uint32_t swizzled_code(const struct any_gemm &gemm, uint32_t i_k, uint32_t i_n)
{
    uint64_t i_atom = (uint64_t)(i_k / SWIZZLE_K) * gemm.n_swizzle_groups + i_n / SWIZZLE_ROWS;
    uint32_t byte = gemm.codes[i_atom * SWIZZLE_ATOM_BYTES +
                               swizzle_byte_of(i_n % SWIZZLE_ROWS, i_k % SWIZZLE_K)];
    return CODE == CODE_U8 ? byte ^ 0x80u : byte;
}

/* The bits of the code of column i_n at i_k: nothing but a load. */
template <uint32_t CODE>
static __device__ uint32_t code_bits(const struct any_gemm &gemm, uint32_t i_k, uint32_t i_n)
{
    if (CODE == STRIP_INT) {
        struct strip_slice slice = slice_at(gemm, i_k, i_n);
        return strip_int_code(&slice, gemm.strips.lie.code_bits, i_n, i_k);
    }
    if (CODE == STRIP_E4M3 || CODE == STRIP_E2M1) {
        struct strip_slice slice = slice_at(gemm, i_k, i_n);
        return strip_float_code(&slice, gemm.strips.lie.code_bits, i_n, i_k);
    }
    if ((CODE == CODE_U8 || CODE == CODE_E4M3) && gemm.n_swizzle_groups != 0) {
        return swizzled_code<CODE>(gemm, i_k, i_n);
    }
    const uint8_t *row = gemm.codes + (uint64_t)i_k * gemm.row_bytes;
    switch (CODE) {
    case CODE_F32:
        return ((const uint32_t *)row)[i_n];
    case CODE_F16:
    case CODE_BF16:
        return ((const uint16_t *)row)[i_n];
    case CODE_U8:
    case CODE_E4M3:
        return row[i_n];
    default:
        return row[i_n / 2];
    }
}

/* The same as a number, before scale and zero point. */
template <uint32_t CODE> static __device__ float code_value(uint32_t bits, uint32_t i_n)
{
    switch (CODE) {
    case CODE_F32:
        return __uint_as_float(bits);
    case CODE_F16:
        return __half2float(__ushort_as_half((unsigned short)bits));
    case CODE_BF16:
        return __uint_as_float(bits << 16);
    case CODE_U4:
        return (float)(bits >> (i_n % 2 * 4) & 15u);
    case CODE_U8:
    case STRIP_INT:
        return (float)bits;
    case CODE_E4M3:
    case STRIP_E4M3:
        return e4m3_value(bits);
    case STRIP_E2M1:
        return e2m1_value(bits);
    default:
        return e2m1_value(bits >> (i_n % 2 * 4) & 15u);
    }
}

/* Where block i_block of k begins and ends, and the group that it lies in. Groups are cut into
 * blocks from their own start; blocks beyond a short last group are empty. */
struct block {
    uint32_t group;
    uint32_t begin;
    uint32_t end;
};

static __device__ uint32_t blocks_per_group(const struct any_gemm &gemm)
{
    return (gemm.group_k + BLOCK_K - 1) / BLOCK_K;
}

static __device__ struct block block_of(const struct any_gemm &gemm, uint32_t i_block)
{
    struct block block;
    block.group = i_block / blocks_per_group(gemm);
    uint64_t group_begin = (uint64_t)block.group * gemm.group_k;
    uint64_t group_end = min(group_begin + gemm.group_k, (uint64_t)gemm.k);
    uint64_t begin = group_begin + (uint64_t)(i_block % blocks_per_group(gemm)) * BLOCK_K;
    block.begin = (uint32_t)min(begin, group_end);
    block.end = (uint32_t)min(begin + BLOCK_K, group_end);
    return block;
}

static __device__ uint64_t scale_index(const struct any_gemm &gemm, uint32_t group, uint32_t i_n)
{
    return (uint64_t)group * gemm.scale_columns + i_n / gemm.group_n;
}

/* Where the scale of a block lies in its array, and its zero point. */
struct scale_place {
    const void *scales;
    const uint8_t *zeros;
    uint64_t index;
    enum dtype dtype;
};

static __device__ struct scale_place scale_place(const struct any_gemm &gemm,
                                                 const struct block &block, uint32_t i_n)
{
    if (gemm.scales == NULL) {
        struct strip_slice slice = slice_at(gemm, block.begin, i_n);
        return {
            slice.scales, slice.zeros,
            strip_scale_index(gemm.strips.scaling, gemm.strips.n_slice_groups, i_n, block.begin),
            gemm.strips.scaling == STRIP_SCALES_STRIP ? DTYPE_F32 : gemm.scale_dtype};
    }
    return {gemm.scales, gemm.zeros, scale_index(gemm, block.group, i_n), gemm.scale_dtype};
}

static __device__ float zero_point(const struct any_gemm &gemm, const struct block &block,
                                   uint32_t i_n)
{
    if (gemm.code != CODE_U4 && gemm.code != CODE_U8) {
        return 0.0f;
    }
    if (gemm.has_zeros) {
        struct scale_place place = scale_place(gemm, block, i_n);
        return (float)place.zeros[place.index];
    }
    return gemm.code == CODE_U4 ? 8.0f : 128.0f;
}

/* A warp brings its block of x to shared memory. */
/* Infinities count as NaN against integer codes: NUMERICS.md. */
static __device__ float spoil_infinity(const struct any_gemm &gemm, float value)
{
    bool is_int = gemm.code == CODE_U4 || gemm.code == CODE_U8;
    return is_int && isinf(value) ? __uint_as_float(0x7fc00000u) : value;
}

static __device__ void stage_x(const struct any_gemm &gemm, const struct block &block,
                               const void *x, float *staged)
{
    for (uint32_t i = threadIdx.x; i < block.end - block.begin; i += COLUMNS) {
        uint32_t i_k = block.begin + i;
        float value = load(x, gemm.x_dtype, gemm.perm != NULL ? gemm.perm[i_k] : i_k);
        staged[i] = spoil_infinity(gemm, value);
    }
    __syncwarp();
}

/* One step of a block: all loads are on their way before the first is used. */
template <uint32_t CODE, uint32_t N_K>
static __device__ float add_step(const struct any_gemm &gemm, uint32_t i_k, uint32_t i_n,
                                 const float *x, float zero, float sum)
{
    uint32_t bits[N_K];
#pragma unroll
    for (uint32_t i = 0; i < N_K; i++) {
        bits[i] = code_bits<CODE>(gemm, i_k + i, i_n);
    }
#pragma unroll
    for (uint32_t i = 0; i < N_K; i++) {
        sum = __fmaf_rn(x[i], __fsub_rn(code_value<CODE>(bits[i], i_n), zero), sum);
    }
    return sum;
}

template <uint32_t CODE>
static __device__ float block_sum(const struct any_gemm &gemm, const struct block &block,
                                  const float *x, uint32_t i_n)
{
    float zero = zero_point(gemm, block, i_n);
    float sum = 0.0f;
    uint32_t i_k = block.begin;
    for (; i_k + STEP_K <= block.end; i_k += STEP_K) {
        sum = add_step<CODE, STEP_K>(gemm, i_k, i_n, x + (i_k - block.begin), zero, sum);
    }
    for (; i_k < block.end; i_k++) {
        sum = add_step<CODE, 1>(gemm, i_k, i_n, x + (i_k - block.begin), zero, sum);
    }
    return sum;
}

/* Scales that are the same for all of k wait for the end. */
static __device__ bool has_one_group(const struct any_gemm &gemm)
{
    return gemm.scale_dtype != DTYPE_NONE && gemm.group_k >= gemm.k &&
           gemm.x_scaling != ANY_X_GROUP;
}

static __device__ float block_scale(const struct any_gemm &gemm, const struct block &block,
                                    uint32_t i_n)
{
    struct scale_place place = scale_place(gemm, block, i_n);
    return load(place.scales, place.dtype, place.index);
}

static __device__ void add_block(const struct any_gemm &gemm, uint32_t i_block, uint32_t i_n,
                                 float sum, struct total &total)
{
    struct block block = block_of(gemm, i_block);
    if (block.begin == block.end) {
        return;
    }
    if (gemm.x_scaling == ANY_X_WHOLE) {
        total.whole += (int32_t)sum; /* exact: a block of them stays below 2^24 */
    } else if (gemm.scale_dtype == DTYPE_NONE || has_one_group(gemm)) {
        total.value = __fadd_rn(total.value, sum);
    } else {
        float scale = block_scale(gemm, block, i_n);
        if (gemm.x_scaling == ANY_X_GROUP) {
            const float *x_scales = gemm.x_scales + (uint64_t)blockIdx.y * gemm.n_x_scales;
            scale = __fmul_rn(x_scales[block.begin / BLOCK_K], scale);
        }
        total.value = __fmaf_rn(sum, scale, total.value);
    }
}

static __device__ float finish(const struct any_gemm &gemm, uint32_t i_n, const struct total &total)
{
    float value = gemm.x_scaling == ANY_X_WHOLE ? __int2float_rn(total.whole) : total.value;
    if (has_one_group(gemm)) {
        value = __fmul_rn(value, block_scale(gemm, block_of(gemm, 0), i_n));
    }
    if (gemm.column_scale == COLUMN_SCALE_MULTIPLIES) {
        value = __fmul_rn(value, gemm.column_scales[i_n]);
    } else if (gemm.column_scale == COLUMN_SCALE_DIVIDES) {
        value = __fdiv_rn(value, gemm.column_scales[i_n]);
    }
    if (gemm.x_scaling == ANY_X_ROW || gemm.x_scaling == ANY_X_WHOLE) {
        value = __fmul_rn(value, gemm.x_scales[blockIdx.y]);
    }
    return gemm.bias == NULL ? value : __fadd_rn(value, load(gemm.bias, gemm.bias_dtype, i_n));
}

template <uint32_t CODE>
static __global__ void __launch_bounds__(COLUMNS *WARPS)
    any_gemm_simple(const __grid_constant__ struct any_gemm gemm)
{
    __shared__ float x[WARPS][BLOCK_K];
    __shared__ float sums[WARPS][COLUMNS];
    uint32_t lane = threadIdx.x;
    uint32_t warp = threadIdx.y;
    uint32_t i_n = blockIdx.x * COLUMNS + lane;
    bool is_inside = i_n < gemm.n;
    uint32_t n_blocks = (gemm.k + gemm.group_k - 1) / gemm.group_k * blocks_per_group(gemm);
    struct total total = {0.0f, 0};
    for (uint32_t first = 0; first < n_blocks; first += WARPS) {
        if (first + warp < n_blocks) {
            struct block block = block_of(gemm, first + warp);
            stage_x(gemm, block, gemm.rows.x[blockIdx.y], x[warp]);
            if (is_inside) {
                sums[warp][lane] = block_sum<CODE>(gemm, block, x[warp], i_n);
            }
        }
        __syncthreads();
        for (uint32_t i = 0; warp == 0 && is_inside && i < WARPS && first + i < n_blocks; i++) {
            add_block(gemm, first + i, i_n, sums[i][lane], total);
        }
        __syncthreads();
    }
    if (warp == 0 && is_inside) {
        store(gemm.rows.y[blockIdx.y], gemm.y_dtype, i_n, finish(gemm, i_n, total));
    }
}

/* By code, from 1; the strips behind. */
static void (*const kernels[])(const struct any_gemm gemm) = {
    any_gemm_simple<CODE_F32>,   any_gemm_simple<CODE_F16>,  any_gemm_simple<CODE_BF16>,
    any_gemm_simple<CODE_U4>,    any_gemm_simple<CODE_U8>,   any_gemm_simple<CODE_E4M3>,
    any_gemm_simple<CODE_E2M1>,  any_gemm_simple<STRIP_INT>, any_gemm_simple<STRIP_E4M3>,
    any_gemm_simple<STRIP_E2M1>,
};

int any_gemm_simple_enqueue(const struct any_gemm *gemm, void *stream)
{
    dim3 grid((gemm->n + COLUMNS - 1) / COLUMNS, gemm->m);
    uint32_t code = gemm->code;
    if (gemm->strips.lie.records != NULL) {
        code = code == CODE_E4M3 ? STRIP_E4M3 : code == CODE_E2M1 ? STRIP_E2M1 : STRIP_INT;
    }
    kernels[code - CODE_F32]<<<grid, dim3(COLUMNS, WARPS), 0, (cudaStream_t)stream>>>(*gemm);
    return cudaPeekAtLastError();
}

int any_gemm_simple_load(void)
{
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; error == cudaSuccess && i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        struct cudaFuncAttributes attributes;
        error = cudaFuncGetAttributes(&attributes, kernels[i]);
    }
    return error;
}
