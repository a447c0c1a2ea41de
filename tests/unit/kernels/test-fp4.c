/* test-fp4.c - the reader of E2M1 weights: order of nibbles, both kinds of global scale, MXFP4. */
#include <math.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "reader_case.h"

struct fp4_case {
    struct reader_case reader;
    struct gk_fp4 source;
    uint8_t *weight;
    float global_scale;
};

static struct gk_desc desc_fp4(enum gk_column_scale column_scale)
{
    bool is_mx = column_scale == GK_COLUMN_SCALE_NONE;
    return (struct gk_desc){.n = 33,
                            .k = 70,
                            .code = GK_CODE_E2M1,
                            .group_n = 1,
                            .group_k = is_mx ? 32 : 16,
                            .scale_dtype = is_mx ? DTYPE_F8_E8M0 : DTYPE_F8_E4M3,
                            .column_scale = column_scale};
}

static void init(struct fp4_case *fp4, enum gk_column_scale column_scale)
{
    struct random random = {7};
    struct gk_desc desc = desc_fp4(column_scale);
    struct reader_case *reader = &fp4->reader;
    reader_case_init(reader, &desc, &random);
    fp4->weight = reader_tensor(reader, desc.n * desc.k / 2);
    for (uint32_t i = 0; i < desc.n * desc.k; i++) {
        reader_put(fp4->weight, (uint64_t)i * 4, 4, reader->codes[i]);
    }
    fp4->global_scale = 384.0f;
    fp4->source.weight = fp4->weight;
    fp4->source.weight_scale = reader_scales_by_column(reader);
    fp4->source.global_scale =
        column_scale == GK_COLUMN_SCALE_NONE ? NULL : (const void *)&fp4->global_scale;
}

static int read_fp4(struct fp4_case *fp4)
{
    return gk_fp4_read(&fp4->source, &fp4->reader.canonical, &fp4->reader.why);
}

static void test_every_kind(void **state)
{
    (void)state;
    for (uint32_t i = GK_COLUMN_SCALE_NONE; i <= GK_COLUMN_SCALE_DIVIDES; i++) {
        struct fp4_case fp4;
        init(&fp4, (enum gk_column_scale)i);
        reader_assert(&fp4.reader, read_fp4(&fp4));
        for (uint32_t i_n = 0; i_n < 33 && i != GK_COLUMN_SCALE_NONE; i_n++) {
            assert_true(fp4.reader.canonical.column_scales[i_n] == 384.0f);
        }
        reader_case_finish(&fp4.reader);
    }
}

/* -3 (1101b) at element 1, the high nibble; scale 1.5 (0x3c); global scale 384. */
static void test_values(void **state)
{
    (void)state;
    static const double expected[] = {
        [GK_COLUMN_SCALE_MULTIPLIES] = -3 * 1.5 * 384, [GK_COLUMN_SCALE_DIVIDES] = -3 * 1.5 / 384};
    for (uint32_t i = GK_COLUMN_SCALE_MULTIPLIES; i <= GK_COLUMN_SCALE_DIVIDES; i++) {
        struct fp4_case fp4;
        init(&fp4, (enum gk_column_scale)i);
        fp4.weight[0] = 0xd0;
        *(uint8_t *)(uintptr_t)fp4.source.weight_scale = 0x3c;
        assert_int_equal(read_fp4(&fp4), 0);
        assert_true(gk_canonical_value(&fp4.reader.canonical, 0, 0) == 0.0);
        assert_true(gk_canonical_value(&fp4.reader.canonical, 0, 1) == expected[i]);
        reader_case_finish(&fp4.reader);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct fp4_case fp4;
    init(&fp4, GK_COLUMN_SCALE_DIVIDES);
    struct reader_case *reader = &fp4.reader;
    static const float bad[] = {0.0f, -1.0f, INFINITY, NAN};
    for (uint32_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        fp4.global_scale = bad[i];
        reader_assert_refused(reader, read_fp4(&fp4), STATUS_BAD_CHECKPOINT, "global scale is ");
    }
    fp4.source.global_scale = NULL;
    reader_assert_refused(reader, read_fp4(&fp4), STATUS_BAD_CHECKPOINT, "there is none");
    reader->canonical.desc.column_scale = GK_COLUMN_SCALE_NONE;
    fp4.source.global_scale = &fp4.global_scale;
    reader_assert_refused(reader, read_fp4(&fp4), STATUS_BAD_CHECKPOINT, "none is declared");
    reader->canonical.desc.k = 71;
    reader_assert_refused(reader, read_fp4(&fp4), STATUS_BAD_CHECKPOINT, "k 71 is odd");
    reader->canonical.desc.code = GK_CODE_E4M3;
    reader_assert_refused(reader, read_fp4(&fp4), STATUS_UNSUPPORTED, "E2M1");
    reader_case_finish(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
