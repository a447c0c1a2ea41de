/* quant.h - rows of activations as the schemes of gk_act quantise them. The rules are in
 * kernels/NUMERICS.md, "Quantised activations"; nothing in them depends on an order, so that a
 * device kernel can give the same bits.
 *
 * Pure, no allocation; any thread. */
#pragma once

#include "gk/gk.h"

/* quant_scales() - how many scales a quantised row of desc has: one, or one for each
 * GK_ACT_GROUP_K of k (FP8_GROUP). 0 for GK_ACT_FLOAT. */
uint32_t quant_scales(const struct gk_desc *desc);

/* The loops over elements, for an instruction set. All sets give the same bits.
 *   largest     the largest |x|; an infinity or a NaN if there is one
 *   range       the smallest and the largest of x and 0; not finite if there is such an element
 *   fp8_codes   e4m3 of x / scale
 *   int8_codes  round(x / scale) + zero, saturated; of a NaN anything */
struct quant_ops {
    float (*largest)(const float *x, uint32_t n);
    void (*range)(const float *x, uint32_t n, float *ret_low, float *ret_high);
    void (*fp8_codes)(const float *restrict x, uint32_t n, float scale, uint8_t *restrict codes);
    void (*int8_codes)(const float *restrict x, uint32_t n, float scale, int32_t zero,
                       uint8_t *restrict codes);
};

extern const struct quant_ops quant_portable;
extern const struct quant_ops quant_avx2; /* on x86-64 */

/* quant_row() - quantise one row of x by desc->act, which is not GK_ACT_FLOAT.
 *
 * x (k) is not changed; codes (k) are e4m3 or signed bytes; scales (quant_scales()) are positive
 * and finite, or NaN where the row of y must be NaN; of *_TENSOR act_scale, or that NaN.
 * Return: the zero point, 0 in symmetric schemes. x[i] is about scale * (code - zero).
 * x, codes and scales must not overlap. */
int32_t quant_row(const struct quant_ops *ops, const struct gk_desc *desc, const float *x,
                  uint8_t *codes, float *scales);
