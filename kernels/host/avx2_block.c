/* avx2_block.c - blocks of any code on AVX2. Lanes run over n.
 *
 * One template: columns are taken 32 at a time, as halves of a row, whose weights a decoding step
 * leaves in four vectors. One row of x: 8 accumulators, all 64 columns. Two rows: 2 x 4, the two
 * halves in two passes over the block, which is in the L1 cache by then. From eight rows on a block
 * is decoded once, into f32 of its own, and multiplied from there in tiles that reuse it better.
 * The code is a constant of each instance.
 *
 * 4 bits. All values of code - 8, of codes, and of e2m1 are exact in bfloat16, so their f32 is 16
 * bits and 16 zeros. A row of a panel (32 bytes, 64 codes) becomes 64 f32 with two byte look-ups
 * (low and high byte of the bfloat16) for each half of the nibbles, two unpacks that join the
 * bytes, and one shift or mask for each eight f32: 19 operations a row, 2.4 for eight weights,
 * beside the fma. The plain way (shift left, shift right with sign, convert) takes 3. A half is the
 * columns of one nibble, low (columns 0-15, 32-47) or high; unpack leaves columns 16j + {0-3, 8-11}
 * in one vector and 16j + {4-7, 12-15} in the other, and sums stay in that order until the end of
 * the block, where two permutations mend it. */
#include <immintrin.h>
#include <string.h>

#include "kernels/host/e4m3.h"
#include "kernels/host/rows.h"
#include "kernels/host/vector.h"

#define INSTANCE       static inline __attribute__((always_inline))
#define LANES          8u
#define HALF_N         32u
#define PREFETCH_BYTES 2048u /* ahead; 512 to 4096 measure alike, none is a tenth slower */
#define DECODE_ROWS    8u    /* from so many rows on a block is decoded once */
#define STRIP_N        16u   /* and multiplied in tiles of 6 rows x 16 columns: 12 accumulators */
#define TILE_ROWS      6u

/* 32 columns of one row, of weights or sums. */
struct half {
    __m256 v[4];
};

/* What decoding needs beside the codes. */
struct decoder {
    __m256i low; /* 4 bits: bytes of the bfloat16 of each code */
    __m256i high;
    struct half zeros[2]; /* in the order of struct half */
};

INSTANCE bool is_nibble(enum gk_code code)
{
    return code == GK_CODE_U4 || code == GK_CODE_E2M1;
}

/* ---- the order of columns ---- */

/* The first column of vector pair 0 or 1 of a half. */
INSTANCE uint32_t pair_column(enum gk_code code, uint32_t i_half, uint32_t i_pair)
{
    return is_nibble(code) ? 16 * i_half + 32 * i_pair : 32 * i_half + 16 * i_pair;
}

/* From the order of struct half to that of columns, and back: both are the same exchange. */
INSTANCE struct half reorder(enum gk_code code, struct half half)
{
    if (is_nibble(code)) {
        for (uint32_t i = 0; i < 4; i += 2) {
            __m256 a = half.v[i], b = half.v[i + 1];
            half.v[i] = _mm256_permute2f128_ps(a, b, 0x20);
            half.v[i + 1] = _mm256_permute2f128_ps(a, b, 0x31);
        }
    }
    return half;
}

INSTANCE struct half load_half(enum gk_code code, const float *columns, uint32_t i_half)
{
    struct half half;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t i_n = pair_column(code, i_half, i / 2) + i % 2 * LANES;
        half.v[i] = _mm256_loadu_ps(columns + i_n);
    }
    return half;
}

/* ---- decoding ---- */

/* bfloat16 of each code, its bytes apart. */
struct table {
    uint8_t low[16];
    uint8_t high[16];
};

static const struct table signed_table = {
    {0x00, 0xe0, 0xc0, 0xa0, 0x80, 0x40, 0x00, 0x80, 0, 0x80, 0, 0x40, 0x80, 0xa0, 0xc0, 0xe0},
    {0xc1, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xbf, 0, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40}};

static const struct table unsigned_table = {
    {0, 0x80, 0x00, 0x40, 0x80, 0xa0, 0xc0, 0xe0, 0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70},
    {0, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41}};

static const struct table e2m1_table = {
    {0, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0, 0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0},
    {0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0}};

