/* portable.c - host kernels in plain C, for any CPU, and the yardstick for the others: all host
 * kernels give the same bits.
 *
 * fmaf() is one rounding by the C standard. Without FMA hardware it is a slow library call; adding
 * a product that was rounded before would be quicker and give other bits. */
#include <math.h>
#include <string.h>

#include "ipc/base/num.h"
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

/* w: (n_k, 64). The weights of the block, exactly. */
static void dequant_int4(const struct host_block *block, float *w)
{
    const uint8_t *byte = block->weights;
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++, w += HOST_PANEL_N) {
        for (uint32_t i = 0; i < WORDS_PER_ROW; i++, byte += 2) {
            w[i] = (float)((byte[0] & 15) - 8);
            w[i + 16] = (float)((byte[0] >> 4) - 8);
            w[i + 32] = (float)((byte[1] & 15) - 8);
            w[i + 48] = (float)((byte[1] >> 4) - 8);
        }
    }
}

static void multiply(const struct host_block *block, const float *w, const float *x, float *acc)
{
    memset(acc, 0, HOST_PANEL_N * sizeof(*acc));
    for (uint32_t i_k = 0; i_k < block->n_k; i_k++, w += HOST_PANEL_N) {
        for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
            acc[i_n] = fmaf(x[i_k], w[i_n], acc[i_n]);
        }
    }
}

static void int4_block(const struct host_block *block, float *totals)
{
    float w[HOST_BLOCK_K * HOST_PANEL_N];
    float acc[HOST_PANEL_N];
    dequant_int4(block, w);
    for (uint32_t i_m = 0; i_m < block->m; i_m++, totals += HOST_PANEL_N) {
        multiply(block, w, block->x + i_m * block->x_stride_elems, acc);
        for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
            totals[i_n] = fmaf(acc[i_n], block->scales[i_n], totals[i_n]);
        }
    }
}

static void plain_block(const struct host_block *block, float *totals)
{
    float w[HOST_BLOCK_K * HOST_PANEL_N];
    float acc[HOST_PANEL_N];
    widen(block->weights, block->value_dtype, (uint64_t)block->n_k * HOST_PANEL_N, w);
    for (uint32_t i_m = 0; i_m < block->m; i_m++, totals += HOST_PANEL_N) {
        multiply(block, w, block->x + i_m * block->x_stride_elems, acc);
        for (uint32_t i_n = 0; i_n < HOST_PANEL_N; i_n++) {
            totals[i_n] += acc[i_n];
        }
    }
}

static const struct host_ops ops = {
    .isa = ISA_PORTABLE,
    .widen = widen,
    .narrow = narrow,
    .int4_block = int4_block,
    .plain_block = plain_block,
};

/* A library call for each multiply-add, on a CPU with FMA hardware. */
static const struct host_rates rates = {.weight_gbps = 0.3, .gflops = 1.0};

HOST_ROW(portable_int4_gemm_group, false, ops, rates, "64n x 1m, k128")
HOST_ROW(portable_plain_gemm, true, ops, rates, "64n x 1m, k128")
