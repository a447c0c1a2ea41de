/* test-ct-packed.c - the reader of compressed-tensors "pack-quantized": rows packed along k, zero
 * points along n, rows and columns that do not fill their last word, act-order. */
#include <string.h>

#include "cmocka_all.h"
#include "reader_case.h"

struct packed_case {
    struct reader_case reader;
    struct gk_ct_packed source;
    int64_t weight_shape[2];
};

static void pack(struct packed_case *packed)
{
    struct reader_case *reader = &packed->reader;
    const struct gk_desc *desc = &reader->desc;
    uint32_t bits = gk_code_bits(desc->code), fields = 32 / bits;
    uint32_t n_groups = gk_desc_groups(desc), n_columns = gk_desc_scale_columns(desc);
    uint32_t row_words = (desc->k + fields - 1) / fields;
    uint8_t *weight = reader_tensor(reader, (uint64_t)desc->n * row_words * 4);
    uint8_t *zeros =
        reader_tensor(reader, (uint64_t)(n_columns + fields - 1) / fields * n_groups * 4);
    for (uint32_t i = 0; i < desc->n * desc->k; i++) {
        uint64_t i_bit = (uint64_t)(i / desc->k) * row_words * 32 + i % desc->k * bits;
        reader_put(weight, i_bit, bits, reader->codes[i]);
    }
    for (uint32_t i = 0; i < n_groups * n_columns; i++) {
        uint32_t i_group = i / n_columns, i_column = i % n_columns;
        uint64_t i_bit = (uint64_t)(i_column / fields * n_groups + i_group) * 32;
        reader_put(zeros, i_bit + i_column % fields * bits, bits, reader->zeros[i]);
    }
    packed->source.weight_packed = weight;
    packed->source.weight_zero_point = desc->has_zeros ? zeros : NULL;
}

static void init(struct packed_case *packed, const struct gk_desc *desc)
{
    struct random random = {4};
    reader_case_init(&packed->reader, desc, &random);
    packed->weight_shape[0] = desc->n;
    packed->weight_shape[1] = desc->k;
    pack(packed);
    packed->source.weight_scale = reader_scales_by_column(&packed->reader);
    packed->source.weight_shape = packed->weight_shape;
}

static int read_packed(struct packed_case *packed)
{
    return gk_ct_packed_read(&packed->source, &packed->reader.canonical, &packed->reader.why);
}

static struct gk_desc desc_packed(uint32_t group_n, uint32_t group_k)
{
    struct gk_desc desc = desc_int4(71, 101, group_k, DTYPE_BF16, DTYPE_NONE);
    desc.group_n = group_n;
    return desc;
}

static void check(const struct gk_desc *desc)
{
    struct packed_case packed;
    init(&packed, desc);
    if (desc->has_perm) {
        enum gk_g_idx kind;
        assert_int_equal(gk_g_idx_read(packed.reader.g_idx, desc->k, desc->group_k, true,
                                       packed.reader.canonical.perm, &kind, NULL),
                         0);
    }
    reader_assert(&packed.reader, read_packed(&packed));
    reader_case_finish(&packed.reader);
}

static void test_every_kind(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct gk_desc desc = desc_packed(1, 32);
        desc.code = (i & 1) != 0 ? GK_CODE_U8 : GK_CODE_U4;
        desc.has_zeros = (i & 2) != 0;
        desc.has_perm = (i & 4) != 0;
        check(&desc);
    }
    struct gk_desc channel = desc_packed(1, 101);
    channel.has_zeros = true;
    check(&channel);
    struct gk_desc tensor = desc_packed(71, 101);
    check(&tensor);
}

static void test_refusals(void **state)
{
    (void)state;
    struct gk_desc desc = desc_packed(1, 32);
    desc.has_zeros = true;
    struct packed_case packed;
    init(&packed, &desc);
    struct reader_case *reader = &packed.reader;
    packed.weight_shape[1] = 104;
    reader_assert_refused(reader, read_packed(&packed), STATUS_BAD_CHECKPOINT,
                          "weight_shape says 71 x 104; the other tensors make 71 x 101");
    packed.source.weight_shape = NULL;
    elem_store((void *)(uintptr_t)packed.source.weight_scale, DTYPE_BF16, 5 * 4 + 2, -1.0);
    reader_assert_refused(reader, read_packed(&packed), STATUS_BAD_CHECKPOINT,
                          "scale of group 2, column 5 is -1;");
    packed.source.weight_zero_point = NULL;
    reader_assert_refused(reader, read_packed(&packed), STATUS_BAD_CHECKPOINT, "there are none");
    reader->canonical.desc.group_n = 71;
    reader_assert_refused(reader, read_packed(&packed), STATUS_UNSUPPORTED,
                          "zero point of a whole tensor");
    reader->canonical.desc.group_n = 16;
    reader_assert_refused(reader, read_packed(&packed), STATUS_UNSUPPORTED, "groups, rows");
    reader->canonical.desc.group_n = 1;
    reader->canonical.desc.code = GK_CODE_E2M1;
    reader_assert_refused(reader, read_packed(&packed), STATUS_UNSUPPORTED, "integers");
    reader_case_finish(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
