/* avx2_int4.c - 4-bit weights on AVX2.
 *
 *   total[n] = fma(sum_k x[k] * (code[k][n] - 8), scale[n], total[n])   lanes run over n
 *
 * Dequantising. code - 8 is exact in bfloat16, so its f32 is 16 bits and 16 zeros. A row of a panel
 * (32 bytes, 64 codes) becomes 64 f32 with two byte look-ups (low and high byte of the bfloat16)
 * for each half of the nibbles, two unpacks that join the bytes, and one shift or mask for each
 * eight f32: 19 operations a row, 2.4 for eight weights, beside the fma. The plain way (shift left,
 * shift right with sign, convert) takes 3.
 *
 * Registers. unpack leaves columns 16j + {0-3, 8-11} in one vector and 16j + {4-7, 12-15} in the
 * other; accumulators stay in that order until the end of the block, where two permutations mend
 * it. One row of x: 8 accumulators, all 64 columns. Two rows: 2 x 4, the low nibbles (columns 0-15,
 * 32-47) and the high ones in two passes over the block, which is in the L1 cache by then. */
#include <immintrin.h>

#include "kernels/host/rows.h"
#include "kernels/host/vector.h"

#define ROW_BYTES      32u
#define PREFETCH_BYTES 2048u /* ahead; 512 to 4096 measure alike, none is a tenth slower */

/* Low and high byte of bfloat16(code - 8). */
struct tables {
    __m256i low;
    __m256i high;
};

static inline struct tables load_tables(void)
{
    __m128i low =
        _mm_setr_epi8(0x00, (char)0xe0, (char)0xc0, (char)0xa0, (char)0x80, 0x40, 0x00, (char)0x80,
                      0x00, (char)0x80, 0x00, 0x40, (char)0x80, (char)0xa0, (char)0xc0, (char)0xe0);
    __m128i high =
        _mm_setr_epi8((char)0xc1, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0,
                      (char)0xc0, (char)0xbf, 0x00, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40);
    return (struct tables){_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high)};
}

/* Columns of one nibble of every byte: 16 of the even bytes, 16 of the odd ones. */
struct weights32 {
    __m256 even_a, even_b;
    __m256 odd_a, odd_b;
};

static inline __m256 even_f32(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

static inline __m256 odd_f32(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000)));
}

static inline struct weights32 dequant(const struct tables *tables, __m256i nibbles)
{
    __m256i low = _mm256_shuffle_epi8(tables->low, nibbles);
    __m256i high = _mm256_shuffle_epi8(tables->high, nibbles);
    __m256i a = _mm256_unpacklo_epi8(low, high);
    __m256i b = _mm256_unpackhi_epi8(low, high);
    return (struct weights32){even_f32(a), even_f32(b), odd_f32(a), odd_f32(b)};
}

static inline __m256i low_nibbles(__m256i bytes)
{
    return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}

static inline __m256i high_nibbles(__m256i bytes)
{
    return low_nibbles(_mm256_srli_epi16(bytes, 4));
}

/* One row's sums over 32 columns, in the order of struct weights32. */
struct sums32 {
    __m256 even_a, even_b;
    __m256 odd_a, odd_b;
};

static inline void multiply(struct sums32 *sums, const struct weights32 *w, __m256 x)
{
    sums->even_a = _mm256_fmadd_ps(x, w->even_a, sums->even_a);
    sums->even_b = _mm256_fmadd_ps(x, w->even_b, sums->even_b);
    sums->odd_a = _mm256_fmadd_ps(x, w->odd_a, sums->odd_a);
    sums->odd_b = _mm256_fmadd_ps(x, w->odd_b, sums->odd_b);
}

static inline struct sums32 zero_sums(void)
{
    __m256 zero = _mm256_setzero_ps();
    return (struct sums32){zero, zero, zero, zero};
}

static inline void scale8(float *totals, const float *scales, __m256 acc)
{
    __m256 total = _mm256_loadu_ps(totals);
    _mm256_storeu_ps(totals, _mm256_fmadd_ps(acc, _mm256_loadu_ps(scales), total));
}

static inline void scale16(float *totals, const float *scales, __m256 a, __m256 b)
{
    scale8(totals, scales, _mm256_permute2f128_ps(a, b, 0x20));
    scale8(totals + 8, scales + 8, _mm256_permute2f128_ps(a, b, 0x31));
}

/* first: 0 for the low nibbles' columns, 16 for the high ones'. */
static inline void finish(float *totals, const float *scales, uint32_t first,
                          const struct sums32 *sums)
{
    scale16(totals + first, scales + first, sums->even_a, sums->even_b);
    scale16(totals + first + 32, scales + first + 32, sums->odd_a, sums->odd_b);
}

static void one_row(const struct host_block *block, const float *x, float *totals)
{
    struct tables tables = load_tables();
    struct sums32 low = zero_sums();
    struct sums32 high = zero_sums();
    const uint8_t *row = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++, row += ROW_BYTES) {
        _mm_prefetch((const char *)row + PREFETCH_BYTES, _MM_HINT_T0);
        __m256i bytes = _mm256_loadu_si256((const __m256i *)row);
        __m256 x_k = _mm256_broadcast_ss(x + i_k);
        struct weights32 w = dequant(&tables, low_nibbles(bytes));
        multiply(&low, &w, x_k);
        w = dequant(&tables, high_nibbles(bytes));
        multiply(&high, &w, x_k);
    }
    finish(totals, block->scales, 0, &low);
    finish(totals, block->scales, 16, &high);
}

static inline void two_rows(const struct host_block *block, const float *x, uint32_t first,
                            float *totals)
{
    struct tables tables = load_tables();
    struct sums32 sums0 = zero_sums();
    struct sums32 sums1 = zero_sums();
    const float *x1 = x + block->x_stride_elems;
    const uint8_t *row = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++, row += ROW_BYTES) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)row);
        struct weights32 w =
            dequant(&tables, first == 0 ? low_nibbles(bytes) : high_nibbles(bytes));
        multiply(&sums0, &w, _mm256_broadcast_ss(x + i_k));
        multiply(&sums1, &w, _mm256_broadcast_ss(x1 + i_k));
    }
    finish(totals, block->scales, first, &sums0);
    finish(totals + HOST_PANEL_N, block->scales, first, &sums1);
}

static void int4_block(const struct host_block *block, float *totals)
{
    const float *x = block->x;
    uint32_t i_m = 0;
    for (; i_m + 2 <= block->m; i_m += 2) {
        two_rows(block, x, 0, totals);
        two_rows(block, x, 16, totals);
        x += 2 * block->x_stride_elems;
        totals += 2 * HOST_PANEL_N;
    }
    if (i_m < block->m) {
        one_row(block, x, totals);
    }
}

static const struct host_ops ops = {
    .isa = ISA_AVX2,
    .widen = avx2_widen,
    .narrow = avx2_narrow,
    .int4_block = int4_block,
};

/* Measured on Zen 3, see tests/bench/results. */
static const struct host_rates rates = {.weight_gbps = 9.5, .gflops = 50.0};

HOST_ROW(avx2_int4_gemm_group, false, ops, rates, "64n x 1m or 32n x 2m, k128")
