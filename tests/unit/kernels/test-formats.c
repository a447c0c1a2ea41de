/* test-formats.c - descriptors, the GPTQ reader (cases T08, T11), and packed layouts: what is
 * packed comes back bit for bit, for odd shapes too. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "kernel_case.h"

/* ---- descriptors ------------------------------------------------------------------------------
 */

static struct gk_desc good_desc(void)
{
    return desc_int4(64, 256, 128, DTYPE_F16, DTYPE_NONE);
}

static struct gk_desc good_fp8(enum gk_act act)
{
    return (struct gk_desc){.n = 64,
                            .k = 256,
                            .code = GK_CODE_E4M3,
                            .group_n = 1,
                            .group_k = act == GK_ACT_FP8_GROUP ? 128 : 256,
                            .scale_dtype = DTYPE_F32,
                            .act = act,
                            .act_scale = act == GK_ACT_FP8_TENSOR ? 0.5f : 0.0f};
}

static struct gk_desc good_int8(enum gk_act act)
{
    return (struct gk_desc){.n = 64,
                            .k = 256,
                            .code = GK_CODE_U8,
                            .group_n = 1,
                            .group_k = 256,
                            .scale_dtype = DTYPE_F32,
                            .act = act,
                            .act_scale = act == GK_ACT_INT8_TENSOR ? 0.5f : 0.0f};
}

static void expect_good(struct gk_desc desc)
{
    struct reason why = REASON_NULL;
    int r = gk_desc_check(&desc, &why);
    if (r != 0) {
        fail_msg("refused: %s", why.text);
    }
}

static void expect_bad(struct gk_desc desc, int status, const char *words)
{
    struct reason why = REASON_NULL;
    assert_int_equal(gk_desc_check(&desc, &why), status);
    if (strstr(why.text, words) == NULL) {
        fail_msg("'%s' is not in: %s", words, why.text);
    }
}

/* EXPECT_BAD() - a good descriptor with one field changed. */
#define EXPECT_BAD(good, field, value, status, words)                                              \
    do {                                                                                           \
        struct gk_desc changed = (good);                                                           \
        changed.field = (value);                                                                   \
        expect_bad(changed, (status), (words));                                                    \
    } while (0)

static void test_desc_refuses_extents_and_codes(void **state)
{
    (void)state;
    expect_good(good_desc());
    expect_good(desc_plain(1, 1, DTYPE_F32, DTYPE_F16));
    EXPECT_BAD(good_desc(), n, 0, STATUS_INVALID_ARGUMENT, "no elements");
    EXPECT_BAD(good_desc(), k, UINT32_MAX, STATUS_UNSUPPORTED, "over the limit");
    EXPECT_BAD(good_desc(), code, 0, STATUS_INVALID_ARGUMENT, "unknown kind 0");
    EXPECT_BAD(good_desc(), code, 99, STATUS_INVALID_ARGUMENT, "unknown kind 99");
    EXPECT_BAD(good_desc(), bias_dtype, DTYPE_F64, STATUS_UNSUPPORTED, "bias of type f64");
    struct gk_desc plain = desc_plain(8, 8, DTYPE_BF16, DTYPE_NONE);
    EXPECT_BAD(plain, group_k, 8, STATUS_INVALID_ARGUMENT, "plain weights have no scales");
    EXPECT_BAD(plain, has_zeros, true, STATUS_INVALID_ARGUMENT, "plain weights have no scales");
    EXPECT_BAD(plain, has_perm, true, STATUS_INVALID_ARGUMENT, "plain weights have no scales");
    EXPECT_BAD(plain, act, GK_ACT_FP8_TOKEN, STATUS_UNSUPPORTED, "as they come");
}

