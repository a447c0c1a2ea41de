/* portable.c - host kernels in plain C, for any CPU, and the yardstick for the others: all host
 * kernels give the same bits.
 *
 * fmaf() is one rounding by the C standard. Without FMA hardware it is a slow library call; adding
 * a product that was rounded before would be quicker and give other bits. */
#include <math.h>
#include <string.h>

#include "ipc/base/f8.h"
#include "ipc/base/half.h"
#include "kernels/host/panel.h"
#include "kernels/host/rows.h"
#include "kernels/scalar.h"

#define WORDS_PER_ROW (HOST_PANEL_N / 4)

static void widen(const void *source, enum dtype dtype, uint64_t n, float *values)
{
    for (uint64_t i = 0; i < n; i++) {
        values[i] = scalar_load(source, dtype, i);
    }
}

static void narrow(const float *values, enum dtype dtype, void *target)
{
    if (dtype == DTYPE_F32) {
        for (uint32_t i = 0; i < HOST_PANEL_N; i++) {
            ((float *)target)[i] = isnan(values[i]) ? bf16_to_f32(0x7fc0) : values[i];
        }
        return;
    }
    for (uint32_t i = 0; i < HOST_PANEL_N; i++) {
        ((uint16_t *)target)[i] =
            dtype == DTYPE_F16 ? half_from_f32(values[i]) : bf16_from_f32(values[i]);
    }
}

/* ---- decoding: w is (n_k, 64) ---- */

static void split_nibbles(const uint8_t *row, uint8_t codes[HOST_PANEL_N])
{
    for (uint32_t i = 0; i < WORDS_PER_ROW; i++, row += 2) {
        codes[i] = row[0] & 15;
        codes[i + 16] = row[0] >> 4;
        codes[i + 32] = row[1] & 15;
        codes[i + 48] = row[1] >> 4;
    }
}

static float decode(const struct host_block *block, uint8_t code, uint32_t i_n)
{
    switch (block->code) {
    case GK_CODE_E4M3:
        return e4m3_to_f32(code);
    case GK_CODE_E2M1:
        return e2m1_to_f32(code);
    default:
        return (float)code - (block->zeros != NULL        ? block->zeros[i_n]
                              : block->code == GK_CODE_U4 ? 8.0f
                                                          : 128.0f);
    }
}

static void decode_block(const struct host_block *block, float *w)
{
    uint32_t bits = gk_code_bits(block->code);
    if (gk_code_is_plain(block->code)) {
        widen(block->weights, gk_code_dtype(block->code), (uint64_t)block->n_k * HOST_PANEL_N, w);
        return;
    }
    const uint8_t *row = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++, w += HOST_PANEL_N) {
        uint8_t nibbles[HOST_PANEL_N];
        if (bits == 4) {
            split_nibbles(row, nibbles);
        }
        for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
            w[i_n] = decode(block, bits == 4 ? nibbles[i_n] : row[i_n], i_n);
        }
        row += HOST_PANEL_N * bits / 8;
    }
}

/* ---- arithmetic ---- */

static void multiply(const struct host_block *block, const float *w, const float *x, float *acc)
{
    memset(acc, 0, HOST_PANEL_N * sizeof(*acc));
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++, w += HOST_PANEL_N) {
        for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
            acc[i_n] = fmaf(x[i_k], w[i_n], acc[i_n]);
        }
    }
}

static void add_scaled(const struct host_block *block, uint32_t i_m, const float *acc,
                       float *totals)
{
    float x_scale = block->x_scales != NULL ? block->x_scales[i_m * block->x_scale_stride] : 1.0f;
    for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
        totals[i_n] = fmaf(acc[i_n], x_scale * block->scales[i_n], totals[i_n]);
    }
}

static void add_whole(const float *acc, float *totals)
{
    int32_t sums[HOST_PANEL_N];
    memcpy(sums, totals, sizeof(sums));
    for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
        sums[i_n] += (int32_t)acc[i_n];
    }
    memcpy(totals, sums, sizeof(sums));
}

static void block_of_any(const struct host_block *block, float *totals)
{
    float w[HOST_BLOCK_K * HOST_PANEL_N];
    float acc[HOST_PANEL_N];
    decode_block(block, w);
    for (uint32_t i_m = 0; i_m < block->m; i_m++, totals += HOST_PANEL_N) {
        multiply(block, w, block->x + i_m * block->x_stride_elems, acc);
        if (block->scales != NULL) {
            add_scaled(block, i_m, acc, totals);
        } else {
            add_whole(acc, totals);
        }
    }
}

static const struct host_ops ops = {
    .isa = ISA_PORTABLE,
    .quant = &quant_portable,
    .widen = widen,
    .narrow = narrow,
    .block = block_of_any,
};

/* A library call for each multiply-add, on a CPU with FMA hardware. */
static const struct host_rates rates = {.weight_gbps = 0.3, .gflops = 1.0};

HOST_ROW(portable_int4_gemm_group, HOST_CODE(GK_CODE_U4), "int4", ops, rates, "64n x 1m, k128")
HOST_ROW(portable_int8_gemm_group, HOST_CODE(GK_CODE_U8), "int8", ops, rates, "64n x 1m, k128")
HOST_ROW(portable_fp8_gemm_group, HOST_CODE(GK_CODE_E4M3), "fp8", ops, rates, "64n x 1m, k128")
HOST_ROW(portable_fp4_gemm_group, HOST_CODE(GK_CODE_E2M1), "fp4", ops, rates, "64n x 1m, k128")
HOST_ROW(portable_plain_gemm, HOST_PLAIN, "plain", ops, rates, "64n x 1m, k128")
