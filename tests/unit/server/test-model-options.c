/* Options of models in the configuration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/server/config.h"
#include "daemon/server/model_options.h"
#include "ipc/base/num.h"

static void test_item(void **state)
{
    (void)state;
    char name[MSG_NAME_BYTES];
    struct msg_shaping shaping;
    struct reason why = REASON_NULL;
    assert_int_equal(model_options_parse("a: b:  tp_rank=1 tp_size=2 fuse=usual fuse=x=y,z "
                                         "split=o=k activations=fp8 activations=o=float",
                                         name, &shaping, &why),
                     0);
    assert_string_equal(name, "a: b");
    assert_int_equal(shaping.tp_rank, 1);
    assert_int_equal(shaping.tp_size, 2);
    assert_string_equal(shaping.fuse, "usual x=y,z");
    assert_string_equal(shaping.split, "o=k");
    assert_string_equal(shaping.act, "fp8 o=float");
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *item;
        const char *text;
    } cases[] = {
        {"m fuse=usual", "'m fuse=usual' is not NAME: KEY=VALUE"},
        {": fuse=usual", "is not NAME: KEY=VALUE"},
        {"m: fuse", "'fuse' in 'm: fuse' is none of tp_rank=R"},
        {"m: tp_rank=-1", "'tp_rank' in 'm: tp_rank=-1' is none of"},
        {"m: tp_rank=0", "'m: tp_rank=0' has a tp_rank without a tp_size"},
        {"m: tp_rank=2 tp_size=2", "rank 2 is out of range for a size of 2"},
        {"m: fuse=x", "fuse: 'x' is not NAME=PART,PART"},
        {"m: split=x", "split: 'x' is not MODULE=n"},
        {"m: speed=9", "'speed' in"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char name[MSG_NAME_BYTES];
        struct msg_shaping shaping;
        struct reason why = REASON_NULL;
        int r = model_options_parse(cases[i].item, name, &shaping, &why);
        if (r != STATUS_INVALID_ARGUMENT || !strstr(why.text, cases[i].text)) {
            fail_msg("'%s': %d '%s'", cases[i].item, r, why.text);
        }
    }
}

static void test_find(void **state)
{
    (void)state;
    char first[] = "a: tp_size=2";
    char second[] = "b: fuse=usual";
    char third[] = "a: tp_size=4";
    char *items[] = {first, second, third};
    struct msg_shaping shaping;
    struct reason why = REASON_NULL;
    assert_int_equal(model_options_find(items, 2, "a", &shaping, &why), 0);
    assert_int_equal(shaping.tp_size, 2);
    assert_int_equal(model_options_find(items, 3, "c", &shaping, &why), 0);
    assert_int_equal(shaping.tp_size, 0);
    assert_int_equal(model_options_find(items, 3, "a", &shaping, &why), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(why.text, "more than one item is about 'a'"));
}

static void test_configuration(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *refusal; /* NULL: none */
    } files[] = {
        {"models = a=/x\nmodel_options = a: fuse=usual\n", NULL},
        {"models = a=/x\nmodel_options = aa: fuse=usual\n", "models has no 'aa'"},
        {"models = a=/x\nmodel_options = a: fuse=usual\nmodel_options = a: tp_size=2\n",
         "more than one item is about 'a'"},
        {"model_options = a fuse\n", "is not NAME: KEY=VALUE"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        struct config config;
        struct reason why = REASON_NULL;
        assert_int_equal(config_init(&config), 0);
        int r = config_parse(&config, "test", files[i].text, strlen(files[i].text), &why);
        r = r != 0 ? r : config_check(&config, &why);
        assert_int_equal(r, files[i].refusal ? STATUS_INVALID_ARGUMENT : 0);
        assert_true(!files[i].refusal || strstr(why.text, files[i].refusal));
        config_finish(&config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_item),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
