/* gptq.c - the GPTQ checkpoint layout, 4 and 8 bit.
 *
 * qweight packs consecutive k of one column into a word, qzeros consecutive columns of one group;
 * both low first. Version 1 stores zero points minus one, modulo 2^bits and per field: adding a
 * constant to the whole word would carry into the neighbour. Files that declare one version and
 * hold the other exist, and would be off by one code everywhere, so the zero points of symmetric
 * weights are always checked. */
#include <string.h>

#include "gk/gk.h"
#include "kernels/format/fields.h"
#include "kernels/format/scales.h"

/* Columns whose codes are written side by side: a line of qweight holds their words, and as many
 * lines of codes stay in the first cache. */
#define TILE_COLUMNS 16u

static uint32_t fields_per_word(const struct gk_desc *desc)
{
    return 32 / gk_code_bits(desc->code);
}

static int check_shape(const struct gk_gptq *source, const struct gk_desc *desc, struct reason *why)
{
    if (!gk_code_is_int(desc->code) || desc->group_n != 1 ||
        desc->column_scale != GK_COLUMN_SCALE_NONE) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "GPTQ weights are integers with a scale for each group and column");
    }
    uint32_t n_fields = fields_per_word(desc);
    if (desc->k % n_fields != 0) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          "k %u is not a multiple of %u, the codes of one qweight word", desc->k,
                          n_fields);
    }
    if (source->qzeros != NULL && desc->n % n_fields != 0) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          "n %u is not a multiple of %u, the zero points of one qzeros word",
                          desc->n, n_fields);
    }
    if (source->qzeros == NULL && desc->has_zeros) {
        return scales_check_zeros(desc, source->qzeros, why);
    }
    return 0;
}

static int refuse_zero(const struct gk_gptq *source, const struct gk_desc *desc, uint32_t stored,
                       struct scales_place place, struct reason *why)
{
    uint32_t symmetric = 1u << (gk_code_bits(desc->code) - 1);
    uint32_t expected = source->is_v1 ? symmetric - 1 : symmetric;
    uint32_t expected_of_other = source->is_v1 ? symmetric : symmetric - 1;
    if (stored == expected_of_other) {
        return reason_set(
            why, STATUS_BAD_CHECKPOINT,
            "zero point of %s is stored as %u, but the checkpoint is declared %s, which stores %u: "
            "it looks like %s",
            place.text, stored, source->is_v1 ? "gptq (v1)" : "gptq_v2", expected,
            source->is_v1 ? "v2" : "v1");
    }
    return reason_set(why, STATUS_BAD_CHECKPOINT,
                      "zero point of %s is stored as %u instead of %u: the weight is not symmetric",
                      place.text, stored, expected);
}

static int read_zeros(const struct gk_gptq *source, struct gk_canonical *canonical,
                      uint64_t *n_wrapped, struct reason *why)
{
    const struct gk_desc *desc = &canonical->desc;
    uint32_t bits = gk_code_bits(desc->code), n_fields = 32 / bits;
    uint32_t max = (1u << bits) - 1, symmetric = 1u << (bits - 1);
    for (uint32_t i_group = 0; i_group < gk_desc_groups(desc); i_group++) {
        for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
            uint64_t i_zero = (uint64_t)i_group * desc->n + i_n;
            uint32_t word = field_word(source->qzeros, i_zero / n_fields);
            uint32_t stored = field_of(word, bits, i_n % n_fields);
            uint32_t zero = source->is_v1 ? (stored + 1) & max : stored;
            if (!desc->has_zeros && zero != symmetric) {
                return refuse_zero(source, desc, stored, scales_place(desc, i_group, i_n), why);
            }
            if (desc->has_zeros) {
                canonical->zeros[i_zero] = (uint8_t)zero;
                *n_wrapped += source->is_v1 && stored == max;
            }
        }
    }
    return 0;
}

/* Columns [first_n, end_n), all of k as it lies. */
static void read_tile(const void *qweight, const struct gk_canonical *canonical, uint32_t first_n,
                      uint32_t end_n)
{
    uint64_t n = canonical->desc.n, k = canonical->desc.k;
    uint32_t bits = gk_code_bits(canonical->desc.code), n_fields = 32 / bits;
    for (uint64_t i_word = 0; i_word < k / n_fields; i_word++) {
        for (uint32_t i_n = first_n; i_n < end_n; i_n++) {
            uint32_t word = field_word(qweight, i_word * n + i_n);
            uint8_t *codes = (uint8_t *)canonical->codes + i_n * k + i_word * n_fields;
            field_unpack(word, bits, codes);
        }
    }
}

/* The same, position i holding element perm[i]. */
static void read_tile_sorted(const void *qweight, const struct gk_canonical *canonical,
                             uint32_t first_n, uint32_t end_n)
{
    uint64_t n = canonical->desc.n, k = canonical->desc.k;
    uint32_t bits = gk_code_bits(canonical->desc.code), n_fields = 32 / bits;
    for (uint64_t i = 0; i < k; i++) {
        uint32_t i_k = canonical->perm[i];
        for (uint32_t i_n = first_n; i_n < end_n; i_n++) {
            uint32_t word = field_word(qweight, i_k / n_fields * n + i_n);
            ((uint8_t *)canonical->codes)[i_n * k + i] = field_of(word, bits, i_k % n_fields);
        }
    }
}

static void read_codes(const void *qweight, const struct gk_canonical *canonical)
{
    uint32_t n = canonical->desc.n;
    for (uint32_t first_n = 0; first_n < n; first_n += TILE_COLUMNS) {
        uint32_t end_n = n - first_n < TILE_COLUMNS ? n : first_n + TILE_COLUMNS;
        if (canonical->desc.has_perm) {
            read_tile_sorted(qweight, canonical, first_n, end_n);
        } else {
            read_tile(qweight, canonical, first_n, end_n);
        }
    }
}

int gk_gptq_read(const struct gk_gptq *source, struct gk_canonical *canonical,
                 uint64_t *ret_n_wrapped, struct reason *why)
{
    uint64_t n_wrapped = 0;
    int r = check_shape(source, &canonical->desc, why);
    if (r == 0 && source->qzeros != NULL) {
        r = read_zeros(source, canonical, &n_wrapped, why);
    }
    if (r == 0) {
        r = scales_read(source->scales, SCALE_ORDER_GROUPS, canonical, why);
    }
    if (r != 0) {
        return r;
    }
    if (canonical->codes != NULL) {
        read_codes(source->qweight, canonical);
    }
    if (ret_n_wrapped != NULL) {
        *ret_n_wrapped = n_wrapped;
    }
    return 0;
}
