/* test-msg.c - the rule for names. */
#include <string.h>

#include "ipc/msg.h"
#include "t.h"

static void test_names(void **state)
{
    (void)state;
    char longest[MSG_NAME_BYTES + 1];
    struct reason why = REASON_NULL;
    memset(longest, 'n', sizeof(longest));
    longest[MSG_NAME_BYTES - 1] = '\0';
    assert_int_equal(msg_name_check(longest, "name", &why), 0);
    assert_int_equal(msg_name_check("mod\xc3\xa9l/a.b", "name", &why), 0);
    assert_int_equal(msg_model_name_check("mod\xc3\xa9l", "name", &why), 0);
    assert_int_equal(msg_model_name_check("a/b", "name", &why), STATUS_INVALID_ARGUMENT);
    longest[MSG_NAME_BYTES - 1] = 'n';
    longest[MSG_NAME_BYTES] = '\0';
    assert_int_equal(msg_name_check(longest, "name", &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "name is longer than 255 bytes");
    assert_int_equal(msg_name_check("", "model name", &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "model name is empty");
    assert_int_equal(msg_name_check("a\nb", "name", &why), STATUS_INVALID_ARGUMENT);
    assert_int_equal(msg_name_check("a\x7f", "name", &why), STATUS_INVALID_ARGUMENT);
    assert_int_equal(msg_name_check("ab\xc0\x80", "name", &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "name is not UTF-8 at byte 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
