/* test-bench-format.c - formats by name are what their names say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/weights/bench_format.h"

static struct gk_desc desc_of(const char *name, uint32_t n, uint32_t k)
{
    struct gk_desc desc;
    struct reason why = REASON_NULL;
    if (bench_format_desc(name, n, k, DTYPE_BF16, &desc, &why) != 0) {
        fail_msg("%s: %s", name, why.text);
    }
    return desc;
}

/* Of every name: it can be packed, says so in words that fit a reply, and is in no way odd. */
static void test_every_format_is_one(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (; bench_format_name(n); n++) {
        struct gk_desc desc = desc_of(bench_format_name(n), 256, 384);
        char text[64];
        gk_desc_format(&desc, text, sizeof(text));
        assert_int_not_equal(text[0], '\0');
        assert_int_equal(desc.n, 256);
        assert_int_equal(desc.k, 384);
        assert_int_equal(desc.bias_dtype, DTYPE_NONE);
        assert_non_null(gk_layout_for(&desc, GK_DEVICE_HOST));
    }
    assert_true(n > 20);
}

static void test_names_mean_what_they_say(void **state)
{
    (void)state;
    struct gk_desc desc = desc_of("int4-g128", 256, 384);
    assert_int_equal(desc.code, GK_CODE_U4);
    assert_int_equal(desc.group_n, 1);
    assert_int_equal(desc.group_k, 128);
    assert_int_equal(desc.scale_dtype, DTYPE_BF16); /* of the activations */
    assert_false(desc.has_zeros || desc.has_perm);
    assert_true(desc_of("int4-g128-zeros", 256, 384).has_zeros);
    assert_true(desc_of("int4-g128-act-order", 256, 384).has_perm);
    assert_int_equal(desc_of("int8-channel", 256, 384).group_k, 384);
    desc = desc_of("fp8-128x128-w8a8", 256, 384);
    assert_int_equal(desc.code, GK_CODE_E4M3);
    assert_int_equal(desc.group_n, 128);
    assert_int_equal(desc.act, GK_ACT_FP8_GROUP);
    assert_int_equal(desc.scale_dtype, DTYPE_F32);
    assert_int_equal(desc_of("fp8-tensor", 256, 384).group_n, 256);
    assert_int_equal(desc_of("nvfp4", 256, 384).column_scale, GK_COLUMN_SCALE_MULTIPLIES);
}

/* A group is never larger than the weight. */
static void test_small_weights(void **state)
{
    (void)state;
    struct gk_desc desc = desc_of("fp8-128x128", 64, 96);
    assert_int_equal(desc.group_n, 64);
    assert_int_equal(desc.group_k, 96);
}

static void test_refusals(void **state)
{
    (void)state;
    struct gk_desc desc;
    struct reason why = REASON_NULL;
    assert_int_equal(bench_format_desc("int4-g12", 64, 64, DTYPE_BF16, &desc, &why),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(why.text, "no format 'int4-g12'; there are bf16, "));
    for (uint32_t i = 0; bench_format_name(i); i++) {
        assert_non_null(strstr(why.text, bench_format_name(i))); /* the sentence holds them all */
    }
    assert_int_equal(bench_format_desc("int4-g128", 0, 64, DTYPE_BF16, &desc, &why),
                     STATUS_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_format_is_one),
        cmocka_unit_test(test_names_mean_what_they_say),
        cmocka_unit_test(test_small_weights),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
