/* awq.c - the AWQ checkpoint layout, version "gemm", 4 bit.
 *
 * Codes and zero points are packed along n, eight columns a word, in an order that suits the
 * kernels they were written for: column i of a word lies in nibble NIBBLE_OF[i]. */
#include "gk/gk.h"
#include "kernels/format/fields.h"
#include "kernels/format/scales.h"

#define CODES_PER_WORD 8u
#define BITS           4u

static const uint8_t NIBBLE_OF[CODES_PER_WORD] = {0, 4, 1, 5, 2, 6, 3, 7};

static int check_shape(const struct gk_awq *source, const struct gk_desc *desc, struct reason *why)
{
    if (desc->code != GK_CODE_U4 || desc->group_n != 1 || desc->has_perm ||
        desc->column_scale != GK_COLUMN_SCALE_NONE) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "AWQ weights are 4-bit integers with a scale for each group and column, "
                          "without act-order");
    }
    if (desc->n % CODES_PER_WORD != 0) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          "n %u is not a multiple of %u, the codes of one qweight word", desc->n,
                          CODES_PER_WORD);
    }
    return scales_check_zeros(desc, source->qzeros, why);
}

static void read_zeros(const void *qzeros, struct gk_canonical *canonical)
{
    uint64_t n_zeros = (uint64_t)gk_desc_groups(&canonical->desc) * canonical->desc.n;
    for (uint64_t i = 0; i < n_zeros; i++) {
        uint32_t word = field_word(qzeros, i / CODES_PER_WORD);
        canonical->zeros[i] = field_of(word, BITS, NIBBLE_OF[i % CODES_PER_WORD]);
    }
}

/* A column of words at a time: eight rows of codes are written side by side. */
static void read_codes(const void *qweight, struct gk_canonical *canonical)
{
    uint64_t k = canonical->desc.k;
    uint64_t n_words = canonical->desc.n / CODES_PER_WORD;
    for (uint64_t i_word = 0; i_word < n_words; i_word++) {
        uint8_t *codes = (uint8_t *)canonical->codes + i_word * CODES_PER_WORD * k;
        for (uint64_t i_k = 0; i_k < k; i_k++) {
            uint32_t word = field_word(qweight, i_k * n_words + i_word);
            for (uint32_t i = 0; i < CODES_PER_WORD; i++) {
                codes[i * k + i_k] = field_of(word, BITS, NIBBLE_OF[i]);
            }
        }
    }
}

int gk_awq_read(const struct gk_awq *source, struct gk_canonical *canonical, struct reason *why)
{
    int r = check_shape(source, &canonical->desc, why);
    if (r == 0) {
        r = scales_read(source->scales, SCALE_ORDER_GROUPS, canonical, why);
    }
    if (r != 0) {
        return r;
    }
    if (canonical->desc.has_zeros) {
        read_zeros(source->qzeros, canonical);
    }
    if (canonical->codes != NULL) {
        read_codes(source->qweight, canonical);
    }
    return 0;
}
