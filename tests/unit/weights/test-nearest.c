/* test-nearest.c - which names a refusal offers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/weights/nearest.h"

static void check(const char *wanted, const char *const *names, const char *expected)
{
    struct nearest nearest;
    struct reason why = REASON_NULL;
    nearest_init(&nearest, wanted);
    for (; *names; names++) {
        nearest_offer(&nearest, *names);
    }
    (void)reason_set(&why, STATUS_NOT_FOUND, "no '%s'", wanted);
    nearest_append(&nearest, &why);
    assert_string_equal(why.text, expected);
}

static void test_how_many_there_are(void **state)
{
    (void)state;
    check("m", (const char *const[]){NULL}, "no 'm'; there is none");
    check("m", (const char *const[]){"mini", NULL}, "no 'm'; there is mini");
    check("m", (const char *const[]){"x", "mini", "y", NULL}, "no 'm'; there are mini, x, y");
    check("m", (const char *const[]){"x", "y", "z", "mini", NULL},
          "no 'm'; there are 4, like mini, x, y");
}

static void test_the_most_alike_come_first(void **state)
{
    (void)state;
    static const char *const names[] = {"a/layers.0.q", "a/layers.1.q", "a/layers.10.q",
                                        "a/pooler",     "b/layers.1.q", NULL};
    check("a/layer.1.q", names,
          "no 'a/layer.1.q'; there are 5, like a/layers.1.q, a/layers.0.q, a/layers.10.q");
    check("c/layers.1.q", names,
          "no 'c/layers.1.q'; there are 5, like a/layers.1.q, b/layers.1.q, a/layers.0.q");
    check("a/pool", names, "no 'a/pool'; there are 5, like a/pooler, a/layers.0.q, a/layers.1.q");
}

/* A character is never counted from both ends. */
static void test_overlap(void **state)
{
    (void)state;
    check("aaaa", (const char *const[]){"aaa", "aaab", "aaaaa", "b", NULL},
          "no 'aaaa'; there are 4, like aaaaa, aaa, aaab");
}

/* Names fill the sentence up to its end, and no further. */
static void test_long_names(void **state)
{
    (void)state;
    char name[MSG_NAME_BYTES];
    struct nearest nearest;
    struct reason why = REASON_NULL;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    nearest_init(&nearest, name);
    for (uint32_t i = 0; i < 5; i++) {
        nearest_offer(&nearest, name);
    }
    (void)reason_set(&why, STATUS_NOT_FOUND, "no '%s'", name);
    nearest_append(&nearest, &why);
    assert_int_equal(strlen(why.text), sizeof(why.text) - 1);
    nearest_append(&nearest, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_how_many_there_are),
        cmocka_unit_test(test_the_most_alike_come_first),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
