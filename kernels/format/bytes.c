/* bytes.c - layouts that store a byte a weight, (n, k), as they are: INT8 and FP8. */
#include <string.h>

#include "gk/gk.h"
#include "kernels/format/scales.h"

#define SIGN 0x80u /* added modulo 256 by flipping it: -128..127 becomes 0..255 */

/* ---- INT8 ---- */

static void read_zeros(const uint8_t *weight_zero_point, struct gk_canonical *canonical)
{
    uint64_t n_groups = gk_desc_groups(&canonical->desc);
    uint64_t n_columns = gk_desc_scale_columns(&canonical->desc);
    for (uint64_t i_group = 0; i_group < n_groups; i_group++) {
        for (uint64_t i_column = 0; i_column < n_columns; i_column++) {
            uint8_t stored = weight_zero_point[i_column * n_groups + i_group];
            canonical->zeros[i_group * n_columns + i_column] = stored ^ SIGN;
        }
    }
}

int gk_int8_read(const struct gk_int8 *source, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_desc *desc = &canonical->desc;
    if (desc->code != GK_CODE_U8 || desc->has_perm || desc->column_scale != GK_COLUMN_SCALE_NONE) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "INT8 weights are 8-bit integers without act-order");
    }
    int r = scales_check_zeros(desc, source->weight_zero_point, why);
    if (r == 0) {
        r = scales_read(source->weight_scale, SCALE_ORDER_COLUMNS, canonical, why);
    }
    if (r != 0) {
        return r;
    }
    if (desc->has_zeros) {
        read_zeros(source->weight_zero_point, canonical);
    }
    const uint8_t *bytes = source->weight;
    uint8_t *codes = canonical->codes;
    for (uint64_t i = 0; codes != NULL && i < (uint64_t)desc->n * desc->k; i++) {
        codes[i] = bytes[i] ^ SIGN;
    }
    return 0;
}

/* ---- FP8 ---- */

static int check_values(const struct gk_canonical *canonical, struct reason *why)
{
    const uint8_t *codes = canonical->codes;
    uint64_t k = canonical->desc.k;
    for (uint64_t i = 0; i < canonical->desc.n * k; i++) {
        if ((codes[i] & 0x7f) == 0x7f) {
            return reason_set(why, STATUS_BAD_CHECKPOINT, "weight of row %u, element %u is NaN",
                              (uint32_t)(i / k), (uint32_t)(i % k));
        }
    }
    return 0;
}

int gk_fp8_read(const struct gk_fp8 *source, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_desc *desc = &canonical->desc;
    if (desc->code != GK_CODE_E4M3 || desc->has_perm ||
        desc->column_scale != GK_COLUMN_SCALE_NONE) {
        return reason_set(why, STATUS_UNSUPPORTED, "FP8 weights are E4M3 without act-order");
    }
    int r = scales_read(source->weight_scale, SCALE_ORDER_COLUMNS, canonical, why);
    if (r != 0 || canonical->codes == NULL) {
        return r;
    }
    memcpy(canonical->codes, source->weight, (uint64_t)desc->n * desc->k);
    return check_values(canonical, why);
}
