/* test-gptq.c - the GPTQ reader: order of codes, both versions of zero points, act-order, refusals
 * (cases T08, T11). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "reader_case.h"

struct gptq_case {
    struct reader_case reader;
    struct gk_gptq source;
    uint8_t *qweight, *qzeros, *scales;
    uint64_t n_wrapped;
};

/* Element (k, n): field k % (32 / bits) of word (k / (32 / bits), n); zero point (group, n): field
 * n of a row. */
static void pack(struct gptq_case *gptq)
{
    struct reader_case *reader = &gptq->reader;
    const struct gk_desc *desc = &reader->desc;
    uint32_t n = desc->n, bits = gk_code_bits(desc->code), fields = 32 / bits;
    for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
        for (uint32_t i_n = 0; i_n < n; i_n++) {
            uint64_t i_bit = (uint64_t)(i_k / fields * n + i_n) * 32 + i_k % fields * bits;
            reader_put(gptq->qweight, i_bit, bits, reader->codes[i_n * desc->k + i_k]);
        }
    }
    for (uint32_t i = 0; i < gk_desc_groups(desc) * n; i++) {
        reader_put(gptq->qzeros, (uint64_t)i * bits, bits,
                   (uint32_t)reader->zeros[i] - gptq->source.is_v1);
    }
}

static void init(struct gptq_case *gptq, const struct gk_desc *desc, bool is_v1)
{
    struct random random = {1};
    struct reader_case *reader = &gptq->reader;
    reader_case_init(reader, desc, &random);
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * desc->n;
    gptq->qweight =
        reader_tensor(reader, (uint64_t)desc->n * desc->k * gk_code_bits(desc->code) / 8);
    gptq->qzeros = reader_tensor(reader, n_scales * gk_code_bits(desc->code) / 8);
    gptq->scales = reader_tensor(reader, n_scales * dtype_bytes(desc->scale_dtype));
    memcpy(gptq->scales, reader->scales, n_scales * dtype_bytes(desc->scale_dtype));
    gptq->source = (struct gk_gptq){gptq->qweight, gptq->qzeros, gptq->scales, is_v1};
    pack(gptq);
}

static int read_gptq(struct gptq_case *gptq)
{
    struct reader_case *reader = &gptq->reader;
    gptq->n_wrapped = UINT64_MAX;
    return gk_gptq_read(&gptq->source, &reader->canonical, &gptq->n_wrapped, &reader->why);
}

static struct gk_desc desc_gptq(enum gk_code code, bool has_zeros, bool has_perm)
{
    struct gk_desc desc = desc_int4(72, 200, 64, DTYPE_F16, DTYPE_NONE); /* last group of 8 */
    desc.code = code;
    desc.has_zeros = has_zeros;
    desc.has_perm = has_perm;
    return desc;
}

static void test_every_kind(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        enum gk_code code = (i & 1) != 0 ? GK_CODE_U8 : GK_CODE_U4;
        struct gk_desc desc = desc_gptq(code, (i & 2) != 0, (i & 4) != 0);
        struct gptq_case gptq;
        init(&gptq, &desc, (i & 8) != 0);
        if (desc.has_perm) {
            enum gk_g_idx kind;
            assert_int_equal(gk_g_idx_read(gptq.reader.g_idx, desc.k, desc.group_k, true,
                                           gptq.reader.canonical.perm, &kind, NULL),
                             0);
            assert_int_equal(kind, GK_G_IDX_ORDER);
        }
        reader_assert(&gptq.reader, read_gptq(&gptq));
        uint64_t n_wrapped = 0;
        for (uint32_t j = 0; j < gk_desc_groups(&desc) * desc.n; j++) {
            n_wrapped += gptq.source.is_v1 && gptq.reader.zeros[j] == 0;
        }
        assert_int_equal(gptq.n_wrapped, n_wrapped);
        reader_case_finish(&gptq.reader);
    }
}

