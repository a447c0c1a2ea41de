/* ct_packed.c - the compressed-tensors layout "pack-quantized", 4 and 8 bit.
 *
 * Rows of W are packed on their own, along k; zero points along n. Both are signed in the model and
 * stored with 2^(bits-1) added, so a symmetric nibble is GPTQ's. Rows and columns that do not fill
 * their last word leave its high fields unused. */
#include <string.h>

#include "gk/gk.h"
#include "ipc/base/num.h"
#include "kernels/format/fields.h"
#include "kernels/format/scales.h"

static int64_t load_i64(const void *array, uint64_t index)
{
    uint64_t low = field_word(array, index * 2), high = field_word(array, index * 2 + 1);
    return (int64_t)(high << 32 | low);
}

static int check_weight_shape(const void *weight_shape, const struct gk_desc *desc,
                              struct reason *why)
{
    int64_t n = load_i64(weight_shape, 0), k = load_i64(weight_shape, 1);
    if (n == desc->n && k == desc->k) {
        return 0;
    }
    return reason_set(why, STATUS_BAD_CHECKPOINT,
                      "weight_shape says %lld x %lld; the other tensors make %u x %u", (long long)n,
                      (long long)k, desc->n, desc->k);
}

static int check_shape(const struct gk_ct_packed *source, const struct gk_desc *desc,
                       struct reason *why)
{
    if (!gk_code_is_int(desc->code) || (desc->group_n != 1 && desc->group_n != desc->n) ||
        desc->column_scale != GK_COLUMN_SCALE_NONE) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "pack-quantized weights are integers with scales for groups, rows or the "
                          "whole tensor");
    }
    if (desc->has_zeros && desc->group_n != 1) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "pack-quantized weights with one zero point of a whole tensor");
    }
    if (source->weight_shape != NULL) {
        int r = check_weight_shape(source->weight_shape, desc, why);
        if (r != 0) {
            return r;
        }
    }
    return scales_check_zeros(desc, source->weight_zero_point, why);
}

static void read_zeros(const void *weight_zero_point, struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint32_t bits = gk_code_bits(desc->code), n_fields = 32 / bits;
    uint64_t n_groups = gk_desc_groups(desc), n_columns = gk_desc_scale_columns(desc);
    for (uint64_t i_group = 0; i_group < n_groups; i_group++) {
        for (uint64_t i_column = 0; i_column < n_columns; i_column++) {
            uint32_t word = field_word(weight_zero_point, i_column / n_fields * n_groups + i_group);
            uint32_t i_field = (uint32_t)(i_column % n_fields);
            canonical->zeros[i_group * n_columns + i_column] = field_of(word, bits, i_field);
        }
    }
}

static void read_row(const char *words, const struct gk_desc *desc, uint8_t *codes)
{
    uint32_t bits = gk_code_bits(desc->code), n_fields = 32 / bits;
    uint32_t n_whole = desc->k / n_fields * n_fields;
    for (uint32_t i = 0; i < n_whole; i += n_fields) {
        field_unpack(field_word(words, i / n_fields), bits, codes + i);
    }
    for (uint32_t i = n_whole; i < desc->k; i++) {
        codes[i] = field_of(field_word(words, i / n_fields), bits, i % n_fields);
    }
}

static void read_row_sorted(const char *words, const struct gk_canonical *canonical, uint8_t *codes)
{
    uint32_t bits = gk_code_bits(canonical->desc.code), n_fields = 32 / bits;
    for (uint32_t i = 0; i < canonical->desc.k; i++) {
        uint32_t i_k = canonical->perm[i];
        codes[i] = field_of(field_word(words, i_k / n_fields), bits, i_k % n_fields);
    }
}

static void read_codes(const char *words, const struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t row_bytes = num_div_up(desc->k, 32 / gk_code_bits(desc->code)) * 4;
    for (uint64_t i_n = 0; i_n < desc->n; i_n++) {
        uint8_t *codes = (uint8_t *)canonical->codes + i_n * desc->k;
        if (desc->has_perm) {
            read_row_sorted(words + i_n * row_bytes, canonical, codes);
        } else {
            read_row(words + i_n * row_bytes, desc, codes);
        }
    }
}

int gk_ct_packed_read(const struct gk_ct_packed *source, struct gk_canonical *canonical,
                      struct reason *why)
{
    const struct gk_desc *desc = &canonical->desc;
    int r = check_shape(source, desc, why);
    if (r == 0) {
        r = scales_read(source->weight_scale, SCALE_ORDER_COLUMNS, canonical, why);
    }
    if (r != 0) {
        return r;
    }
    if (desc->has_zeros) {
        read_zeros(source->weight_zero_point, canonical);
    }
    if (canonical->codes != NULL) {
        read_codes(source->weight_packed, canonical);
    }
    return 0;
}
