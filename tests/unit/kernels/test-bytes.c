/* test-bytes.c - the readers of a byte a weight: INT8 and FP8, scales of every extent (cases T12,
 * T13, T14). */
#include <math.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "reader_case.h"

static struct gk_desc desc_bytes(enum gk_code code, uint32_t group_n, uint32_t group_k)
{
    return (struct gk_desc){.n = 200,
                            .k = 192,
                            .code = code,
                            .group_n = group_n,
                            .group_k = group_k,
                            .scale_dtype = DTYPE_F32};
}

/* ---- INT8 ---- */

struct int8_case {
    struct reader_case reader;
    struct gk_int8 source;
};

static void init_int8(struct int8_case *int8, const struct gk_desc *desc)
{
    struct random random = {5};
    struct reader_case *reader = &int8->reader;
    reader_case_init(reader, desc, &random);
    uint8_t *weight = reader_tensor(reader, (uint64_t)desc->n * desc->k);
    for (uint32_t i = 0; i < desc->n * desc->k; i++) {
        weight[i] = (uint8_t)(reader->codes[i] - 128);
    }
    int8->source.weight = weight;
    int8->source.weight_scale = reader_scales_by_column(reader);
    int8->source.weight_zero_point = desc->has_zeros ? reader_zeros_by_column(reader, 128) : NULL;
}

static int read_int8(struct int8_case *int8)
{
    return gk_int8_read(&int8->source, &int8->reader.canonical, &int8->reader.why);
}

static void test_int8(void **state)
{
    (void)state;
    static const uint32_t extents[][2] = {{1, 192}, {200, 192}, {1, 64}, {128, 128}};
    for (uint32_t i = 0; i < 2 * ARRAY_LENGTH(extents); i++) {
        struct gk_desc desc = desc_bytes(GK_CODE_U8, extents[i / 2][0], extents[i / 2][1]);
        desc.has_zeros = i % 2 != 0;
        struct int8_case int8;
        init_int8(&int8, &desc);
        reader_assert(&int8.reader, read_int8(&int8));
        reader_case_finish(&int8.reader);
    }
}

static void test_int8_values(void **state)
{
    (void)state;
    struct gk_desc desc = desc_bytes(GK_CODE_U8, 1, 192);
    desc.has_zeros = true;
    struct int8_case int8;
    init_int8(&int8, &desc);
    float scale = 0.5f;
    memcpy((void *)(uintptr_t)int8.source.weight_scale, &scale, sizeof(scale));
    ((int8_t *)(uintptr_t)int8.source.weight)[0] = -128;
    ((int8_t *)(uintptr_t)int8.source.weight_zero_point)[0] = 3;
    assert_int_equal(read_int8(&int8), 0);
    assert_true(gk_canonical_value(&int8.reader.canonical, 0, 0) == 0.5 * (-128 - 3));
    reader_case_finish(&int8.reader);
}

static void test_int8_refusals(void **state)
{
    (void)state;
    struct gk_desc desc = desc_bytes(GK_CODE_U8, 128, 128);
    struct int8_case int8;
    init_int8(&int8, &desc);
    struct reader_case *reader = &int8.reader;
    float bad = -1.0f;
    memcpy((char *)(uintptr_t)int8.source.weight_scale + 3 * sizeof(bad), &bad, sizeof(bad));
    reader_assert_refused(reader, read_int8(&int8), STATUS_BAD_CHECKPOINT,
                          "scale of group 1, columns 128 to 199 is -1;");
    int8.source.weight_zero_point = int8.source.weight;
    reader_assert_refused(reader, read_int8(&int8), STATUS_BAD_CHECKPOINT, "declared symmetric");
    reader->canonical.desc.code = GK_CODE_U4;
    reader_assert_refused(reader, read_int8(&int8), STATUS_UNSUPPORTED, "8-bit integers");
    reader_case_finish(reader);
}

/* ---- FP8 ---- */

struct fp8_case {
    struct reader_case reader;
    uint8_t *weight, *weight_scale;
};

static void init_fp8(struct fp8_case *fp8, const struct gk_desc *desc)
{
    struct random random = {6};
    struct reader_case *reader = &fp8->reader;
    reader_case_init(reader, desc, &random);
    uint64_t n_codes = (uint64_t)desc->n * desc->k;
    for (uint64_t i = 0; i < n_codes; i++) {
        reader->codes[i] = (reader->codes[i] & 0x7f) == 0x7f ? 0x7e : reader->codes[i];
    }
    fp8->weight = reader_tensor(reader, n_codes);
    memcpy(fp8->weight, reader->codes, n_codes);
    fp8->weight_scale = reader_scales_by_column(reader);
}