static void test_desc_refuses_scales(void **state)
{
    (void)state;
    EXPECT_BAD(good_desc(), group_k, 0, STATUS_INVALID_ARGUMENT, "group_k is 0");
    EXPECT_BAD(good_desc(), group_k, 257, STATUS_INVALID_ARGUMENT, "1 to 256");
    EXPECT_BAD(good_desc(), group_n, 65, STATUS_INVALID_ARGUMENT, "group_n is 65");
    EXPECT_BAD(good_desc(), scale_dtype, DTYPE_I32, STATUS_UNSUPPORTED, "scales of type i32");
    EXPECT_BAD(good_desc(), scale_dtype, DTYPE_F8_E8M0, STATUS_UNSUPPORTED, "integer codes");
    EXPECT_BAD(good_desc(), column_scale, 3, STATUS_INVALID_ARGUMENT, "column scales");
    struct gk_desc mxfp4 = good_desc();
    mxfp4.code = GK_CODE_E2M1;
    mxfp4.scale_dtype = DTYPE_F8_E8M0;
    expect_good(mxfp4);
    EXPECT_BAD(mxfp4, has_zeros, true, STATUS_INVALID_ARGUMENT, "only integer codes");
    EXPECT_BAD(mxfp4, scale_dtype, DTYPE_F8_E5M2, STATUS_UNSUPPORTED, "f8_e4m3 and f8_e8m0");
}

static void test_desc_refuses_int8_activations(void **state)
{
    (void)state;
    expect_good(good_int8(GK_ACT_INT8_TENSOR));
    expect_good(good_int8(GK_ACT_INT8_TOKEN));
    expect_good(good_int8(GK_ACT_INT8_TOKEN_ZERO));
    struct gk_desc good = good_int8(GK_ACT_INT8_TENSOR);
    EXPECT_BAD(good, code, GK_CODE_U4, STATUS_UNSUPPORTED, "8-bit integer codes");
    EXPECT_BAD(good, group_k, 128, STATUS_UNSUPPORTED, "groups of 128");
    EXPECT_BAD(good, has_perm, true, STATUS_UNSUPPORTED, "act-order");
    EXPECT_BAD(good, act_scale, 0.0f, STATUS_INVALID_ARGUMENT, "finite and positive");
    EXPECT_BAD(good, act_scale, HUGE_VALF, STATUS_INVALID_ARGUMENT, "finite and positive");
    EXPECT_BAD(good, act_scale, NAN, STATUS_INVALID_ARGUMENT, "finite and positive");
    EXPECT_BAD(good, act_zero, 128, STATUS_INVALID_ARGUMENT, "zero point of 128");
    good.k = good.group_k = 65793;
    expect_good(good); /* 65793 * 255 * 128 is the last below 2^31 */
    good.k = good.group_k = 65794;
    expect_bad(good, STATUS_UNSUPPORTED, "might not fit 32 bits");
    good.k = good.group_k = 40000;
    EXPECT_BAD(good, has_zeros, true, STATUS_UNSUPPORTED, "might not fit 32 bits");
}

static void test_desc_refuses_fp8_activations(void **state)
{
    (void)state;
    expect_good(good_fp8(GK_ACT_FP8_TENSOR));
    expect_good(good_fp8(GK_ACT_FP8_TOKEN));
    expect_good(good_fp8(GK_ACT_FP8_GROUP));
    struct gk_desc group = good_fp8(GK_ACT_FP8_GROUP);
    EXPECT_BAD(group, code, GK_CODE_U8, STATUS_UNSUPPORTED, "fp8 or 4-bit integer codes");
    EXPECT_BAD(group, group_k, 64, STATUS_UNSUPPORTED, "scales over 128 of k, not 64");
    EXPECT_BAD(group, has_perm, true, STATUS_UNSUPPORTED, "act-order");
    EXPECT_BAD(group, act_scale, 1.0f, STATUS_INVALID_ARGUMENT, "has none of its own");
    EXPECT_BAD(group, act_zero, 1, STATUS_INVALID_ARGUMENT, "zero point of 1");
    EXPECT_BAD(group, act, 77, STATUS_INVALID_ARGUMENT, "unknown kind 77");
    EXPECT_BAD(good_fp8(GK_ACT_FP8_TENSOR), is_act_scale_pow2, true, STATUS_INVALID_ARGUMENT,
               "powers of two");
    group.code = GK_CODE_U4;
    group.is_act_scale_pow2 = true;
    expect_good(group);
    group.k = group.group_k = 100;
    expect_good(group);
}

static void expect_text(struct gk_desc desc, const char *expected)
{
    char text[64];
    gk_desc_format(&desc, text, sizeof(text));
    assert_string_equal(text, expected);
}