INSTANCE __m256i load_table(const uint8_t bytes[16])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)bytes));
}

INSTANCE struct decoder decoder_of(const struct host_block *block, enum gk_code code,
                                   bool has_zeros)
{
    struct decoder decoder = {0};
    if (is_nibble(code)) {
        const struct table *table = code == GK_CODE_E2M1 ? &e2m1_table
                                    : has_zeros          ? &unsigned_table
                                                         : &signed_table;
        decoder.low = load_table(table->low);
        decoder.high = load_table(table->high);
    }
    if (has_zeros) {
        decoder.zeros[0] = reorder(code, load_half(code, block->zeros, 0));
        decoder.zeros[1] = reorder(code, load_half(code, block->zeros, 1));
    }
    return decoder;
}

INSTANCE __m256 even_f32(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

INSTANCE __m256 odd_f32(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000)));
}

INSTANCE struct half decode_nibbles(const struct decoder *decoder, const uint8_t *row,
                                    uint32_t i_half)
{
    __m256i bytes = _mm256_loadu_si256((const __m256i *)row);
    bytes = i_half == 0 ? bytes : _mm256_srli_epi16(bytes, 4);
    __m256i nibbles = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    __m256i low = _mm256_shuffle_epi8(decoder->low, nibbles);
    __m256i high = _mm256_shuffle_epi8(decoder->high, nibbles);
    __m256i a = _mm256_unpacklo_epi8(low, high);
    __m256i b = _mm256_unpackhi_epi8(low, high);
    return (struct half){{even_f32(a), even_f32(b), odd_f32(a), odd_f32(b)}};
}

INSTANCE struct half decode_e4m3(const uint8_t *row)
{
    const __m256 factor = _mm256_set1_ps(E4M3_PER_HALF);
    struct half half;
    for (uint32_t i = 0; i < 4; i += 2) {
        __m256i halves = e4m3_halves(_mm_loadu_si128((const __m128i *)(row + i * LANES)));
        __m128i upper = _mm256_extracti128_si256(halves, 1);
        half.v[i] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), factor);
        half.v[i + 1] = _mm256_mul_ps(_mm256_cvtph_ps(upper), factor);
    }
    return half;
}

INSTANCE __m256 decode8(enum gk_code code, const uint8_t *row, uint32_t i_n)
{
    if (code == GK_CODE_F32) {
        return _mm256_loadu_ps((const float *)row + i_n);
    }
    if (code == GK_CODE_U8) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(row + i_n));
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    }
    __m128i bits = _mm_loadu_si128((const __m128i *)(row + i_n * 2));
    if (code == GK_CODE_F16) {
        return _mm256_cvtph_ps(bits);
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

INSTANCE struct half decode(const struct decoder *decoder, enum gk_code code, bool has_zeros,
                            const uint8_t *row, uint32_t i_half)
{
    struct half w;
    if (is_nibble(code)) {
        w = decode_nibbles(decoder, row, i_half);
    } else if (code == GK_CODE_E4M3) {
        w = decode_e4m3(row + i_half * HALF_N);
    } else {
        for (uint32_t i = 0; i < 4; i++) {
            w.v[i] = decode8(code, row, i_half * HALF_N + i * LANES);
        }
    }
    for (uint32_t i = 0; i < 4; i++) {
        if (has_zeros) {
            w.v[i] = _mm256_sub_ps(w.v[i], decoder->zeros[i_half].v[i]);
        } else if (code == GK_CODE_U8) {
            w.v[i] = _mm256_sub_ps(w.v[i], _mm256_set1_ps(128.0f));
        }
    }
    return w;
}

/* ---- sums ---- */

INSTANCE struct half zero_half(void)
{
    __m256 zero = _mm256_setzero_ps();
    return (struct half){{zero, zero, zero, zero}};
}

INSTANCE void multiply(struct half *sums, const struct half *w, __m256 x)
{
    for (uint32_t i = 0; i < 4; i++) {
        sums->v[i] = _mm256_fmadd_ps(x, w->v[i], sums->v[i]);
    }
}

static inline void add_scaled(const struct host_block *block, uint32_t i_m, uint32_t i_n,
                              __m256 acc, float *totals)
{
    __m256 scale = _mm256_loadu_ps(block->scales + i_n);
    if (block->x_scales != NULL) {
        const float *x_scale = block->x_scales + i_m * block->x_scale_stride;
        scale = _mm256_mul_ps(_mm256_broadcast_ss(x_scale), scale);
    }
    _mm256_storeu_ps(totals, _mm256_fmadd_ps(acc, scale, _mm256_loadu_ps(totals)));
}

static inline void add_whole(__m256 acc, float *totals)
{
    __m256i *sums = (__m256i *)totals;
    __m256i sum = _mm256_add_epi32(_mm256_loadu_si256(sums), _mm256_cvtps_epi32(acc));
    _mm256_storeu_si256(sums, sum);
}

static inline void add_sums(const struct host_block *block, uint32_t i_m, uint32_t i_n, __m256 acc,
                            float *totals)
{
    float *target = totals + i_m * HOST_PANEL_N + i_n;
    if (block->scales != NULL) {
        add_scaled(block, i_m, i_n, acc, target);
    } else {
        add_whole(acc, target);
    }
}

INSTANCE void finish(const struct host_block *block, enum gk_code code, uint32_t i_m,
                     uint32_t i_half, struct half sums, float *totals)
{
    sums = reorder(code, sums);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t i_n = pair_column(code, i_half, i / 2) + i % 2 * LANES;
        add_sums(block, i_m, i_n, sums.v[i], totals);
    }
}

