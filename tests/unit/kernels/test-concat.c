/* test-concat.c - fusing: every element keeps its value, scales their extent where they can (cases
 * T13, T14), and what cannot be one weight is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "part_case.h"

#define PARTS_MAX 4

struct fused {
    struct gk_canonical parts[PARTS_MAX];
    uint32_t n_parts;
    struct gk_canonical whole;
    struct reason why;
};

static void finish(struct fused *fused)
{
    for (uint32_t i = 0; i < fused->n_parts; i++) {
        gk_canonical_finish(&fused->parts[i]);
    }
    gk_canonical_finish(&fused->whole);
}

static void add(struct fused *fused, const struct gk_desc *desc)
{
    struct random random = {11 + fused->n_parts};
    part_random(&fused->parts[fused->n_parts++], desc, &random);
}

static int concat(struct fused *fused)
{
    return gk_canonical_concat_n(fused->parts, fused->n_parts, &fused->whole, &fused->why);
}

static void assert_whole(struct fused *fused, uint32_t group_n)
{
    if (concat(fused) != 0) {
        fail_msg("%s", fused->why.text);
    }
    assert_int_equal(fused->whole.desc.group_n, group_n);
    uint32_t first_n = 0;
    for (uint32_t i = 0; i < fused->n_parts; i++) {
        part_assert(&fused->parts[i], &fused->whole, first_n, 0);
        first_n += fused->parts[i].desc.n;
    }
    assert_int_equal(fused->whole.desc.n, first_n);
}

static void test_every_kind(void **state)
{
    (void)state;
    static const uint32_t rows[] = {48, 40, 7};
    static const uint32_t group_n[PART_DESCS] = {0, 1, 1, 1, 1, 1, 1, 1, 1};
    for (uint32_t i = 0; i < PART_DESCS; i++) {
        struct fused fused = {.n_parts = 0};
        for (uint32_t j = 0; j < ARRAY_LENGTH(rows); j++) {
            struct gk_desc descs[PART_DESCS];
            part_descs(rows[j], 160, descs);
            add(&fused, &descs[i]);
        }
        assert_whole(&fused, group_n[i]);
        finish(&fused);
    }
}

static struct gk_desc desc_fp8(uint32_t n, uint32_t k, uint32_t group_n, uint32_t group_k)
{
    return (struct gk_desc){.n = n,
                            .k = k,
                            .code = GK_CODE_E4M3,
                            .group_n = group_n,
                            .group_k = group_k,
                            .scale_dtype = DTYPE_F32};
}

/* T13: shards with scales far apart. Every stored weight is 1 (0x38). */
static void test_tensor_scales(void **state)
{
    (void)state;
    static const float scales[] = {1.0f, 0.01f, 100.0f};
    struct gk_desc desc = desc_fp8(64, 128, 64, 128);
    struct fused fused = {.n_parts = 0};
    for (uint32_t i = 0; i < 3; i++) {
        add(&fused, &desc);
        memset(fused.parts[i].codes, 0x38, 64 * 128);
        memcpy(fused.parts[i].scales, &scales[i], sizeof(scales[i]));
    }
    assert_whole(&fused, 64);
    float x[128];
    double y[192];
    for (uint32_t i = 0; i < 128; i++) {
        x[i] = 1.0f;
    }
    assert_int_equal(gk_reference_gemm(&fused.whole, x, DTYPE_F32, 128, 1, y), 0);
    for (uint32_t i_n = 0; i_n < 192; i_n++) {
        assert_true(y[i_n] == 128 * (double)scales[i_n / 64]);
    }
    finish(&fused);
}

/* T14: blocks survive where they meet; else their scales go row by row. */
static void test_block_scales(void **state)
{
    (void)state;
    static const struct {
        uint32_t n[PARTS_MAX];
        uint32_t group_n;
    } cases[] = {{{64, 64, 64, 64}, 64}, {{192, 192}, 1},      {{384, 64, 64}, 1},
                 {{256, 128, 192}, 128}, {{128, 130, 128}, 1}, {{129}, 128}};
    for (uint32_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct fused fused = {.n_parts = 0};
        for (uint32_t j = 0; j < PARTS_MAX && cases[i].n[j] != 0; j++) {
            uint32_t n = cases[i].n[j];
            struct gk_desc desc = desc_fp8(n, 192, (uint32_t)num_min(128, n), 128);
            add(&fused, &desc);
        }
        assert_whole(&fused, cases[i].group_n);
        finish(&fused);
    }
}

