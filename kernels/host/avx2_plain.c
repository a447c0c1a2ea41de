/* avx2_plain.c - f32, f16 and bf16 weights on AVX2.
 *
 *   total[n] = total[n] + sum_k x[k] * w[k][n]   lanes run over n
 *
 * One row of x: 8 accumulators, all 64 columns. Two rows: 2 x 4, 32 columns a pass. Weights are
 * widened as they are loaded; the element type is a constant of each instance of the loops. */
#include <immintrin.h>

#include "kernels/host/rows.h"
#include "kernels/host/vector.h"

#define LANES 8u

static inline __attribute__((always_inline)) __m256 load(const uint8_t *row, enum dtype dtype,
                                                         uint32_t i_n)
{
    if (dtype == DTYPE_F32) {
        return _mm256_loadu_ps((const float *)row + i_n);
    }
    __m128i bits = _mm_loadu_si128((const __m128i *)(row + i_n * 2));
    if (dtype == DTYPE_F16) {
        return _mm256_cvtph_ps(bits);
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

static inline void add8(float *totals, __m256 acc)
{
    _mm256_storeu_ps(totals, _mm256_add_ps(_mm256_loadu_ps(totals), acc));
}

static inline __attribute__((always_inline)) void
one_row(const struct host_block *block, enum dtype dtype, const float *x, float *totals)
{
    __m256 acc[8] = {_mm256_setzero_ps()};
    const uint8_t *row = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++) {
        __m256 x_k = _mm256_broadcast_ss(x + i_k);
        for (uint32_t i = 0; i < 8; i++) {
            acc[i] = _mm256_fmadd_ps(x_k, load(row, dtype, i * LANES), acc[i]);
        }
        row += HOST_PANEL_N * (dtype == DTYPE_F32 ? 4 : 2);
    }
    for (uint32_t i = 0; i < 8; i++) {
        add8(totals + i * LANES, acc[i]);
    }
}

/* first: 0 or 32, the first of 32 columns. */
static inline __attribute__((always_inline)) void two_rows(const struct host_block *block,
                                                           enum dtype dtype, const float *x,
                                                           uint32_t first, float *totals)
{
    __m256 acc0[4] = {_mm256_setzero_ps()};
    __m256 acc1[4] = {_mm256_setzero_ps()};
    const float *x1 = x + block->x_stride_elems;
    const uint8_t *row = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++) {
        __m256 x0_k = _mm256_broadcast_ss(x + i_k);
        __m256 x1_k = _mm256_broadcast_ss(x1 + i_k);
        for (uint32_t i = 0; i < 4; i++) {
            __m256 w = load(row, dtype, first + i * LANES);
            acc0[i] = _mm256_fmadd_ps(x0_k, w, acc0[i]);
            acc1[i] = _mm256_fmadd_ps(x1_k, w, acc1[i]);
        }
        row += HOST_PANEL_N * (dtype == DTYPE_F32 ? 4 : 2);
    }
    for (uint32_t i = 0; i < 4; i++) {
        add8(totals + first + i * LANES, acc0[i]);
        add8(totals + HOST_PANEL_N + first + i * LANES, acc1[i]);
    }
}

static inline __attribute__((always_inline)) void block_of(const struct host_block *block,
                                                           enum dtype dtype, float *totals)
{
    const float *x = block->x;
    uint32_t i_m = 0;
    for (; i_m + 2 <= block->m; i_m += 2) {
        two_rows(block, dtype, x, 0, totals);
        two_rows(block, dtype, x, 32, totals);
        x += 2 * block->x_stride_elems;
        totals += 2 * HOST_PANEL_N;
    }
    if (i_m < block->m) {
        one_row(block, dtype, x, totals);
    }
}

static void plain_block(const struct host_block *block, float *totals)
{
    switch (block->value_dtype) {
    case DTYPE_F32:
        block_of(block, DTYPE_F32, totals);
        return;
    case DTYPE_F16:
        block_of(block, DTYPE_F16, totals);
        return;
    default:
        block_of(block, DTYPE_BF16, totals);
    }
}

static const struct host_ops ops = {
    .isa = ISA_AVX2,
    .widen = avx2_widen,
    .narrow = avx2_narrow,
    .plain_block = plain_block,
};

/* Estimates, by the AVX2 kernel for 4 bits. */
static const struct host_rates rates = {.weight_gbps = 10.0, .gflops = 50.0};

HOST_ROW(avx2_plain_gemm, true, ops, rates, "64n x 1m or 32n x 2m, k128")
