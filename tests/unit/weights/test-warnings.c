/* Warnings are bounded, and say how many there were. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/msg.h"

#include "daemon/weights/warnings.h"

static void test_bound(void **state)
{
    (void)state;
    struct warnings warnings = WARNINGS_NULL;
    for (uint32_t i = 0; i < 1000; i++) {
        warnings_add(&warnings, "odd %u\n", i);
    }
    assert_int_equal(warnings.n, MSG_WARNINGS_MAX);
    assert_string_equal(warnings.items[0], "odd 0?");
    assert_string_equal(warnings.items[MSG_WARNINGS_MAX - 2], "odd 62?");
    assert_string_equal(warnings.items[MSG_WARNINGS_MAX - 1], "and 937 more warnings");
    char **copy;
    assert_int_equal(warnings_copy(warnings.items, warnings.n, &copy), 0);
    assert_string_equal(copy[1], "odd 1?");
    warnings_list_free(copy, warnings.n);
    warnings_finish(&warnings);
}

static void test_nobody_listens(void **state)
{
    (void)state;
    warnings_add(NULL, "into the void");
    struct warnings warnings = WARNINGS_NULL;
    char **copy;
    assert_int_equal(warnings_copy(warnings.items, warnings.n, &copy), 0);
    assert_null(copy[0]);
    warnings_list_free(copy, 0);
    warnings_finish(&warnings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_nobody_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