/* T08: every code 9, scale 1, k 128. */
static double sum_of_nines(bool is_v1, bool has_zeros, uint8_t stored)
{
    struct gk_desc desc = desc_int4(128, 128, 128, DTYPE_F16, DTYPE_NONE);
    desc.has_zeros = has_zeros;
    struct gptq_case gptq;
    init(&gptq, &desc, is_v1);
    memset(gptq.qweight, 0x99, 128 * 128 / 2);
    memset(gptq.qzeros, stored * 0x11, 128 / 2);
    for (uint32_t i = 0; i < 128; i++) {
        elem_store(gptq.scales, DTYPE_F16, i, 1.0);
    }
    double sum = 0;
    assert_int_equal(read_gptq(&gptq), 0);
    for (uint32_t i_k = 0; i_k < 128; i_k++) {
        sum += gk_canonical_value(&gptq.reader.canonical, 77, i_k);
    }
    reader_case_finish(&gptq.reader);
    return sum;
}

static void test_versions(void **state)
{
    (void)state;
    assert_true(sum_of_nines(true, false, 7) == 128.0);
    assert_true(sum_of_nines(false, false, 8) == 128.0);
    assert_true(sum_of_nines(false, true, 3) == 768.0);
    assert_true(sum_of_nines(true, true, 2) == 768.0);
    assert_true(sum_of_nines(true, true, 15) == 9.0 * 128);
}

/* T08 (d): declared one version, holding the other. */
static void test_mislabelled(void **state)
{
    (void)state;
    struct gk_desc desc = desc_gptq(GK_CODE_U4, false, false);
    struct gptq_case gptq;
    init(&gptq, &desc, true);
    gptq.source.is_v1 = false;
    reader_assert_refused(&gptq.reader, read_gptq(&gptq), STATUS_BAD_CHECKPOINT, "looks like v1");
    pack(&gptq);
    assert_int_equal(read_gptq(&gptq), 0);
    gptq.source.is_v1 = true;
    reader_assert_refused(&gptq.reader, read_gptq(&gptq), STATUS_BAD_CHECKPOINT,
                          "declared gptq (v1), which stores 7: it looks like v2");
    gptq.source.qzeros = NULL;
    assert_int_equal(read_gptq(&gptq), 0);
    reader_case_finish(&gptq.reader);

    desc.has_zeros = true;
    init(&gptq, &desc, true);
    gptq.source.qzeros = NULL;
    reader_assert_refused(&gptq.reader, read_gptq(&gptq), STATUS_BAD_CHECKPOINT, "there are none");
    reader_case_finish(&gptq.reader);
}

/* Every stored value in every field: only the symmetric one passes, nothing carries into a
 * neighbour. */
static void test_each_zero(void **state)
{
    (void)state;
    struct gk_desc desc = desc_gptq(GK_CODE_U4, false, false);
    for (uint32_t is_v1 = 0; is_v1 < 2; is_v1++) {
        uint32_t good = is_v1 ? 7 : 8;
        struct gptq_case gptq;
        init(&gptq, &desc, is_v1);
        for (uint32_t i = 0; i < 16 * desc.n; i++) {
            uint32_t i_n = i / 16, stored = i % 16;
            uint64_t i_bit = (uint64_t)(desc.n + i_n) * 4;
            reader_put(gptq.qzeros, i_bit, 4, stored);
            int status = read_gptq(&gptq);
            if (stored != good) {
                char place[48];
                (void)snprintf(place, sizeof(place), "group 1, column %u ", i_n);
                reader_assert_refused(&gptq.reader, status, STATUS_BAD_CHECKPOINT, place);
            } else {
                assert_int_equal(status, 0);
            }
            reader_put(gptq.qzeros, i_bit, 4, good);
        }
        reader_case_finish(&gptq.reader);
    }
}

static void test_scales(void **state)
{
    (void)state;
    struct gk_desc desc = desc_gptq(GK_CODE_U8, true, false);
    struct gptq_case gptq;
    init(&gptq, &desc, true);
    static const double bad[] = {HUGE_VAL, -HUGE_VAL, (double)NAN, -0.5};
    for (uint32_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        elem_store(gptq.scales, DTYPE_F16, desc.n + 5, bad[i]);
        reader_assert_refused(&gptq.reader, read_gptq(&gptq), STATUS_BAD_CHECKPOINT,
                              "scale of group 1, column 5 is ");
    }
    elem_store(gptq.scales, DTYPE_F16, desc.n + 5, 0.0);
    assert_int_equal(read_gptq(&gptq), 0);
    reader_case_finish(&gptq.reader);
}