/* ---- rows ---- */

INSTANCE void one_row(const struct host_block *block, enum gk_code code, bool has_zeros,
                      uint32_t i_m, float *totals)
{
    const uint32_t row_bytes = vector_row_bytes(code);
    struct decoder decoder = decoder_of(block, code, has_zeros);
    struct half sums[2] = {zero_half(), zero_half()};
    const float *x = block->x + i_m * block->x_stride_elems;
    const uint8_t *row = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++, row += row_bytes) {
        _mm_prefetch((const char *)row + PREFETCH_BYTES, _MM_HINT_T0);
        __m256 x_k = _mm256_broadcast_ss(x + i_k);
        for (uint32_t i_half = 0; i_half < 2; i_half++) {
            struct half w = decode(&decoder, code, has_zeros, row, i_half);
            multiply(&sums[i_half], &w, x_k);
        }
    }
    finish(block, code, i_m, 0, sums[0], totals);
    finish(block, code, i_m, 1, sums[1], totals);
}

INSTANCE void two_rows(const struct host_block *block, enum gk_code code, bool has_zeros,
                       uint32_t i_m, uint32_t i_half, float *totals)
{
    const uint32_t row_bytes = vector_row_bytes(code);
    struct decoder decoder = decoder_of(block, code, has_zeros);
    struct half sums0 = zero_half(), sums1 = zero_half();
    const float *x0 = block->x + i_m * block->x_stride_elems;
    const float *x1 = x0 + block->x_stride_elems;
    const uint8_t *row = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++, row += row_bytes) {
        struct half w = decode(&decoder, code, has_zeros, row, i_half);
        multiply(&sums0, &w, _mm256_broadcast_ss(x0 + i_k));
        multiply(&sums1, &w, _mm256_broadcast_ss(x1 + i_k));
    }
    finish(block, code, i_m, i_half, sums0, totals);
    finish(block, code, i_m + 1, i_half, sums1, totals);
}

INSTANCE void rows(const struct host_block *block, enum gk_code code, bool has_zeros, float *totals)
{
    uint32_t i_m = 0;
    for (; i_m + 2 <= block->m; i_m += 2) {
        two_rows(block, code, has_zeros, i_m, 0, totals);
        two_rows(block, code, has_zeros, i_m, 1, totals);
    }
    if (i_m < block->m) {
        one_row(block, code, has_zeros, i_m, totals);
    }
}

/* A block decoded: strips of 16 columns, so that a strip's rows lie one after another and spread
 * over the whole L1 cache. */
struct decoded {
    _Alignas(64) float w[HOST_PANEL_N / STRIP_N][HOST_BLOCK_K][STRIP_N];
};

INSTANCE void decode_block(const struct host_block *block, enum gk_code code, bool has_zeros,
                           struct decoded *decoded)
{
    struct decoder decoder = decoder_of(block, code, has_zeros);
    const uint8_t *row = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++, row += vector_row_bytes(code)) {
        for (uint32_t i_half = 0; i_half < 2; i_half++) {
            struct half w = reorder(code, decode(&decoder, code, has_zeros, row, i_half));
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t i_strip = pair_column(code, i_half, i / 2) / STRIP_N;
                _mm256_store_ps(decoded->w[i_strip][i_k] + i % 2 * LANES, w.v[i]);
            }
        }
    }
}

