/* test-slice.c - tensor-parallel cuts: every element keeps its value, slices along n concatenate
 * and slices along k sum to the whole, exactly; cuts that cannot be are refused. */
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "part_case.h"

#define N 200u
#define K 320u

static void check_n(const struct gk_canonical *whole, uint32_t first_n, uint32_t n)
{
    struct gk_canonical slice;
    struct reason why = REASON_NULL;
    assert_int_equal(gk_canonical_slice_n(whole, first_n, n, &slice, &why), 0);
    assert_int_equal(gk_desc_check(&slice.desc, &why), 0);
    assert_int_equal(slice.desc.n, n);
    part_assert(&slice, whole, first_n, 0);
    gk_canonical_finish(&slice);
}

static void test_rows_of_every_kind(void **state)
{
    (void)state;
    static const uint32_t cuts[] = {0, 1, 64, 100, 128, 130, N};
    struct random random = {21};
    struct gk_desc descs[PART_DESCS];
    part_descs(N, K, descs);
    for (uint32_t i = 0; i < PART_DESCS; i++) {
        struct gk_canonical whole;
        part_random(&whole, &descs[i], &random);
        for (uint32_t j = 0; j + 1 < ARRAY_LENGTH(cuts); j++) {
            check_n(&whole, cuts[j], cuts[j + 1] - cuts[j]);
        }
        gk_canonical_finish(&whole);
    }
}

/* Slices put together again are the weight that was cut. */
static void test_rows_concatenate(void **state)
{
    (void)state;
    struct random random = {22};
    struct gk_desc descs[PART_DESCS];
    part_descs(N, 64, descs);
    for (uint32_t i = 0; i < PART_DESCS; i++) {
        struct gk_canonical whole, again, slices[2];
        part_random(&whole, &descs[i], &random);
        assert_int_equal(gk_canonical_slice_n(&whole, 0, 90, &slices[0], NULL), 0);
        assert_int_equal(gk_canonical_slice_n(&whole, 90, N - 90, &slices[1], NULL), 0);
        assert_int_equal(gk_canonical_concat_n(slices, 2, &again, NULL), 0);
        part_assert(&whole, &again, 0, 0);
        gk_canonical_finish(&slices[0]);
        gk_canonical_finish(&slices[1]);
        gk_canonical_finish(&again);
        gk_canonical_finish(&whole);
    }
}

static uint32_t group_n_of(const struct gk_desc *whole, uint32_t first_n, uint32_t n)
{
    struct gk_desc desc;
    assert_int_equal(gk_desc_slice_n(whole, first_n, n, &desc, NULL), 0);
    return desc.group_n;
}

static void test_rows_of_blocks(void **state)
{
    (void)state;
    struct gk_desc desc = {.n = 384,
                           .k = 128,
                           .code = GK_CODE_E4M3,
                           .group_n = 128,
                           .group_k = 128,
                           .scale_dtype = DTYPE_F32};
    assert_int_equal(group_n_of(&desc, 0, 384), 128);
    assert_int_equal(group_n_of(&desc, 128, 200), 128); /* the last block is cut short */
    assert_int_equal(group_n_of(&desc, 64, 64), 64);    /* inside a block */
    assert_int_equal(group_n_of(&desc, 64, 65), 1);     /* through one */
    assert_int_equal(group_n_of(&desc, 64, 128), 1);
}

static void check_k(const struct gk_canonical *whole, uint32_t first_k, uint32_t k)
{
    struct gk_canonical slice;
    struct reason why = REASON_NULL;
    if (gk_canonical_slice_k(whole, first_k, k, &slice, &why) != 0) {
        fail_msg("%s", why.text);
    }
    assert_int_equal(gk_desc_check(&slice.desc, &why), 0);
    assert_int_equal(slice.desc.k, k);
    assert_true((slice.bias != NULL) == (whole->bias != NULL && first_k == 0));
    part_assert(&slice, whole, 0, first_k);
    gk_canonical_finish(&slice);
}

static void test_k_of_every_kind(void **state)
{
    (void)state;
    static const uint32_t cuts[] = {0, 128, 256, K};
    struct random random = {23};
    struct gk_desc descs[PART_DESCS];
    part_descs(40, K, descs);
    for (uint32_t i = 0; i < PART_DESCS; i++) {
        struct gk_canonical whole;
        part_random(&whole, &descs[i], &random);
        for (uint32_t j = 0; j + 1 < ARRAY_LENGTH(cuts) && !descs[i].has_perm; j++) {
            check_k(&whole, cuts[j], cuts[j + 1] - cuts[j]);
        }
        check_k(&whole, 0, K);
        gk_canonical_finish(&whole);
    }
}

