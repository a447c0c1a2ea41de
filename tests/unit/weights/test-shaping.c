/* What a client may ask of modules, and how its words are read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"

#include "daemon/weights/shaping.h"

static int parse(uint32_t tp_rank, uint32_t tp_size, const char *fuse, const char *split,
                 struct shaping *ret_shaping, struct reason *why)
{
    struct msg_shaping message = {.tp_rank = tp_rank, .tp_size = tp_size};
    (void)snprintf(message.fuse, sizeof(message.fuse), "%s", fuse);
    (void)snprintf(message.split, sizeof(message.split), "%s", split);
    return shaping_parse(&message, ret_shaping, why);
}

static void test_rules(void **state)
{
    (void)state;
    struct shaping shaping;
    assert_int_equal(parse(0, 0, "", "", &shaping, NULL), 0);
    assert_int_equal(shaping.tp_size, 1);
    assert_int_equal(shaping.n_fuses + shaping.n_splits, 0);
    assert_int_equal(parse(1, 4, " a=b,c  usual ", "x=n y.z=k w=whole", &shaping, NULL), 0);
    assert_int_equal(shaping.tp_rank, 1);
    assert_int_equal(shaping.tp_size, 4);
    assert_int_equal(shaping.n_fuses, 3);
    assert_string_equal(shaping.fuses[0].name, "a");
    assert_int_equal(shaping.fuses[0].n_parts, 2);
    assert_string_equal(shaping.fuses[0].parts[1], "c");
    assert_false(shaping.fuses[0].is_usual);
    assert_string_equal(shaping.fuses[1].name, "qkv_proj");
    assert_string_equal(shaping.fuses[2].parts[1], "up_proj");
    assert_true(shaping.fuses[2].is_usual);
    assert_int_equal(shaping.n_splits, 3);
    assert_string_equal(shaping.splits[1].module, "y.z");
    assert_int_equal(shaping.splits[1].axis, SHAPING_K);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        uint32_t tp_rank;
        uint32_t tp_size;
        const char *fuse;
        const char *split;
        const char *text;
    } cases[] = {
        {1, 0, "", "", "rank 1 is out of range for a size of 1"},
        {4, 4, "", "", "rank 4 is out of range for a size of 4"},
        {0, 1, "a", "", "fuse: 'a' is not NAME=PART,PART"},
        {0, 1, "a=b", "", "fuse: 'a=b' is not"},
        {0, 1, "=b,c", "", "fuse: '=b,c' is not"},
        {0, 1, "a=b.d,c", "", "fuse: 'a=b.d,c' is not"},
        {0, 1, "a=b,c=d", "", "fuse: 'a=b,c=d' is not"},
        {0, 1, "a=b,c,d,e,f,g,h,i,j", "", "of at most 8 parts"},
        {0, 1, "usual usual usual usual usual usual usual usual usual", "",
         "fuse: more than 16 rules"},
        {0, 1, "", "a", "split: 'a' is not MODULE=n, MODULE=k or MODULE=whole"},
        {0, 1, "", "a=m", "split: 'a=m' is not"},
        {0, 1, "", "=n", "split: '=n' is not"},
        {0, 1, "", "a=n b=n c=n d=n e=n f=n g=n h=n i=n j=n k=n l=n m=n n=n o=n p=n q=n",
         "split: more than 16 rules"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct shaping shaping;
        struct reason why = REASON_NULL;
        int r = parse(cases[i].tp_rank, cases[i].tp_size, cases[i].fuse, cases[i].split, &shaping,
                      &why);
        if (r != STATUS_INVALID_ARGUMENT || !strstr(why.text, cases[i].text)) {
            fail_msg("case %zu: %d '%s'", i, r, why.text);
        }
    }
}

static void test_acts(void **state)
{
    (void)state;
    struct msg_shaping message = {.act = "  a.b=fp8 fp8 c=float"};
    struct shaping shaping;
    struct reason why = REASON_NULL;
    assert_int_equal(shaping_parse(&message, &shaping, &why), 0);
    assert_int_equal(shaping.n_acts, 3);
    assert_int_equal(shaping_act_of(&shaping, "x.a.b")->act, GK_ACT_FP8_TOKEN);
    assert_int_equal(shaping_act_of(&shaping, "x.c")->act, GK_ACT_FLOAT);
    assert_ptr_equal(shaping_act_of(&shaping, "x.d"), &shaping.acts[1]);
    assert_false(shaping_is_about(&shaping.acts[1], "x.d"));
    assert_null(shaping_act_of(&(struct shaping){.n_acts = 0}, "x.d"));
    static const char *const bad[] = {"int8", "=fp8", "a=", "a=fp4", "a=fp8=x"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        (void)snprintf(message.act, sizeof(message.act), "%s", bad[i]);
        assert_int_equal(shaping_parse(&message, &shaping, &why), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(why.text, "is not fp8, float, MODULE=fp8 or MODULE=float"));
    }
    (void)snprintf(message.act, sizeof(message.act),
                   "fp8 fp8 fp8 fp8 fp8 fp8 fp8 fp8 fp8 fp8 fp8 fp8 fp8 fp8 fp8 fp8 fp8");
    assert_int_equal(shaping_parse(&message, &shaping, &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "activations: more than 16 rules");
}

static void test_axes(void **state)
{
    (void)state;
    static const struct {
        const char *module;
        enum shaping_axis axis;
    } cases[] = {
        {"model.layers.0.self_attn.q_proj", SHAPING_N},
        {"q_proj", SHAPING_N},
        {"model.layers.0.self_attn.o_proj", SHAPING_K},
        {"a.mlp.down_proj", SHAPING_WHOLE},
        {"b.mlp.down_proj", SHAPING_K},
        {"x.faq_proj", SHAPING_UNSAID},
        {"x.qkv_proj", SHAPING_UNSAID},
        {"x.router", SHAPING_N},
        {"lm_head", SHAPING_N},
        {"x.dense", SHAPING_UNSAID},
    };
    struct shaping shaping;
    assert_int_equal(parse(0, 2, "", "a.mlp.down_proj=whole router=n", &shaping, NULL), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        if (shaping_axis_of(&shaping, cases[i].module) != cases[i].axis) {
            fail_msg("'%s'", cases[i].module);
        }
    }
}

static void test_same(void **state)
{
    (void)state;
    const struct msg_shaping whole = {.tp_size = 0};
    struct msg_shaping other = {.tp_size = 1};
    assert_true(shaping_is_same(&whole, &other));
    other.fuse[0] = 'x';
    assert_false(shaping_is_same(&whole, &other));
    other = (struct msg_shaping){.tp_size = 2};
    assert_false(shaping_is_same(&whole, &other));
    other = (struct msg_shaping){.split = "x=n"};
    assert_false(shaping_is_same(&whole, &other));
    other = (struct msg_shaping){.act = "fp8"};
    assert_false(shaping_is_same(&whole, &other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules), cmocka_unit_test(test_refusals), cmocka_unit_test(test_acts),
        cmocka_unit_test(test_axes),  cmocka_unit_test(test_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
