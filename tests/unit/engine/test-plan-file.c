/* test-plan-file.c - plans outlive the process that made them, and a file full of anything does no
 * more than cost its lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/device/plan_file.h"
#include "ipc/base/log.h"

static char folder[32], path[64];
static char logged[512];

static void __attribute__((format(printf, 4, 0)))
on_log(enum log_event event, enum log_level level, const char *topic, const char *format,
       va_list args)
{
    (void)event;
    (void)topic;
    assert_int_equal(level, LOG_LEVEL_WARNING);
    (void)vsnprintf(logged, sizeof(logged), format, args);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/gemmd-plans-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/tuning.plans", folder);
    logged[0] = '\0';
    log_set_sink(on_log);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    log_set_sink(NULL);
    (void)unlink(path);
    return rmdir(folder);
}

static struct plan_file *open_file(void)
{
    struct plan_file *file;
    assert_int_equal(plan_file_new(path, &file), 0);
    return file;
}

static void assert_kept(struct plan_file *file, const char *key, const char *expected)
{
    char text[GK_PLAN_TEXT_BYTES];
    assert_int_equal(plan_file_get(file, key, text), expected != NULL);
    if (expected != NULL) {
        assert_string_equal(text, expected);
    }
}

static void test_plans_survive(void **state)
{
    (void)state;
    struct plan_file *file = open_file();
    char key[32];
    assert_kept(file, "a", NULL);
    plan_file_put(file, "a", "1 2 3");
    plan_file_put(file, "b", "old");
    plan_file_put(file, "b", "new");
    for (uint32_t i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof(key), "shape %u", i);
        plan_file_put(file, key, key);
    }
    assert_null(plan_file_free(file));
    file = open_file();
    assert_kept(file, "a", "1 2 3");
    assert_kept(file, "b", "new");
    assert_kept(file, "shape 99", "shape 99");
    assert_kept(file, "shape 100", NULL);
    assert_null(plan_file_free(file));
    assert_string_equal(logged, "");
}

/* As two daemons of one user do. */
static void test_two_keep_what_both_found(void **state)
{
    (void)state;
    struct plan_file *first = open_file(), *second = open_file();
    plan_file_put(first, "of both", "older");
    plan_file_put(first, "of the first", "1");
    plan_file_put(second, "of the second", "2");
    plan_file_put(second, "of both", "newer");
    plan_file_put(first, "of the first", "3");
    assert_null(plan_file_free(first));
    assert_null(plan_file_free(second));
    struct plan_file *file = open_file();
    assert_kept(file, "of the first", "3");
    assert_kept(file, "of the second", "2");
    assert_null(plan_file_free(file));
    assert_string_equal(logged, "");
}

/* Were they all looked for among all, it would take minutes. */
static void test_too_many_lines_are_left_out(void **state)
{
    (void)state;
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    for (uint32_t i = 0; i < 400000; i++) {
        assert_true(fprintf(stream, "%x\ty\n", i) > 0);
    }
    assert_int_equal(fclose(stream), 0);
    struct plan_file *file = open_file();
    assert_non_null(strstr(logged, "are none of ours and left out, line 4097 the first"));
    assert_kept(file, "fff", "y");
    assert_kept(file, "1000", NULL);
    assert_null(plan_file_free(file));
}

static void test_a_longest_line_fits(void **state)
{
    (void)state;
    struct plan_file *file = open_file();
    char key[PLAN_KEY_BYTES], text[GK_PLAN_TEXT_BYTES];
    memset(key, 'k', sizeof(key) - 1);
    memset(text, 't', sizeof(text) - 1);
    key[sizeof(key) - 1] = text[sizeof(text) - 1] = '\0';
    plan_file_put(file, key, text);
    assert_null(plan_file_free(file));
    file = open_file();
    assert_kept(file, key, text);
    assert_null(plan_file_free(file));
}

static void test_garbage_costs_its_line(void **state)
{
    (void)state;
    char long_key[PLAN_KEY_BYTES + 1];
    memset(long_key, 'k', sizeof(long_key) - 1);
    long_key[sizeof(long_key) - 1] = '\0';
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    assert_true(fprintf(stream,
                        "# plans\nno tab\n\tno key\nno plan\t\n%s\tx\n\x01\xff\xfe\n"
                        "good\tplan\twith a tab\n",
                        long_key) > 0);
    assert_int_equal(fclose(stream), 0);
    struct plan_file *file = open_file();
    assert_non_null(strstr(logged, "5 of its 7 lines are none of ours and left out, line 2"));
    assert_kept(file, "good", "plan\twith a tab"); /* whether it is a plan its kernel says */
    assert_kept(file, "no plan", NULL);
    assert_kept(file, long_key, NULL);
    assert_null(plan_file_free(file));
}

static void test_no_file_at_all(void **state)
{
    (void)state;
    assert_kept(NULL, "a", NULL);
    plan_file_put(NULL, "a", "b");
    assert_null(plan_file_free(NULL));
}

/* A folder that is none: the daemon goes on, and says so. */
static void test_what_cannot_be_written(void **state)
{
    (void)state;
    struct plan_file *file;
    assert_int_equal(plan_file_new("/proc/gemmd/tuning.plans", &file), 0);
    plan_file_put(file, "a", "b");
    assert_non_null(strstr(logged, "a plan is not kept: plan file '/proc/gemmd/tuning.plans'"));
    assert_kept(file, "a", "b");
    assert_null(plan_file_free(file));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plans_survive, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_two_keep_what_both_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_too_many_lines_are_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_longest_line_fits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_garbage_costs_its_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_file_at_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_written, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