static void test_desc_text(void **state)
{
    (void)state;
    struct gk_desc desc = good_desc();
    expect_text(desc, "int4 sym g128 f16");
    desc.has_zeros = true;
    desc.has_perm = true;
    expect_text(desc, "int4 g128 act-order f16");
    struct gk_desc block = good_fp8(GK_ACT_FP8_GROUP);
    block.group_n = 32;
    expect_text(block, "fp8 32x128 f32, fp8 group activations");
    struct gk_desc tensor = good_fp8(GK_ACT_FLOAT);
    tensor.group_n = 64;
    expect_text(tensor, "fp8 tensor f32");
    expect_text(good_int8(GK_ACT_INT8_TOKEN_ZERO),
                "int8 sym channel f32, int8 token asym activations");
    struct gk_desc nvfp4 = desc_int4(64, 256, 16, DTYPE_F8_E4M3, DTYPE_NONE);
    nvfp4.code = GK_CODE_E2M1;
    nvfp4.column_scale = GK_COLUMN_SCALE_DIVIDES;
    expect_text(nvfp4, "fp4 g16 f8_e4m3 x column");
    desc = desc_plain(64, 64, DTYPE_BF16, DTYPE_NONE);
    expect_text(desc, "plain bf16");
    char text[6];
    gk_desc_format(&desc, text, sizeof(text));
    assert_string_equal(text, "plain");
}

/* ---- GPTQ -------------------------------------------------------------------------------------
 */

#define GPTQ_N      128u
#define GPTQ_K      256u
#define GPTQ_GROUPS 2u

/* Arrays of a checkpoint, one byte off any alignment, as a mapped file may have them. */
struct gptq_case {
    uint8_t qweight[1 + GPTQ_K * GPTQ_N / 2];
    uint8_t qzeros[1 + GPTQ_GROUPS * GPTQ_N / 2];
    uint8_t scales[1 + GPTQ_GROUPS * GPTQ_N * 2];
    struct gk_gptq source;
    struct gk_canonical canonical;
    struct reason why;
};

static int setup_gptq(void **state)
{
    struct gptq_case *gptq = calloc(1, sizeof(*gptq));
    assert_non_null(gptq);
    struct random random = {1};
    for (uint32_t i = 1; i < sizeof(gptq->qweight); i++) {
        gptq->qweight[i] = (uint8_t)random_next(&random);
    }
    for (uint32_t i = 0; i < GPTQ_GROUPS * GPTQ_N; i++) {
        elem_store(gptq->scales + 1, DTYPE_F16, i, 1.0 + i);
    }
    gptq->source = (struct gk_gptq){gptq->qweight + 1, gptq->qzeros + 1, gptq->scales + 1, true};
    memset(gptq->qzeros, 0x77, sizeof(gptq->qzeros));
    struct gk_desc desc = desc_int4(GPTQ_N, GPTQ_K, 128, DTYPE_F16, DTYPE_NONE);
    assert_int_equal(gk_canonical_alloc(&gptq->canonical, &desc), 0);
    *state = gptq;
    return 0;
}

static int teardown_gptq(void **state)
{
    struct gptq_case *gptq = *state;
    gk_canonical_finish(&gptq->canonical);
    free(gptq);
    return 0;
}

static int read_gptq(struct gptq_case *gptq)
{
    return gk_gptq_read(&gptq->source, &gptq->canonical, NULL, &gptq->why);
}

/* Element (k, n): word (k / 8, n), bits 4 * (k % 8); here by bytes, another way than the reader's.
 */
static void test_gptq_order(void **state)
{
    struct gptq_case *gptq = *state;
    assert_int_equal(read_gptq(gptq), 0);
    const uint8_t *codes = gptq->canonical.codes;
    for (uint32_t i_k = 0; i_k < GPTQ_K; i_k++) {
        for (uint32_t i_n = 0; i_n < GPTQ_N; i_n++) {
            uint8_t byte = gptq->qweight[1 + (i_k / 8 * GPTQ_N + i_n) * 4 + i_k % 8 / 2];
            uint8_t code = i_k % 2 == 0 ? byte & 15 : byte >> 4;
            assert_int_equal(codes[i_n * GPTQ_K + i_k], code);
            double scale = 1.0 + i_k / 128 * GPTQ_N + i_n;
            assert_true(gk_canonical_value(&gptq->canonical, i_n, i_k) == scale * (code - 8));
        }
    }
}

