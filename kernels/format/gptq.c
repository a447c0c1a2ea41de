/* gptq.c - the GPTQ checkpoint layout, 4 bit symmetric.
 *
 * qweight packs eight consecutive k of one column into a word, qzeros eight consecutive columns of
 * one group; both low first. Version 1 stores zero points minus one, modulo 16 and per field:
 * adding a constant to the whole word would carry into the neighbour. Files that declare one
 * version and hold the other exist, and would be off by one code everywhere, so the zero points are
 * always checked. */
#include <math.h>
#include <string.h>

#include "gk/gk.h"
#include "kernels/scalar.h"

#define CODES_PER_WORD 8u
#define ZERO           8u /* the symmetric zero point of 4 bits */

static uint32_t load_word(const void *words, uint64_t index)
{
    uint8_t bytes[4];
    memcpy(bytes, (const char *)words + index * sizeof(bytes), sizeof(bytes));
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static int check_shape(const struct gk_gptq *source, const struct gk_desc *desc, struct reason *why)
{
    if (desc->code != GK_CODE_U4 || desc->has_zeros || desc->group_n != 1) {
        return reason_set(why, STATUS_UNSUPPORTED, "GPTQ weights must be 4 bit and symmetric");
    }
    if (desc->k % CODES_PER_WORD != 0) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          "k %u is not a multiple of %u, the codes of one qweight word", desc->k,
                          CODES_PER_WORD);
    }
    if (source->qzeros != NULL && desc->n % CODES_PER_WORD != 0) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          "n %u is not a multiple of %u, the zero points of one qzeros word",
                          desc->n, CODES_PER_WORD);
    }
    return 0;
}

static int refuse_zero(bool is_v1, uint32_t stored, uint32_t i_group, uint32_t i_n,
                       struct reason *why)
{
    uint32_t expected = is_v1 ? ZERO - 1 : ZERO;
    uint32_t expected_of_other = is_v1 ? ZERO : ZERO - 1;
    if (stored == expected_of_other) {
        return reason_set(
            why, STATUS_BAD_CHECKPOINT,
            "zero point of group %u, column %u is stored as %u, but the checkpoint is "
            "declared %s, which stores %u: it looks like %s",
            i_group, i_n, stored, is_v1 ? "gptq (v1)" : "gptq_v2", expected, is_v1 ? "v2" : "v1");
    }
    return reason_set(why, STATUS_BAD_CHECKPOINT,
                      "zero point of group %u, column %u is stored as %u instead of %u: the weight "
                      "is not symmetric",
                      i_group, i_n, stored, expected);
}

static int check_zeros(const struct gk_gptq *source, const struct gk_desc *desc, struct reason *why)
{
    uint32_t n_words = desc->n / CODES_PER_WORD;
    for (uint32_t i_group = 0; i_group < gk_desc_groups(desc); i_group++) {
        for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
            uint64_t i_word = (uint64_t)i_group * n_words + i_n / CODES_PER_WORD;
            uint32_t word = load_word(source->qzeros, i_word);
            uint32_t stored = word >> 4 * (i_n % CODES_PER_WORD) & 15;
            uint32_t zero = source->is_v1 ? (stored + 1) & 15 : stored;
            if (zero != ZERO) {
                return refuse_zero(source->is_v1, stored, i_group, i_n, why);
            }
        }
    }
    return 0;
}

/* A scale of 0 is let through: quantisers write it for a group of nothing but zeros, and the
 * product is the 0 that was meant. */
static int check_scales(const struct gk_gptq *source, const struct gk_desc *desc,
                        struct reason *why)
{
    for (uint32_t i_group = 0; i_group < gk_desc_groups(desc); i_group++) {
        for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
            uint64_t i_scale = (uint64_t)i_group * desc->n + i_n;
            float scale = scalar_load(source->scales, desc->scale_dtype, i_scale);
            if (!isfinite(scale) || scale < 0.0f) {
                return reason_set(why, STATUS_BAD_CHECKPOINT,
                                  "scale of group %u, column %u is %g; it must be finite and not "
                                  "negative",
                                  i_group, i_n, (double)scale);
            }
        }
    }
    return 0;
}

static void read_codes(const struct gk_gptq *source, struct gk_canonical *canonical)
{
    uint32_t n = canonical->desc.n;
    uint64_t k = canonical->desc.k;
    for (uint64_t i_word = 0; i_word < k / CODES_PER_WORD; i_word++) {
        for (uint32_t i_n = 0; i_n < n; i_n++) {
            uint32_t word = load_word(source->qweight, i_word * n + i_n);
            uint8_t *codes = (uint8_t *)canonical->codes + i_n * k + i_word * CODES_PER_WORD;
            for (uint32_t i = 0; i < CODES_PER_WORD; i++) {
                codes[i] = (uint8_t)(word >> 4 * i & 15);
            }
        }
    }
}

int gk_gptq_read(const struct gk_gptq *source, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_desc *desc = &canonical->desc;
    int r = check_shape(source, desc, why);
    if (r == 0 && source->qzeros != NULL) {
        r = check_zeros(source, desc, why);
    }
    if (r == 0) {
        r = check_scales(source, desc, why);
    }
    if (r != 0) {
        return r;
    }
    read_codes(source, canonical);
    memcpy(canonical->scales, source->scales,
           (uint64_t)gk_desc_groups(desc) * desc->n * dtype_bytes(desc->scale_dtype));
    return 0;
}
