/* test-awq.c - the AWQ reader: its order of columns in codes and zero points (case T09). */
#include <math.h>
#include <string.h>

#include "cmocka_all.h"
#include "reader_case.h"

struct awq_case {
    struct reader_case reader;
    struct gk_awq source;
    uint8_t *qweight, *qzeros, *scales;
};

/* Nibble i of a word holds its column ORDER[i]. */
static const uint32_t ORDER[] = {0, 2, 4, 6, 1, 3, 5, 7};

static void pack_rows(uint8_t *words, uint32_t n_rows, uint32_t n, const uint8_t *values,
                      uint64_t row_stride, uint64_t column_stride)
{
    for (uint32_t i = 0; i < n_rows * n; i++) {
        uint32_t row = i / n, nibble = i % 8, column = i % n / 8 * 8 + ORDER[nibble];
        reader_put(words, (uint64_t)i * 4, 4, values[row * row_stride + column * column_stride]);
    }
}

static void pack(struct awq_case *awq)
{
    const struct gk_desc *desc = &awq->reader.desc;
    pack_rows(awq->qweight, desc->k, desc->n, awq->reader.codes, 1, desc->k);
    pack_rows(awq->qzeros, gk_desc_groups(desc), desc->n, awq->reader.zeros, desc->n, 1);
}

static void init(struct awq_case *awq, uint32_t n, uint32_t k, uint32_t group_k)
{
    struct random random = {3};
    struct gk_desc desc = desc_int4(n, k, group_k, DTYPE_F16, DTYPE_NONE);
    desc.has_zeros = true;
    struct reader_case *reader = &awq->reader;
    reader_case_init(reader, &desc, &random);
    uint64_t n_scales = (uint64_t)gk_desc_groups(&desc) * n;
    awq->qweight = reader_tensor(reader, (uint64_t)n * k / 2);
    awq->qzeros = reader_tensor(reader, n_scales / 2);
    awq->scales = reader_tensor(reader, n_scales * 2);
    memcpy(awq->scales, reader->scales, n_scales * 2);
    awq->source = (struct gk_awq){awq->qweight, awq->qzeros, awq->scales};
    pack(awq);
}

static int read_awq(struct awq_case *awq)
{
    return gk_awq_read(&awq->source, &awq->reader.canonical, &awq->reader.why);
}

static void test_random(void **state)
{
    (void)state;
    struct awq_case awq;
    init(&awq, 72, 100, 32); /* the last group has 4 elements */
    reader_assert(&awq.reader, read_awq(&awq));
    reader_case_finish(&awq.reader);
}

static void fill(struct awq_case *awq, uint32_t probe)
{
    const struct gk_desc *desc = &awq->reader.desc;
    for (uint32_t i_n = 0; i_n < desc->n; i_n++) {
        for (uint32_t i_k = 0; i_k < desc->k; i_k++) {
            uint32_t code = probe == 'b' ? (i_k + 3 * i_n) % 16 : probe == 'c';
            awq->reader.codes[i_n * desc->k + i_k] = (uint8_t)code;
        }
    }
    for (uint32_t i = 0; i < gk_desc_groups(desc) * desc->n; i++) {
        uint32_t i_n = i % desc->n;
        awq->reader.zeros[i] = probe == 'a' ? i_n % 16 : 0;
        elem_store(awq->scales, DTYPE_F16, i, probe == 'c' ? 1 + i_n / 256.0 : 1.0);
    }
    pack(awq);
}

/* T09: which value every column must have at element i_k. */
static double expected(uint32_t probe, uint32_t i_n, uint32_t i_k)
{
    switch (probe) {
    case 'a':
        return -(double)(i_n % 16);
    case 'b':
        return (i_k + 3 * i_n) % 16;
    default:
        return 1 + i_n / 256.0;
    }
}

static void check_probes(uint32_t k, uint32_t group_k)
{
    static const uint32_t elements[] = {0, 1, 7, 8, 63, 64, 127};
    struct awq_case awq;
    init(&awq, 256, k, group_k);
    for (uint32_t probe = 'a'; probe <= 'c'; probe++) {
        fill(&awq, probe);
        assert_int_equal(read_awq(&awq), 0);
        for (uint32_t i = 0; i < 256 * 7; i++) {
            uint32_t i_n = i / 7, i_k = elements[i % 7];
            double value = gk_canonical_value(&awq.reader.canonical, i_n, i_k);
            assert_true(value == expected(probe, i_n, i_k));
        }
    }
    reader_case_finish(&awq.reader);
}

static void test_probes(void **state)
{
    (void)state;
    check_probes(128, 128);
    check_probes(256, 64);
}

static void test_refusals(void **state)
{
    (void)state;
    struct awq_case awq;
    init(&awq, 64, 64, 32);
    struct reader_case *reader = &awq.reader;
    elem_store(awq.scales, DTYPE_F16, 64 + 9, (double)NAN);
    reader_assert_refused(reader, read_awq(&awq), STATUS_BAD_CHECKPOINT, "group 1, column 9 is ");
    awq.source.qzeros = NULL;
    reader_assert_refused(reader, read_awq(&awq), STATUS_BAD_CHECKPOINT, "there are none");
    reader->canonical.desc.has_zeros = false;
    awq.source.qzeros = awq.qzeros;
    reader_assert_refused(reader, read_awq(&awq), STATUS_BAD_CHECKPOINT, "declared symmetric");
    reader->canonical.desc.n = 60;
    reader_assert_refused(reader, read_awq(&awq), STATUS_BAD_CHECKPOINT, "n 60 is not a multiple");
    reader->canonical.desc.has_perm = true;
    reader_assert_refused(reader, read_awq(&awq), STATUS_UNSUPPORTED, "without act-order");
    reader->canonical.desc.code = GK_CODE_U8;
    reader_assert_refused(reader, read_awq(&awq), STATUS_UNSUPPORTED, "4-bit");
    reader_case_finish(reader);
}

/* Without zero points, 8 is meant. */
static void test_symmetric(void **state)
{
    (void)state;
    struct awq_case awq;
    init(&awq, 64, 64, 32);
    awq.source.qzeros = NULL;
    awq.reader.canonical.desc.has_zeros = false;
    elem_store(awq.scales, DTYPE_F16, 0, 2.0);
    assert_int_equal(read_awq(&awq), 0);
    double value = gk_canonical_value(&awq.reader.canonical, 0, 5);
    assert_true(value == 2.0 * (awq.reader.codes[5] - 8));
    reader_case_finish(&awq.reader);
}

static void test_versions(void **state)
{
    (void)state;
    struct reader_case none = {.n_tensors = 0};
    assert_int_equal(gk_awq_version_check(NULL, NULL), 0);
    assert_int_equal(gk_awq_version_check("gemm", NULL), 0);
    assert_int_equal(gk_awq_version_check("GEMM", NULL), 0);
    static const char *const others[] = {"gemv", "gemv_fast", "marlin", ""};
    for (uint32_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        int status = gk_awq_version_check(others[i], &none.why);
        reader_assert_refused(&none, status, STATUS_UNSUPPORTED, others[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),   cmocka_unit_test(test_probes),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_symmetric),
        cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