static int read_fp8(struct fp8_case *fp8)
{
    const struct gk_fp8 source = {fp8->weight, fp8->weight_scale};
    return gk_fp8_read(&source, &fp8->reader.canonical, &fp8->reader.why);
}

static void test_fp8(void **state)
{
    (void)state;
    static const uint32_t extents[][2] = {{200, 192}, {1, 192}, {1, 64}, {128, 128}, {32, 32}};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F8_E8M0};
    for (uint32_t i = 0; i < ARRAY_LENGTH(extents) * ARRAY_LENGTH(dtypes); i++) {
        const uint32_t *extent = extents[i / ARRAY_LENGTH(dtypes)];
        struct gk_desc desc = desc_bytes(GK_CODE_E4M3, extent[0], extent[1]);
        desc.scale_dtype = dtypes[i % ARRAY_LENGTH(dtypes)];
        struct fp8_case fp8;
        init_fp8(&fp8, &desc);
        reader_assert(&fp8.reader, read_fp8(&fp8));
        reader_case_finish(&fp8.reader);
    }
}

/* T14 (a): blocks of 128 over k 192; the second has its own scale. 0x38 is 1. */
static void test_fp8_last_block(void **state)
{
    (void)state;
    struct gk_desc desc = desc_bytes(GK_CODE_E4M3, 128, 128);
    struct fp8_case fp8;
    init_fp8(&fp8, &desc);
    memset(fp8.weight, 0x38, 200 * 192);
    static const float scales[] = {1.0f, 100.0f, 2.0f, 200.0f};
    memcpy(fp8.weight_scale, scales, sizeof(scales));
    assert_int_equal(read_fp8(&fp8), 0);
    double sums[2] = {0, 0};
    for (uint32_t i_k = 0; i_k < 192; i_k++) {
        sums[0] += gk_canonical_value(&fp8.reader.canonical, 127, i_k);
        sums[1] += gk_canonical_value(&fp8.reader.canonical, 128, i_k);
    }
    assert_true(sums[0] == 128 + 64 * 100.0);
    assert_true(sums[1] == 2 * sums[0]);
    reader_case_finish(&fp8.reader);
}

static void test_fp8_refusals(void **state)
{
    (void)state;
    struct gk_desc desc = desc_bytes(GK_CODE_E4M3, 200, 192);
    struct fp8_case fp8;
    init_fp8(&fp8, &desc);
    struct reader_case *reader = &fp8.reader;
    static const uint8_t nans[] = {0x7f, 0xff};
    for (uint32_t i = 0; i < 2; i++) {
        fp8.weight[7 * 192 + 11] = nans[i];
        reader_assert_refused(reader, read_fp8(&fp8), STATUS_BAD_CHECKPOINT,
                              "weight of row 7, element 11 is NaN");
    }
    float bad = INFINITY;
    memcpy(fp8.weight_scale, &bad, sizeof(bad));
    reader_assert_refused(reader, read_fp8(&fp8), STATUS_BAD_CHECKPOINT,
                          "scale of group 0, columns 0 to 199 is inf");
    reader->canonical.desc.has_perm = true;
    reader_assert_refused(reader, read_fp8(&fp8), STATUS_UNSUPPORTED, "act-order");
    reader_case_finish(reader);
}

/* NaN and negative scales of 8 bits. */
static void test_small_scales(void **state)
{
    (void)state;
    static const struct {
        enum dtype dtype;
        uint8_t bits;
        bool is_good;
    } cases[] = {{DTYPE_F8_E8M0, 255, false},  {DTYPE_F8_E8M0, 254, true},
                 {DTYPE_F8_E8M0, 0, true},     {DTYPE_F8_E4M3, 0x7f, false},
                 {DTYPE_F8_E4M3, 0xff, false}, {DTYPE_F8_E4M3, 0x81, false},
                 {DTYPE_F8_E4M3, 0x7e, true},  {DTYPE_F8_E4M3, 0, true}};
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct gk_desc desc = desc_bytes(GK_CODE_E4M3, 1, 32);
        desc.scale_dtype = cases[i].dtype;
        struct fp8_case fp8;
        init_fp8(&fp8, &desc);
        fp8.weight_scale[3 * 6 + 4] = cases[i].bits;
        int status = read_fp8(&fp8);
        if (cases[i].is_good) {
            assert_int_equal(status, 0);
        } else {
            reader_assert_refused(&fp8.reader, status, STATUS_BAD_CHECKPOINT,
                                  "scale of group 4, column 3 is ");
        }
        reader_case_finish(&fp8.reader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int8),           cmocka_unit_test(test_int8_values),
        cmocka_unit_test(test_int8_refusals),  cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_fp8_last_block), cmocka_unit_test(test_fp8_refusals),
        cmocka_unit_test(test_small_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
