/* fp4.c - E2M1 weights, two a byte along k: NVFP4 and MXFP4.
 *
 * The global scale of NVFP4 divides in compressed-tensors and multiplies in ModelOpt. It is kept
 * as the file has it, a copy for each row, so that rows of several modules can be fused. */
#include <math.h>

#include "gk/gk.h"
#include "kernels/format/fields.h"
#include "kernels/format/scales.h"
#include "kernels/scalar.h"

#define CODES_PER_WORD 8u

static int check_shape(const struct gk_fp4 *source, const struct gk_desc *desc, struct reason *why)
{
    if (desc->code != GK_CODE_E2M1 || desc->has_perm || desc->group_n != 1) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "FP4 weights are E2M1 with a scale for each group and row, without "
                          "act-order");
    }
    if (desc->k % 2 != 0) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          "k %u is odd, but FP4 weights are stored two a byte", desc->k);
    }
    bool has_global = desc->column_scale != GK_COLUMN_SCALE_NONE;
    if (has_global != (source->global_scale != NULL)) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          has_global ? "a global scale is declared, but there is none"
                                     : "there is a global scale, but none is declared");
    }
    return 0;
}

static int read_global(const void *global_scale, struct gk_canonical *canonical, struct reason *why)
{
    float scale = scalar_load(global_scale, DTYPE_F32, 0);
    if (!isfinite(scale) || scale <= 0.0f) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          "the global scale is %g; it must be finite and positive", (double)scale);
    }
    for (uint32_t i_n = 0; i_n < canonical->desc.n; i_n++) {
        canonical->column_scales[i_n] = scale;
    }
    return 0;
}

/* Rows are whole bytes, so W is one stream of nibbles. */
static void read_codes(const uint8_t *bytes, const struct gk_canonical *canonical)
{
    uint8_t *codes = canonical->codes;
    uint64_t n_codes = (uint64_t)canonical->desc.n * canonical->desc.k;
    uint64_t n_whole = n_codes / CODES_PER_WORD * CODES_PER_WORD;
    for (uint64_t i = 0; i < n_whole; i += CODES_PER_WORD) {
        field_unpack(field_word(bytes, i / CODES_PER_WORD), 4, codes + i);
    }
    for (uint64_t i = n_whole; i < n_codes; i++) {
        codes[i] = i % 2 == 0 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4;
    }
}

int gk_fp4_read(const struct gk_fp4 *source, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_desc *desc = &canonical->desc;
    int r = check_shape(source, desc, why);
    if (r == 0) {
        r = scales_read(source->weight_scale, SCALE_ORDER_COLUMNS, canonical, why);
    }
    if (r == 0 && source->global_scale != NULL) {
        r = read_global(source->global_scale, canonical, why);
    }
    if (r != 0 || canonical->codes == NULL) {
        return r;
    }
    read_codes(source->weight, canonical);
    return 0;
}
