/* reader_case.c - see reader_case.h. */
#include "reader_case.h"

#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"

static uint64_t n_scales(const struct gk_desc *desc)
{
    return (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
}

static void random_scales(struct reader_case *reader, struct random *random)
{
    enum dtype dtype = reader->desc.scale_dtype;
    for (uint64_t i = 0; i < n_scales(&reader->desc); i++) {
        if (dtype_bytes(dtype) == 1) {
            uint32_t n_values = dtype == DTYPE_F8_E4M3 ? 0x7f : 255;
            reader->scales[i] = (uint8_t)(random_next(random) % n_values);
        } else {
            elem_store(reader->scales, dtype, i, 1.5 + random_unit(random));
        }
    }
}

/* Groups keep their sizes when elements change places. */
static void random_g_idx(struct reader_case *reader, struct random *random)
{
    uint32_t k = reader->desc.k;
    for (uint32_t i = 0; i < k; i++) {
        reader->g_idx[i] = i / reader->desc.group_k;
    }
    for (uint32_t i = k - 1; i > 0 && reader->desc.has_perm; i--) {
        uint32_t j = random_next(random) % (i + 1);
        uint32_t g = reader->g_idx[i];
        reader->g_idx[i] = reader->g_idx[j];
        reader->g_idx[j] = g;
    }
}

void reader_case_init(struct reader_case *reader, const struct gk_desc *desc, struct random *random)
{
    uint32_t bits = gk_code_bits(desc->code);
    uint64_t n_codes = (uint64_t)desc->n * desc->k;
    *reader = (struct reader_case){.desc = *desc};
    reader->codes = malloc(n_codes);
    reader->zeros = malloc(n_scales(desc));
    reader->scales = malloc(n_scales(desc) * dtype_bytes(desc->scale_dtype));
    reader->g_idx = malloc(desc->k * sizeof(*reader->g_idx));
    for (uint64_t i = 0; i < n_codes; i++) {
        reader->codes[i] = (uint8_t)(random_next(random) >> (32 - bits));
    }
    for (uint64_t i = 0; i < n_scales(desc); i++) {
        uint32_t zero = desc->has_zeros ? random_next(random) >> (32 - bits) : 1u << (bits - 1);
        reader->zeros[i] = (uint8_t)zero;
    }
    random_scales(reader, random);
    random_g_idx(reader, random);
    assert_int_equal(gk_canonical_alloc(&reader->canonical, desc), 0);
}

void reader_case_finish(struct reader_case *reader)
{
    for (uint32_t i = 0; i < reader->n_tensors; i++) {
        free(reader->tensors[i]);
    }
    gk_canonical_finish(&reader->canonical);
    free(reader->codes);
    free(reader->zeros);
    free(reader->scales);
    free(reader->g_idx);
}

uint8_t *reader_tensor(struct reader_case *reader, uint64_t size_bytes)
{
    assert_true(reader->n_tensors < READER_TENSORS_MAX);
    uint8_t *memory = calloc(1, size_bytes + 1);
    assert_non_null(memory);
    reader->tensors[reader->n_tensors++] = memory;
    return memory + 1;
}

void reader_put(uint8_t *bytes, uint64_t i_bit, uint32_t n_bits, uint32_t value)
{
    for (uint32_t i = 0; i < n_bits; i++) {
        uint8_t bit = (uint8_t)(1u << (i_bit + i) % 8);
        bytes[(i_bit + i) / 8] &= (uint8_t)~bit;
        bytes[(i_bit + i) / 8] |= (value >> i & 1) != 0 ? bit : 0;
    }
}

uint8_t *reader_scales_by_column(struct reader_case *reader)
{
    uint32_t n_groups = gk_desc_groups(&reader->desc);
    uint32_t n_columns = gk_desc_scale_columns(&reader->desc);
    uint32_t elem_bytes = dtype_bytes(reader->desc.scale_dtype);
    uint8_t *tensor = reader_tensor(reader, n_scales(&reader->desc) * elem_bytes);
    for (uint32_t i_group = 0; i_group < n_groups; i_group++) {
        for (uint32_t i_column = 0; i_column < n_columns; i_column++) {
            memcpy(tensor + (i_column * n_groups + i_group) * elem_bytes,
                   reader->scales + (i_group * n_columns + i_column) * elem_bytes, elem_bytes);
        }
    }
    return tensor;
}

uint8_t *reader_zeros_by_column(struct reader_case *reader, uint8_t add)
{
    uint32_t n_groups = gk_desc_groups(&reader->desc);
    uint32_t n_columns = gk_desc_scale_columns(&reader->desc);
    uint8_t *tensor = reader_tensor(reader, n_scales(&reader->desc));
    for (uint32_t i = 0; i < n_scales(&reader->desc); i++) {
        uint32_t i_group = i / n_columns, i_column = i % n_columns;
        tensor[i_column * n_groups + i_group] = (uint8_t)(reader->zeros[i] + add);
    }
    return tensor;
}

void reader_assert(struct reader_case *reader, int status)
{
    if (status != 0) {
        fail_msg("refused: %s", reader->why.text);
    }
    const struct gk_desc *desc = &reader->desc;
    const uint8_t *codes = reader->canonical.codes;
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        for (uint32_t i = 0; i < desc->k; i++) {
            uint32_t i_k = desc->has_perm ? reader->canonical.perm[i] : i;
            assert_int_equal(reader->g_idx[i_k], i / desc->group_k);
            assert_int_equal(codes[i_n * desc->k + i], reader->codes[i_n * desc->k + i_k]);
        }
    }
    assert_memory_equal(reader->canonical.scales, reader->scales,
                        n_scales(desc) * dtype_bytes(desc->scale_dtype));
    if (desc->has_zeros) {
        assert_memory_equal(reader->canonical.zeros, reader->zeros, n_scales(desc));
    }
}

void reader_assert_refused(struct reader_case *reader, int status, int expected, const char *text)
{
    assert_int_equal(status, expected);
    assert_int_equal(reader->why.status, expected);
    if (strstr(reader->why.text, text) == NULL) {
        fail_msg("'%s' is not in: %s", text, reader->why.text);
    }
}
