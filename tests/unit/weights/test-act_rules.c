/* Activations by request: which modules a rule is about, and which it cannot have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/weights/act_rules.h"
#include "ipc/base/num.h"

#define INT4(group_k_, ...)                                                                        \
    {                                                                                              \
        .n = 64, .k = 512, .code = GK_CODE_U4, .group_n = 1, .group_k = (group_k_),                \
        .scale_dtype = DTYPE_F16, __VA_ARGS__                                                      \
    }

static char names[][16] = {"l.down_proj", "l.up_proj", "lm_head", "m.own"};

static const struct module modules[] = {
    {.name = names[0], .desc = INT4(512, .has_zeros = true)},
    {.name = names[1], .desc = INT4(128, )},
    {.name = names[2], .desc = {.n = 64, .k = 512, .code = GK_CODE_BF16}},
    {.name = names[3], .desc = INT4(64, .act = GK_ACT_FP8_TENSOR, .act_scale = 0.5f)},
};

/* Of the modules above, with the last one replaced where `odd` is given. */
static int apply(const char *rules, const struct gk_desc *odd, struct module ret_modules[4],
                 struct warnings *warnings, struct reason *why)
{
    struct msg_shaping message = {.tp_size = 1};
    struct shaping shaping;
    struct module_list list = {.items = ret_modules, .n = ARRAY_LENGTH(modules)};
    (void)snprintf(message.act, sizeof(message.act), "%s", rules);
    assert_int_equal(shaping_parse(&message, &shaping, why), 0);
    memcpy(ret_modules, modules, sizeof(modules));
    if (odd) {
        ret_modules[3].desc = *odd;
    }
    return act_rules_apply(&shaping, &list, warnings, why);
}

static void test_who_is_meant(void **state)
{
    (void)state;
    static const struct {
        const char *rules;
        enum gk_act acts[ARRAY_LENGTH(modules)];
    } cases[] = {
        {"", {GK_ACT_FLOAT, GK_ACT_FLOAT, GK_ACT_FLOAT, GK_ACT_FP8_TENSOR}},
        {"fp8", {GK_ACT_FP8_TOKEN, GK_ACT_FP8_TOKEN, GK_ACT_FLOAT, GK_ACT_FP8_TENSOR}},
        {"fp8 down_proj=float", {GK_ACT_FLOAT, GK_ACT_FP8_TOKEN, GK_ACT_FLOAT, GK_ACT_FP8_TENSOR}},
        {"l.up_proj=fp8", {GK_ACT_FLOAT, GK_ACT_FP8_TOKEN, GK_ACT_FLOAT, GK_ACT_FP8_TENSOR}},
        {"float up_proj=fp8 fp8",
         {GK_ACT_FLOAT, GK_ACT_FP8_TOKEN, GK_ACT_FLOAT, GK_ACT_FP8_TENSOR}},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct module result[ARRAY_LENGTH(modules)];
        struct warnings warnings = {0};
        struct reason why = REASON_NULL;
        if (apply(cases[i].rules, NULL, result, &warnings, &why) != 0) {
            fail_msg("'%s': %s", cases[i].rules, why.text);
        }
        for (size_t j = 0; j < ARRAY_LENGTH(modules); j++) {
            assert_int_equal(result[j].desc.act, cases[i].acts[j]);
            assert_int_equal(gk_desc_check(&result[j].desc, &why), 0);
        }
        assert_int_equal(warnings.n, 0);
        warnings_finish(&warnings);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct gk_desc short_groups = INT4(64, );
    static const struct gk_desc order = INT4(128, .has_perm = true);
    static const struct gk_desc wide = {.n = 64,
                                        .k = 512,
                                        .code = GK_CODE_U4,
                                        .group_n = 1,
                                        .group_k = 128,
                                        .scale_dtype = DTYPE_F32};
    static const struct {
        const char *rules;
        const struct gk_desc *odd;
        int status;
        const char *text;
    } cases[] = {
        {"lm_head=fp8", NULL, STATUS_UNSUPPORTED,
         "module 'lm_head' (plain bf16) cannot have fp8 activations: they go with 4-bit integers"},
        {"own=fp8", NULL, STATUS_UNSUPPORTED, "they go with 4-bit integers whose x comes as it is"},
        {"fp8", &short_groups, STATUS_UNSUPPORTED,
         "they go with groups of 128 of k or a multiple, or one over all of k; m.own=float"},
        {"fp8", &order, STATUS_UNSUPPORTED, "they do not go with act-order"},
        {"fp8", &wide, STATUS_UNSUPPORTED, "they go with scales in f16 and bf16"},
        {"fp8 q_proj=float", NULL, STATUS_INVALID_ARGUMENT,
         "activations 'q_proj': no module of the checkpoint has that name"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct module result[ARRAY_LENGTH(modules)];
        struct warnings warnings = {0};
        struct reason why = REASON_NULL;
        int r = apply(cases[i].rules, cases[i].odd, result, &warnings, &why);
        if (r != cases[i].status || !strstr(why.text, cases[i].text)) {
            fail_msg("'%s': %d '%s'", cases[i].rules, r, why.text);
        }
        warnings_finish(&warnings);
    }
}

/* Whoever asks for all of a checkpoint that has none hears of it. */
static void test_nothing_to_do(void **state)
{
    (void)state;
    struct module plain = {.name = names[0], .desc = {.n = 8, .k = 8, .code = GK_CODE_F16}};
    struct module_list list = {.items = &plain, .n = 1};
    struct shaping shaping;
    struct warnings warnings = {0};
    struct reason why = REASON_NULL;
    assert_int_equal(shaping_parse(&(struct msg_shaping){.act = "fp8"}, &shaping, &why), 0);
    assert_int_equal(act_rules_apply(&shaping, &list, &warnings, &why), 0);
    assert_int_equal(warnings.n, 1);
    warnings_finish(&warnings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_is_meant),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
