/* The shard index as bytes; case T36 (d) and (e). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"

#include "daemon/weights/checkpoint_index.h"

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const char *text;
    } cases[] = {
        {"", "not valid JSON"},
        {"{\"weight_map\":", "not valid JSON"},
        {"[]", "no object 'weight_map'"},
        {"{}", "no object 'weight_map'"},
        {"{\"weight_map\":[]}", "no object 'weight_map'"},
        {"{\"weight_map\":{}}", "is empty"},
        {"{\"weight_map\":{\"w\":1}}", "'w' to something that is not a file name"},
        {"{\"weight_map\":{\"w\":\"../a.safetensors\"}}", "a file in the same folder"},
        {"{\"weight_map\":{\"w\":\"/a.safetensors\"}}", "a file in the same folder"},
        {"{\"weight_map\":{\"w\":\"a.bin\"}}", "no .safetensors file"},
        {"{\"weight_map\":{\"w\":\".safetensors\"}}", "no .safetensors file"},
        {"{\"weight_map\":{\"w\":\"\"}}", "no .safetensors file"},
        {"{\"weight_map\":{\"w\":\"a.safetensors\",\"w\":\"b.safetensors\"}}", "duplicate"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct checkpoint_index index;
        struct reason why = REASON_NULL;
        int r = checkpoint_index_parse(cases[i].json, strlen(cases[i].json), &index, &why);
        if (r != STATUS_BAD_CHECKPOINT || !strstr(why.text, cases[i].text)) {
            fail_msg("%s: %d '%s', expected '%s'", cases[i].json, r, why.text, cases[i].text);
        }
    }
}

static void test_table(void **state)
{
    (void)state;
    static const char json[] =
        "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"c\":\"2.safetensors\","
        "\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}";
    struct checkpoint_index index;
    assert_int_equal(checkpoint_index_parse(json, strlen(json), &index, NULL), 0);
    assert_int_equal(index.n_shards, 2);
    assert_string_equal(index.shards[0], "1.safetensors");
    assert_string_equal(index.shards[1], "2.safetensors");
    assert_int_equal(index.n_entries, 3);
    assert_string_equal(index.entries[0].tensor, "a");
    assert_int_equal(index.entries[0].i_shard, 0);
    assert_string_equal(index.entries[2].tensor, "c");
    assert_int_equal(index.entries[2].i_shard, 1);
    checkpoint_index_finish(&index);
}

static void test_too_many_shards(void **state)
{
    (void)state;
    char json[64 * (CHECKPOINT_SHARDS_MAX + 2)] = "{\"weight_map\":{";
    for (uint32_t i = 0; i <= CHECKPOINT_SHARDS_MAX; i++) {
        size_t end = strlen(json);
        (void)snprintf(json + end, sizeof(json) - end, "%s\"t%u\":\"%u.safetensors\"", i ? "," : "",
                       i, i);
    }
    size_t used = strlen(json);
    (void)snprintf(json + used, sizeof(json) - used, "}}");
    struct checkpoint_index index;
    struct reason why;
    assert_int_equal(checkpoint_index_parse(json, strlen(json), &index, &why),
                     STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(why.text, "more than 512 shards"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_too_many_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
