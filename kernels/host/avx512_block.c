/* avx512_block.c - blocks of any code on AVX-512 (F, BW, VL). Lanes run over n.
 *
 * Tiles of up to 4 rows of x by 64 columns keep their 16 accumulators in registers; a decoding step
 * gives the weights of sixteen columns. Code and rows are constants of each instance.
 *
 * 4 bits. A row of a panel is 16 words of four codes; widened to 16 lanes, nibble j of lane i is
 * column 16j + i. VPERMPS looks at the low four bits of each lane only and its table has sixteen
 * f32, so a shift (none for j = 0) and a look-up decode sixteen weights: 8 operations a row beside
 * the fma. */
#include <immintrin.h>

#include "kernels/host/e4m3.h"
#include "kernels/host/rows.h"
#include "kernels/host/vector.h"

#define INSTANCE       static inline __attribute__((always_inline))
#define LANES          16u
#define TILE_ROWS      4u
#define PREFETCH_BYTES 2048u

/* What decoding needs beside the codes. */
struct decoder {
    __m512 table; /* 4 bits: the value of each code */
    __m512 zeros[4];
};

INSTANCE struct decoder decoder_of(const struct host_block *block, enum gk_code code,
                                   bool has_zeros)
{
    struct decoder decoder;
    if (code == GK_CODE_E2M1) {
        decoder.table =
            _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    } else {
        decoder.table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    for (uint32_t j = 0; j < 4; j++) {
        float zero = code == GK_CODE_U4 ? 8.0f : 128.0f;
        decoder.zeros[j] =
            has_zeros ? _mm512_loadu_ps(block->zeros + j * LANES) : _mm512_set1_ps(zero);
    }
    if (code == GK_CODE_U4 && !has_zeros) {
        decoder.table = _mm512_sub_ps(decoder.table, decoder.zeros[0]);
    }
    return decoder;
}

INSTANCE __m512 decode_bytes(enum gk_code code, __m128i bytes)
{
    if (code == GK_CODE_E4M3) {
        return _mm512_mul_ps(_mm512_cvtph_ps(e4m3_halves(bytes)), _mm512_set1_ps(E4M3_PER_HALF));
    }
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

/* Columns 16j to 16j + 15. */
INSTANCE __m512 decode16(const struct decoder *decoder, enum gk_code code, const uint8_t *row,
                         uint32_t j)
{
    if (code == GK_CODE_U4 || code == GK_CODE_E2M1) {
        __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)row));
        return _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4 * j), decoder->table);
    }
    if (code == GK_CODE_F32) {
        return _mm512_loadu_ps((const float *)row + j * LANES);
    }
    if (code == GK_CODE_U8 || code == GK_CODE_E4M3) {
        return decode_bytes(code, _mm_loadu_si128((const __m128i *)(row + j * LANES)));
    }
    __m256i bits = _mm256_loadu_si256((const __m256i *)(row + j * LANES * 2));
    if (code == GK_CODE_F16) {
        return _mm512_cvtph_ps(bits);
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

INSTANCE __m512 decode(const struct decoder *decoder, enum gk_code code, bool has_zeros,
                       const uint8_t *row, uint32_t j)
{
    __m512 w = decode16(decoder, code, row, j);
    bool is_in_table = code == GK_CODE_U4 && !has_zeros;
    bool is_int = code == GK_CODE_U4 || code == GK_CODE_U8;
    return is_int && !is_in_table ? _mm512_sub_ps(w, decoder->zeros[j]) : w;
}

static inline void add_scaled(const struct host_block *block, uint32_t i_m, uint32_t i_n,
                              __m512 acc, float *totals)
{
    __m512 scale = _mm512_loadu_ps(block->scales + i_n);
    if (block->x_scales != NULL) {
        __m512 x_scale = _mm512_set1_ps(block->x_scales[i_m * block->x_scale_stride]);
        scale = _mm512_mul_ps(x_scale, scale);
    }
    _mm512_storeu_ps(totals, _mm512_fmadd_ps(acc, scale, _mm512_loadu_ps(totals)));
}

static inline void add_whole(__m512 acc, float *totals)
{
    __m512i sum = _mm512_add_epi32(_mm512_loadu_si512(totals), _mm512_cvtps_epi32(acc));
    _mm512_storeu_si512(totals, sum);
}

INSTANCE void finish(const struct host_block *block, uint32_t i_m, uint32_t j, __m512 acc,
                     float *totals)
{
    float *target = totals + i_m * HOST_PANEL_N + j * LANES;
    if (block->scales != NULL) {
        add_scaled(block, i_m, j * LANES, acc, target);
    } else {
        add_whole(acc, target);
    }
}

INSTANCE void tile(const struct host_block *block, enum gk_code code, bool has_zeros,
                   uint32_t first_m, uint32_t n_rows, float *totals)
{
    struct decoder decoder = decoder_of(block, code, has_zeros);
    __m512 acc[TILE_ROWS][4];
    for (uint32_t i_m = 0; i_m < n_rows; i_m++) {
        for (uint32_t j = 0; j < 4; j++) {
            acc[i_m][j] = _mm512_setzero_ps();
        }
    }
    const float *x = block->x + first_m * block->x_stride_elems;
    const uint8_t *row = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++, row += vector_row_bytes(code)) {
        _mm_prefetch((const char *)row + PREFETCH_BYTES, _MM_HINT_T0);
        for (uint32_t j = 0; j < 4; j++) {
            __m512 w = decode(&decoder, code, has_zeros, row, j);
            for (uint32_t i_m = 0; i_m < n_rows; i_m++) {
                __m512 x_k = _mm512_set1_ps(x[i_m * block->x_stride_elems + i_k]);
                acc[i_m][j] = _mm512_fmadd_ps(x_k, w, acc[i_m][j]);
            }
        }
    }
    /* Loops left here would keep the sums in memory, and they would be stored for every k. */
#pragma GCC unroll 4
    for (uint32_t i_m = 0; i_m < n_rows; i_m++) {
#pragma GCC unroll 4
        for (uint32_t j = 0; j < 4; j++) {
            finish(block, first_m + i_m, j, acc[i_m][j], totals);
        }
    }
}

