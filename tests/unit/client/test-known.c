/* What weights are called, from one daemon to the next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/known.h"

#define N 1000u

static struct known_weight weight_of(uint64_t id, uint64_t id_now, uint32_t epoch, const char *name)
{
    struct known_weight weight = {.id = id, .id_now = id_now, .epoch = epoch};
    (void)snprintf(weight.name, sizeof(weight.name), "%s", name);
    return weight;
}

static void test_many(void **state)
{
    (void)state;
    struct known known;
    struct known_weight found;
    char name[32];
    known_init(&known);
    assert_false(known_find(&known, 1, "m/1", &found));
    for (uint64_t i = 0; i < N; i++) {
        (void)snprintf(name, sizeof(name), "m/%ju", (uintmax_t)i);
        const struct known_weight weight = weight_of(i << 32 | 7, i, 0, name);
        assert_int_equal(known_add(&known, &weight), 0);
    }
    for (uint64_t i = 0; i < N; i++) {
        (void)snprintf(name, sizeof(name), "m/%ju", (uintmax_t)i);
        assert_true(known_find(&known, i << 32 | 7, name, &found));
        assert_int_equal(found.id_now, i);
        assert_true(known_find_now(&known, i, 0, &found));
        assert_string_equal(found.name, name);
    }
    assert_false(known_find_now(&known, N, 0, &found));
    known_finish(&known);
}

/* Two daemons gave two weights the same number: whoever has it may mean either. */
static void test_same_id(void **state)
{
    (void)state;
    struct known known;
    struct known_weight found;
    known_init(&known);
    const struct known_weight old = weight_of(5, 5, 0, "m/old");
    const struct known_weight fresh = weight_of(5, 5, 1, "m/fresh");
    assert_int_equal(known_add(&known, &old), 0);
    assert_int_equal(known_add(&known, &fresh), 0);
    assert_true(known_find(&known, 5, "m/old", &found));
    assert_int_equal(found.epoch, 0);
    assert_true(known_find_now(&known, 5, 1, &found));
    assert_string_equal(found.name, "m/fresh");
    known_finish(&known);
}

static void test_brought_up_to_date(void **state)
{
    (void)state;
    struct known known;
    struct known_weight found;
    known_init(&known);
    const struct known_weight first = weight_of(5, 5, 0, "m/a");
    const struct known_weight second = weight_of(5, 77, 1, "m/a");
    assert_int_equal(known_add(&known, &first), 0);
    assert_int_equal(known_add(&known, &second), 0);
    assert_true(known_find(&known, 5, "m/a", &found));
    assert_int_equal(found.id_now, 77);
    assert_false(known_find_now(&known, 5, 0, &found));
    assert_int_equal(known.n, 1);
    known_finish(&known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_same_id),
        cmocka_unit_test(test_brought_up_to_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