/* Groups of 128 with zero points, cut elsewhere than between groups. */
static void test_k_inside_groups(void **state)
{
    (void)state;
    static const struct {
        uint32_t first_k, k, group_k;
    } cases[] = {{0, 64, 64},   {64, 64, 64},    {40, 80, 80}, {64, 192, 64},
                 {96, 200, 32}, {128, 192, 128}, {300, 20, 20}};
    struct random random = {24};
    struct gk_desc descs[PART_DESCS];
    part_descs(24, K, descs);
    struct gk_canonical whole;
    part_random(&whole, &descs[2], &random);
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct gk_desc desc;
        assert_int_equal(gk_desc_slice_k(&descs[2], cases[i].first_k, cases[i].k, &desc, NULL), 0);
        assert_int_equal(desc.group_k, cases[i].group_k);
        check_k(&whole, cases[i].first_k, cases[i].k);
    }
    gk_canonical_finish(&whole);
}

/* All numbers are small multiples of powers of two, so that no sum rounds. */
static void test_k_sums(void **state)
{
    (void)state;
    struct random random = {25};
    struct gk_desc descs[PART_DESCS];
    part_descs(24, K, descs);
    float x[K];
    for (uint32_t i = 0; i < K; i++) {
        x[i] = (float)(random_next(&random) % 16);
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct gk_canonical whole, slices[2];
        double sum[24], parts[2][24];
        part_random(&whole, &descs[i], &random);
        assert_int_equal(gk_canonical_slice_k(&whole, 0, 192, &slices[0], NULL), 0);
        assert_int_equal(gk_canonical_slice_k(&whole, 192, K - 192, &slices[1], NULL), 0);
        assert_int_equal(gk_reference_gemm(&whole, x, DTYPE_F32, K, 1, sum), 0);
        assert_int_equal(gk_reference_gemm(&slices[0], x, DTYPE_F32, K, 1, parts[0]), 0);
        assert_int_equal(gk_reference_gemm(&slices[1], x + 192, DTYPE_F32, K, 1, parts[1]), 0);
        for (uint32_t i_n = 0; i_n < 24; i_n++) {
            assert_true(parts[0][i_n] + parts[1][i_n] == sum[i_n]);
        }
        gk_canonical_finish(&whole);
        gk_canonical_finish(&slices[0]);
        gk_canonical_finish(&slices[1]);
    }
}

static void expect_refused(const struct gk_desc *whole, uint32_t first_k, uint32_t k,
                           const char *text)
{
    struct gk_desc desc;
    struct reason why = REASON_NULL;
    assert_int_equal(gk_desc_slice_k(whole, first_k, k, &desc, &why), STATUS_UNSUPPORTED);
    if (strstr(why.text, text) == NULL) {
        fail_msg("'%s' is not in: %s", text, why.text);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct gk_desc descs[PART_DESCS], desc;
    part_descs(N, K, descs);
    expect_refused(&descs[2], 40, 120,
                   "straddles a group of 128: scales would have to be repeated "
                   "every 8, and 32");
    expect_refused(&descs[5], 64, 64, "straddles a group of activations");
    expect_refused(&descs[6], 8, 40, "straddles a group of 16");
    expect_refused(&descs[8], 0, 160, "act-order");
    static const uint32_t ranges[][2] = {{0, 0}, {K, 1}, {1, K}, {UINT32_MAX, 2}, {1, UINT32_MAX}};
    for (uint32_t i = 0; i < ARRAY_LENGTH(ranges); i++) {
        uint32_t first = ranges[i][0], extent = ranges[i][1];
        int r = gk_desc_slice_k(&descs[1], first, extent, &desc, NULL);
        assert_int_equal(r, STATUS_INVALID_ARGUMENT);
        r = gk_desc_slice_n(&descs[1], first, extent == 1 ? N : extent, &desc, NULL);
        assert_int_equal(r, STATUS_INVALID_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_every_kind), cmocka_unit_test(test_rows_concatenate),
        cmocka_unit_test(test_rows_of_blocks),     cmocka_unit_test(test_k_of_every_kind),
        cmocka_unit_test(test_k_inside_groups),    cmocka_unit_test(test_k_sums),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