static void test_gptq_versions(void **state)
{
    struct gptq_case *gptq = *state;
    assert_int_equal(read_gptq(gptq), 0); /* T08 (a) */
    gptq->source.is_v1 = false;
    assert_int_equal(read_gptq(gptq), STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(gptq->why.text, "looks like v1"));
    memset(gptq->qzeros, 0x88, sizeof(gptq->qzeros));
    assert_int_equal(read_gptq(gptq), 0); /* T08 (b) */
    gptq->source.is_v1 = true;            /* T08 (d) */
    assert_int_equal(read_gptq(gptq), STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(gptq->why.text, "declared gptq (v1)"));
    assert_non_null(strstr(gptq->why.text, "looks like v2"));
    gptq->source.qzeros = NULL;
    assert_int_equal(read_gptq(gptq), 0);
}

/* Every stored value in every field: only the symmetric one passes, nothing carries into a
 * neighbour. */
static void test_gptq_each_zero(void **state)
{
    struct gptq_case *gptq = *state;
    for (uint32_t is_v1 = 0; is_v1 < 2; is_v1++) {
        uint8_t good = is_v1 ? 7 : 8;
        gptq->source.is_v1 = is_v1;
        for (uint32_t i = 0; i < 16u * GPTQ_N; i++) {
            uint32_t i_n = i / 16;
            uint8_t stored = i % 16;
            memset(gptq->qzeros, good * 0x11, sizeof(gptq->qzeros));
            uint8_t *byte = &gptq->qzeros[1 + GPTQ_N / 2 + i_n / 2];
            *byte = i_n % 2 == 0 ? (uint8_t)(good << 4 | stored) : (uint8_t)(stored << 4 | good);
            assert_int_equal(read_gptq(gptq), stored == good ? 0 : STATUS_BAD_CHECKPOINT);
            if (stored != good) {
                char place[48];
                (void)snprintf(place, sizeof(place), "group 1, column %u ", i_n);
                assert_non_null(strstr(gptq->why.text, place));
            }
        }
    }
}

static void test_gptq_scales(void **state)
{
    struct gptq_case *gptq = *state;
    static const double bad[] = {HUGE_VAL, -HUGE_VAL, (double)NAN, -0.5};
    for (uint32_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        elem_store(gptq->scales + 1, DTYPE_F16, GPTQ_N + 5, bad[i]);
        assert_int_equal(read_gptq(gptq), STATUS_BAD_CHECKPOINT);
        assert_non_null(strstr(gptq->why.text, "group 1, column 5"));
    }
    elem_store(gptq->scales + 1, DTYPE_F16, GPTQ_N + 5, 0.0);
    assert_int_equal(read_gptq(gptq), 0);
}

static void test_gptq_shapes(void **state)
{
    struct gptq_case *gptq = *state;
    gptq->canonical.desc.k = GPTQ_K - 4;
    assert_int_equal(read_gptq(gptq), STATUS_BAD_CHECKPOINT);
    gptq->canonical.desc.k = GPTQ_K;
    gptq->canonical.desc.n = GPTQ_N - 4;
    assert_int_equal(read_gptq(gptq), STATUS_BAD_CHECKPOINT);
    gptq->canonical.desc.code = GK_CODE_U8;
    assert_int_equal(read_gptq(gptq), STATUS_UNSUPPORTED);
}

/* ---- packed layouts ---------------------------------------------------------------------------
 */

static void assert_same(const struct gk_canonical *a, const struct gk_canonical *b)
{
    const struct gk_desc *desc = &a->desc;
    uint64_t n_elems = (uint64_t)desc->n * desc->k;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    uint32_t code_bytes = gk_code_is_plain(desc->code) ? dtype_bytes(gk_code_dtype(desc->code)) : 1;
    assert_memory_equal(a->codes, b->codes, n_elems * code_bytes);
    if (n_scales > 0) {
        assert_memory_equal(a->scales, b->scales, n_scales * dtype_bytes(desc->scale_dtype));
    }
    if (desc->bias_dtype != DTYPE_NONE) {
        assert_memory_equal(a->bias, b->bias, desc->n * dtype_bytes(desc->bias_dtype));
    }
}