/* n_rows rows by one strip. */
INSTANCE void tile(const struct host_block *block, const struct decoded *decoded, uint32_t i_strip,
                   uint32_t first_m, uint32_t n_rows, float *totals)
{
    __m256 sums[TILE_ROWS][2];
    for (uint32_t i = 0; i < n_rows; i++) {
        sums[i][0] = sums[i][1] = _mm256_setzero_ps();
    }
    const float *x = block->x + first_m * block->x_stride_elems;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++) {
        const float *w = decoded->w[i_strip][i_k];
        __m256 w0 = _mm256_load_ps(w), w1 = _mm256_load_ps(w + LANES);
        for (uint32_t i = 0; i < n_rows; i++) {
            __m256 x_k = _mm256_broadcast_ss(x + i * block->x_stride_elems + i_k);
            sums[i][0] = _mm256_fmadd_ps(x_k, w0, sums[i][0]);
            sums[i][1] = _mm256_fmadd_ps(x_k, w1, sums[i][1]);
        }
    }
    /* A loop left here would keep the sums in memory, and they would be stored for every k. */
#pragma GCC unroll 6
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t i_n = i_strip * STRIP_N;
        add_sums(block, first_m + i, i_n, sums[i][0], totals);
        add_sums(block, first_m + i, i_n + LANES, sums[i][1], totals);
    }
}

static void decoded_rows(const struct host_block *block, const struct decoded *decoded,
                         float *totals)
{
    for (uint32_t i_strip = 0; i_strip < HOST_PANEL_N / STRIP_N; i_strip++) {
        uint32_t i_m = 0;
        for (; i_m + TILE_ROWS <= block->m; i_m += TILE_ROWS) {
            tile(block, decoded, i_strip, i_m, TILE_ROWS, totals);
        }
        for (; i_m + 2 <= block->m; i_m += 2) {
            tile(block, decoded, i_strip, i_m, 2, totals);
        }
        if (i_m < block->m) {
            tile(block, decoded, i_strip, i_m, 1, totals);
        }
    }
}

INSTANCE void block_of(const struct host_block *block, enum gk_code code, bool has_zeros,
                       float *totals)
{
    if (block->m >= DECODE_ROWS) {
        struct decoded decoded;
        decode_block(block, code, has_zeros, &decoded);
        decoded_rows(block, &decoded, totals);
    } else {
        rows(block, code, has_zeros, totals);
    }
}

#include "kernels/host/block_codes.h"

static const struct host_ops ops = {
    .isa = ISA_AVX2,
    .quant = &quant_avx2,
    .widen = avx2_widen,
    .narrow = avx2_narrow,
    .block = block_of_any,
};

/* Measured on Zen 3, see tests/bench/results. */
static const struct host_rates int4_rates = {.weight_gbps = 9.5, .gflops = 80.0};
static const struct host_rates int8_rates = {.weight_gbps = 14.0, .gflops = 80.0};
static const struct host_rates fp8_rates = {.weight_gbps = 8.5, .gflops = 75.0};
static const struct host_rates fp4_rates = {.weight_gbps = 7.5, .gflops = 75.0};
static const struct host_rates plain_rates = {.weight_gbps = 12.0, .gflops = 80.0};

#define TILE "64n x 1m or 32n x 2m, k128"
HOST_ROW(avx2_int4_gemm_group, HOST_CODE(GK_CODE_U4), "int4", ops, int4_rates, TILE)
HOST_ROW(avx2_int8_gemm_group, HOST_CODE(GK_CODE_U8), "int8", ops, int8_rates, TILE)
HOST_ROW(avx2_fp8_gemm_group, HOST_CODE(GK_CODE_E4M3), "fp8", ops, fp8_rates, TILE)
HOST_ROW(avx2_fp4_gemm_group, HOST_CODE(GK_CODE_E2M1), "fp4", ops, fp4_rates, TILE)
HOST_ROW(avx2_plain_gemm, HOST_PLAIN, "plain", ops, plain_rates, TILE)