INSTANCE void block_of(const struct host_block *block, enum gk_code code, bool has_zeros,
                       float *totals)
{
    uint32_t i_m = 0;
    for (; i_m + TILE_ROWS <= block->m; i_m += TILE_ROWS) {
        tile(block, code, has_zeros, i_m, TILE_ROWS, totals);
    }
    if (i_m + 2 <= block->m) {
        tile(block, code, has_zeros, i_m, 2, totals);
        i_m += 2;
    }
    if (i_m < block->m) {
        tile(block, code, has_zeros, i_m, 1, totals);
    }
}

#include "kernels/host/block_codes.h"

static const struct host_ops ops = {
    .isa = ISA_AVX512,
    .quant = &quant_avx2,
    .widen = avx512_widen,
    .narrow = avx512_narrow,
    .block = block_of_any,
};

/* Estimates, by the AVX2 kernel for 4 bits. */
static const struct host_rates rates = {.weight_gbps = 12.0, .gflops = 80.0};

#define TILE "64n x 4m, k128"
HOST_ROW(avx512_int4_gemm_group, HOST_CODE(GK_CODE_U4), "int4", ops, rates, TILE)
HOST_ROW(avx512_int8_gemm_group, HOST_CODE(GK_CODE_U8), "int8", ops, rates, TILE)
HOST_ROW(avx512_fp8_gemm_group, HOST_CODE(GK_CODE_E4M3), "fp8", ops, rates, TILE)
HOST_ROW(avx512_fp4_gemm_group, HOST_CODE(GK_CODE_E2M1), "fp4", ops, rates, TILE)
HOST_ROW(avx512_plain_gemm, HOST_PLAIN, "plain", ops, rates, TILE)