/* Random bits, NaN patterns included: nothing may be rounded or quieted on the way. */
static void fill_with_bits(struct gk_canonical *canonical, struct random *random)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_elems = (uint64_t)desc->n * desc->k;
    uint32_t mask = gk_code_bits(desc->code) == 4 ? 15 : 255;
    uint32_t code_bytes = gk_code_is_plain(desc->code) ? dtype_bytes(gk_code_dtype(desc->code)) : 1;
    for (uint64_t i = 0; i < n_elems * code_bytes; i++) {
        ((uint8_t *)canonical->codes)[i] = (uint8_t)(random_next(random) & mask);
    }
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * desc->n;
    for (uint64_t i = 0; i < n_scales * dtype_bytes(desc->scale_dtype); i++) {
        ((uint8_t *)canonical->scales)[i] = (uint8_t)random_next(random);
    }
    for (uint64_t i = 0; i < desc->n * dtype_bytes(desc->bias_dtype); i++) {
        ((uint8_t *)canonical->bias)[i] = (uint8_t)random_next(random);
    }
}

static void check_round_trip(const struct gk_desc *desc, struct random *random)
{
    struct gk_canonical canonical, back;
    assert_int_equal(gk_canonical_alloc(&canonical, desc), 0);
    assert_int_equal(gk_canonical_alloc(&back, desc), 0);
    fill_with_bits(&canonical, random);
    const struct gk_layout *layout = gk_layout_for(desc, GK_DEVICE_HOST);
    assert_non_null(layout);
    assert_non_null(layout->tag);
    assert_true(layout->version > 0);
    uint64_t size_bytes = layout->packed_bytes(desc);
    assert_int_equal(size_bytes % 64, 0);
    uint8_t *packed = aligned_alloc(64, size_bytes + 64);
    uint8_t *again = aligned_alloc(64, size_bytes);
    memset(packed, 0x5a, size_bytes + 64);
    memset(again, 0xa5, size_bytes);
    layout->pack(&canonical, packed);
    layout->pack(&canonical, again);
    assert_memory_equal(packed, again, size_bytes); /* no byte is left as it was */
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(packed[size_bytes + i], 0x5a);
    }
    layout->unpack(packed, &back);
    assert_same(&canonical, &back);
    free(packed);
    free(again);
    gk_canonical_finish(&canonical);
    gk_canonical_finish(&back);
}

static void test_layouts_are_lossless(void **state)
{
    (void)state;
    static const uint32_t extents[] = {1, 2, 7, 63, 64, 65, 127, 128, 129, 192, 200};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    struct random random = {2};
    for (uint32_t i = 0; i < ARRAY_LENGTH(extents) * ARRAY_LENGTH(extents); i++) {
        uint32_t n = extents[i / ARRAY_LENGTH(extents)], k = extents[i % ARRAY_LENGTH(extents)];
        for (uint32_t j = 0; j < 3; j++) {
            enum dtype bias_dtype = (i + j) % 4 == 0 ? DTYPE_NONE : dtypes[(i + j) % 3];
            struct gk_desc int4 = desc_int4(n, k, 32u << j, dtypes[j], bias_dtype);
            struct gk_desc plain = desc_plain(n, k, dtypes[j], bias_dtype);
            check_round_trip(&int4, &random);
            check_round_trip(&plain, &random);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_desc_refuses_extents_and_codes),
        cmocka_unit_test(test_desc_refuses_scales),
        cmocka_unit_test(test_desc_refuses_int8_activations),
        cmocka_unit_test(test_desc_refuses_fp8_activations),
        cmocka_unit_test(test_desc_text),
        cmocka_unit_test_setup_teardown(test_gptq_order, setup_gptq, teardown_gptq),
        cmocka_unit_test_setup_teardown(test_gptq_versions, setup_gptq, teardown_gptq),
        cmocka_unit_test_setup_teardown(test_gptq_each_zero, setup_gptq, teardown_gptq),
        cmocka_unit_test_setup_teardown(test_gptq_scales, setup_gptq, teardown_gptq),
        cmocka_unit_test_setup_teardown(test_gptq_shapes, setup_gptq, teardown_gptq),
        cmocka_unit_test(test_layouts_are_lossless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
