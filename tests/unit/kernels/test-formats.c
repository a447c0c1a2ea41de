/* test-formats.c - descriptors and packed layouts: what is packed comes back bit for bit, for odd
 * shapes too. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "kernel_case.h"

/* ---- descriptors ---- */

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

/* ---- packed layouts ---- */

/* The arrays of a canonical weight, each with its size; absent ones have 0 bytes. */
struct arrays {
    struct {
        void *bytes;
        uint64_t n_bytes;
    } items[6];
};

static struct arrays arrays_of(const struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_elems = (uint64_t)desc->n * desc->k;
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    bool is_plain = gk_code_is_plain(desc->code);
    bool has_column_scales = desc->column_scale != GK_COLUMN_SCALE_NONE;
    return (struct arrays){{
        {canonical->codes, is_plain ? n_elems * dtype_bytes(gk_code_dtype(desc->code)) : n_elems},
        {canonical->scales, n_scales * dtype_bytes(desc->scale_dtype)},
        {canonical->zeros, desc->has_zeros ? n_scales : 0},
        {canonical->perm, desc->has_perm ? desc->k * sizeof(uint32_t) : 0},
        {canonical->column_scales, has_column_scales ? desc->n * sizeof(float) : 0},
        {canonical->bias, desc->n * dtype_bytes(desc->bias_dtype)},
    }};
}

static void assert_same(const struct gk_canonical *a, const struct gk_canonical *b)
{
    struct arrays in = arrays_of(a), out = arrays_of(b);
    for (uint32_t i = 0; i < ARRAY_LENGTH(in.items); i++) {
        if (in.items[i].n_bytes != 0) {
            assert_memory_equal(in.items[i].bytes, out.items[i].bytes, in.items[i].n_bytes);
        }
    }
}

/* Random bits, NaN patterns included: nothing may be rounded or quieted on the way. */
static void fill_with_bits(struct gk_canonical *canonical, struct random *random)
{
    struct arrays arrays = arrays_of(canonical);
    for (uint32_t i = 0; i < ARRAY_LENGTH(arrays.items); i++) {
        bool is_nibble = i == 0 && gk_code_bits(canonical->desc.code) == 4;
        for (uint64_t j = 0; j < arrays.items[i].n_bytes; j++) {
            uint32_t bits = random_next(random);
            ((uint8_t *)arrays.items[i].bytes)[j] = (uint8_t)(is_nibble ? bits & 15 : bits);
        }
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
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_NONE};
    struct random random = {2};
    for (uint32_t i = 0; i < ARRAY_LENGTH(extents) * ARRAY_LENGTH(extents); i++) {
        uint32_t n = extents[i / ARRAY_LENGTH(extents)], k = extents[i % ARRAY_LENGTH(extents)];
        for (uint32_t j = 0; j < n_format_cases; j++) {
            struct gk_desc desc = format_desc(&format_cases[j], n, k, dtypes[(i + j) % 4]);
            check_round_trip(&desc, &random);
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
        cmocka_unit_test(test_layouts_are_lossless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
