/* avx512_int4.c - 4-bit weights on AVX-512 (F, BW, VL).
 *
 *   total[n] = fma(sum_k x[k] * (code[k][n] - 8), scale[n], total[n])   lanes run over n
 *
 * A row of a panel is 16 words of four codes; widened to 16 lanes, nibble j of lane i is column
 * 16j + i. VPERMPS looks at the low four bits of each lane only and its table has sixteen f32, so a
 * shift (none for j = 0) and a look-up dequantise sixteen weights: 8 operations a row beside the
 * fma. Tiles of up to 4 rows x 64 columns keep their 16 accumulators in registers. */
#include <immintrin.h>

#include "kernels/host/rows.h"
#include "kernels/host/vector.h"

#define LANES          16u
#define ROW_BYTES      32u
#define TILE_ROWS      4u
#define PREFETCH_BYTES 2048u

static inline __attribute__((always_inline)) __m512 weights16(__m512 table, __m512i words,
                                                              uint32_t j)
{
    return _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4 * j), table);
}

static inline void scale16(float *totals, const float *scales, __m512 acc)
{
    __m512 total = _mm512_loadu_ps(totals);
    _mm512_storeu_ps(totals, _mm512_fmadd_ps(acc, _mm512_loadu_ps(scales), total));
}

/* n_rows is a constant of each instance. */
static inline __attribute__((always_inline)) void
tile(const struct host_block *block, uint32_t n_rows, const float *x, float *totals)
{
    __m512 table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    __m512 acc[TILE_ROWS][4];
    for (uint32_t i_m = 0; i_m < n_rows; i_m++) {
        for (uint32_t j = 0; j < 4; j++) {
            acc[i_m][j] = _mm512_setzero_ps();
        }
    }
    const uint8_t *row = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++, row += ROW_BYTES) {
        _mm_prefetch((const char *)row + PREFETCH_BYTES, _MM_HINT_T0);
        __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)row));
        for (uint32_t j = 0; j < 4; j++) {
            __m512 w = weights16(table, words, j);
            for (uint32_t i_m = 0; i_m < n_rows; i_m++) {
                __m512 x_k = _mm512_set1_ps(x[i_m * block->x_stride_elems + i_k]);
                acc[i_m][j] = _mm512_fmadd_ps(x_k, w, acc[i_m][j]);
            }
        }
    }
    for (uint32_t i_m = 0; i_m < n_rows; i_m++) {
        for (uint32_t j = 0; j < 4; j++) {
            scale16(totals + i_m * HOST_PANEL_N + j * LANES, block->scales + j * LANES,
                    acc[i_m][j]);
        }
    }
}

static void int4_block(const struct host_block *block, float *totals)
{
    const float *x = block->x;
    uint32_t n_left = block->m;
    for (; n_left >= TILE_ROWS; n_left -= TILE_ROWS) {
        tile(block, TILE_ROWS, x, totals);
        x += TILE_ROWS * block->x_stride_elems;
        totals += TILE_ROWS * HOST_PANEL_N;
    }
    if (n_left >= 2) {
        tile(block, 2, x, totals);
        x += 2 * block->x_stride_elems;
        totals += 2 * HOST_PANEL_N;
        n_left -= 2;
    }
    if (n_left == 1) {
        tile(block, 1, x, totals);
    }
}

static const struct host_ops ops = {
    .isa = ISA_AVX512,
    .widen = avx512_widen,
    .narrow = avx512_narrow,
    .int4_block = int4_block,
};

/* Estimates, by the AVX2 kernel for 4 bits. */
static const struct host_rates rates = {.weight_gbps = 12.0, .gflops = 80.0};

HOST_ROW(avx512_int4_gemm_group, false, ops, rates, "64n x 4m, k128")