/* A part without what another has gets what changes nothing. */
static void test_mixed_parts(void **state)
{
    (void)state;
    struct gk_desc a = desc_int4(16, 64, 32, DTYPE_F16, DTYPE_NONE);
    struct gk_desc b = desc_int4(24, 64, 32, DTYPE_BF16, DTYPE_BF16);
    struct gk_desc c = desc_int4(8, 64, 32, DTYPE_F16, DTYPE_F16);
    b.has_zeros = true;
    c.column_scale = GK_COLUMN_SCALE_MULTIPLIES;
    struct fused fused = {.n_parts = 0};
    add(&fused, &a);
    add(&fused, &b);
    add(&fused, &c);
    assert_whole(&fused, 1);
    assert_int_equal(fused.whole.desc.scale_dtype, DTYPE_F32);
    assert_int_equal(fused.whole.desc.bias_dtype, DTYPE_F32);
    assert_true(fused.whole.desc.has_zeros);
    assert_int_equal(fused.whole.zeros[0], 8);
    float bias = ((const float *)fused.whole.bias)[3];
    assert_true(bias == 0.0f && signbit(bias));
    finish(&fused);
}

static void expect_refused(const struct gk_desc *a, const struct gk_desc *b, const char *text)
{
    const struct gk_desc parts[] = {*a, *b};
    struct gk_desc desc;
    struct reason why = REASON_NULL;
    assert_int_equal(gk_desc_concat_n(parts, 2, &desc, &why), STATUS_UNSUPPORTED);
    if (strstr(why.text, text) == NULL) {
        fail_msg("'%s' is not in: %s", text, why.text);
    }
}

/* b differs from a in one field. */
#define EXPECT_REFUSED(a, field, value, text)                                                      \
    do {                                                                                           \
        struct gk_desc b_ = (a);                                                                   \
        b_.field = (value);                                                                        \
        expect_refused(&(a), &b_, text);                                                           \
    } while (false)

static void test_refusals(void **state)
{
    (void)state;
    struct gk_desc a = desc_int4(64, 64, 32, DTYPE_F16, DTYPE_NONE);
    EXPECT_REFUSED(a, k, 96, "in k");
    EXPECT_REFUSED(a, code, GK_CODE_U8, "codes");
    EXPECT_REFUSED(a, group_k, 64, "group size");
    EXPECT_REFUSED(a, has_perm, true, "act-order");
    EXPECT_REFUSED(a, act, GK_ACT_FP8_TOKEN, "activations are quantised");
    EXPECT_REFUSED(a, n, UINT32_MAX, "rows");
    a.column_scale = GK_COLUMN_SCALE_DIVIDES;
    EXPECT_REFUSED(a, column_scale, GK_COLUMN_SCALE_MULTIPLIES, "multiply or divide");
    struct gk_desc fp8 = desc_fp8(64, 128, 64, 128);
    EXPECT_REFUSED(fp8, scale_dtype, DTYPE_F8_E8M0, "type of their scales");
    fp8.act = GK_ACT_FP8_TENSOR;
    fp8.act_scale = 0.5f;
    EXPECT_REFUSED(fp8, act_scale, 0.25f, "scale 0.25 and zero point 0 differ from 0.5 and 0");
    struct gk_desc desc;
    assert_int_equal(gk_desc_concat_n(&a, 0, &desc, NULL), STATUS_INVALID_ARGUMENT);
}

static void test_act_order(void **state)
{
    (void)state;
    struct gk_desc descs[PART_DESCS];
    part_descs(16, 64, descs);
    struct fused fused = {.n_parts = 0};
    add(&fused, &descs[PART_DESCS - 1]);
    add(&fused, &descs[PART_DESCS - 1]);
    uint32_t first = fused.parts[1].perm[0];
    fused.parts[1].perm[0] = fused.parts[1].perm[1];
    fused.parts[1].perm[1] = first;
    assert_int_equal(concat(&fused), STATUS_UNSUPPORTED);
    assert_non_null(strstr(fused.why.text, "part 1"));
    finish(&fused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),   cmocka_unit_test(test_tensor_scales),
        cmocka_unit_test(test_block_scales), cmocka_unit_test(test_mixed_parts),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_act_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
