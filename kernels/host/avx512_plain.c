/* avx512_plain.c - f32, f16 and bf16 weights on AVX-512 (F, BW, VL).
 *
 *   total[n] = total[n] + sum_k x[k] * w[k][n]   lanes run over n
 *
 * Tiles of up to 4 rows x 64 columns keep their 16 accumulators in registers. Weights are widened
 * as they are loaded; element type and rows are constants of each instance of the loop. */
#include <immintrin.h>

#include "kernels/host/rows.h"
#include "kernels/host/vector.h"

#define LANES     16u
#define TILE_ROWS 4u

static inline __attribute__((always_inline)) __m512 load(const uint8_t *row, enum dtype dtype,
                                                         uint32_t i_n)
{
    if (dtype == DTYPE_F32) {
        return _mm512_loadu_ps((const float *)row + i_n);
    }
    __m256i bits = _mm256_loadu_si256((const __m256i *)(row + i_n * 2));
    if (dtype == DTYPE_F16) {
        return _mm512_cvtph_ps(bits);
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

static inline void add16(float *totals, __m512 acc)
{
    _mm512_storeu_ps(totals, _mm512_add_ps(_mm512_loadu_ps(totals), acc));
}

static inline __attribute__((always_inline)) void tile(const struct host_block *block,
                                                       enum dtype dtype, uint32_t n_rows,
                                                       const float *x, float *totals)
{
    __m512 acc[TILE_ROWS][4];
    for (uint32_t i_m = 0; i_m < n_rows; i_m++) {
        for (uint32_t j = 0; j < 4; j++) {
            acc[i_m][j] = _mm512_setzero_ps();
        }
    }
    const uint8_t *row = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++) {
        for (uint32_t j = 0; j < 4; j++) {
            __m512 w = load(row, dtype, j * LANES);
            for (uint32_t i_m = 0; i_m < n_rows; i_m++) {
                __m512 x_k = _mm512_set1_ps(x[i_m * block->x_stride_elems + i_k]);
                acc[i_m][j] = _mm512_fmadd_ps(x_k, w, acc[i_m][j]);
            }
        }
        row += HOST_PANEL_N * (dtype == DTYPE_F32 ? 4 : 2);
    }
    for (uint32_t i_m = 0; i_m < n_rows; i_m++) {
        for (uint32_t j = 0; j < 4; j++) {
            add16(totals + i_m * HOST_PANEL_N + j * LANES, acc[i_m][j]);
        }
    }
}

static inline __attribute__((always_inline)) void block_of(const struct host_block *block,
                                                           enum dtype dtype, float *totals)
{
    const float *x = block->x;
    uint32_t n_left = block->m;
    for (; n_left >= TILE_ROWS; n_left -= TILE_ROWS) {
        tile(block, dtype, TILE_ROWS, x, totals);
        x += TILE_ROWS * block->x_stride_elems;
        totals += TILE_ROWS * HOST_PANEL_N;
    }
    for (; n_left > 0; n_left--) {
        tile(block, dtype, 1, x, totals);
        x += block->x_stride_elems;
        totals += HOST_PANEL_N;
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
    .isa = ISA_AVX512,
    .widen = avx512_widen,
    .narrow = avx512_narrow,
    .plain_block = plain_block,
};

/* Estimates, by the AVX2 kernel for 4 bits. */
static const struct host_rates rates = {.weight_gbps = 12.0, .gflops = 80.0};

HOST_ROW(avx512_plain_gemm, true, ops, rates, "64n x 4m, k128")