/* T12: the type of scales is the file's affair; values agree. */
static void test_scale_types(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    double values[ARRAY_LENGTH(dtypes)];
    for (uint32_t i = 0; i < ARRAY_LENGTH(dtypes); i++) {
        struct gk_desc desc = desc_int4(8, 64, 32, dtypes[i], DTYPE_NONE);
        struct gptq_case gptq;
        init(&gptq, &desc, false);
        for (uint32_t j = 0; j < 16; j++) {
            elem_store(gptq.scales, dtypes[i], j, 0.15625);
        }
        reader_put(gptq.qweight, 0, 4, 15);
        assert_int_equal(read_gptq(&gptq), 0);
        values[i] = gk_canonical_value(&gptq.reader.canonical, 0, 0);
        reader_case_finish(&gptq.reader);
        assert_true(values[i] == 7 * 0.15625);
    }
    static const enum dtype illegal[] = {DTYPE_F64, DTYPE_I32, DTYPE_F8_E4M3, DTYPE_F8_E8M0};
    for (uint32_t i = 0; i < ARRAY_LENGTH(illegal); i++) {
        struct gk_desc desc = desc_int4(8, 64, 32, illegal[i], DTYPE_NONE);
        struct reason why = REASON_NULL;
        assert_int_equal(gk_desc_check(&desc, &why), STATUS_UNSUPPORTED);
        assert_non_null(strstr(why.text, dtype_name(illegal[i])));
    }
}

static void expect_refused(const struct gk_desc *desc, int expected, const char *text)
{
    struct reader_case reader = {.canonical.desc = *desc};
    const struct gk_gptq source = {.qzeros = &source};
    int status = gk_gptq_read(&source, &reader.canonical, NULL, &reader.why);
    reader_assert_refused(&reader, status, expected, text);
}

static void test_shapes(void **state)
{
    (void)state;
    struct gk_desc desc = desc_gptq(GK_CODE_U4, false, false);
    desc.k = 204;
    expect_refused(&desc, STATUS_BAD_CHECKPOINT, "k 204 is not a multiple of 8");
    desc = desc_gptq(GK_CODE_U8, false, false);
    desc.n = 70;
    expect_refused(&desc, STATUS_BAD_CHECKPOINT, "n 70 is not a multiple of 4");
    desc = desc_gptq(GK_CODE_E4M3, false, false);
    expect_refused(&desc, STATUS_UNSUPPORTED, "integers");
    desc = desc_gptq(GK_CODE_U4, false, false);
    desc.group_n = 8;
    expect_refused(&desc, STATUS_UNSUPPORTED, "each group and column");
}

static void test_declared(void **state)
{
    (void)state;
    enum gk_code code;
    struct reader_case none = {.n_tensors = 0};
    assert_int_equal(gk_code_of_bits(4, &code, NULL), 0);
    assert_int_equal(code, GK_CODE_U4);
    assert_int_equal(gk_code_of_bits(8, &code, NULL), 0);
    assert_int_equal(code, GK_CODE_U8);
    static const uint32_t widths[] = {0, 2, 3, 16};
    for (uint32_t i = 0; i < ARRAY_LENGTH(widths); i++) {
        int status = gk_code_of_bits(widths[i], &code, &none.why);
        reader_assert_refused(&none, status, STATUS_UNSUPPORTED, "-bit codes");
    }
    assert_int_equal(gk_pack_dtype_check(NULL, NULL), 0);
    assert_int_equal(gk_pack_dtype_check("int32", NULL), 0);
    reader_assert_refused(&none, gk_pack_dtype_check("int16", &none.why), STATUS_UNSUPPORTED,
                          "'int16'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),  cmocka_unit_test(test_versions),
        cmocka_unit_test(test_mislabelled), cmocka_unit_test(test_each_zero),
        cmocka_unit_test(test_scales),      cmocka_unit_test(test_scale_types),
        cmocka_unit_test(test_shapes),      cmocka_unit_test(test_declared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
