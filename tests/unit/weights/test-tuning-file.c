/* test-tuning-file.c - measurements survive a process; damage costs a line and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/weights/tuning_file.h"

static char folder[] = "/tmp/gemmd-tuning-XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/deep/er/tuning", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[96];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static struct tuning_line line_of(const char *key, uint32_t m, const char *kernel, double usec)
{
    struct tuning_line line = {.m = m, .usec = usec};
    (void)snprintf(line.key, sizeof(line.key), "%s", key);
    (void)snprintf(line.kernel, sizeof(line.kernel), "%s", kernel);
    return line;
}

static void put(struct tuning_table *table, const char *key, uint32_t m, const char *kernel,
                double usec)
{
    struct tuning_line line = line_of(key, m, kernel, usec);
    assert_int_equal(tuning_table_put(table, &line), 0);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct tuning_table table = TUNING_TABLE_NULL, again = TUNING_TABLE_NULL;
    struct reason why = REASON_NULL;
    for (uint32_t i = 1; i <= 200; i++) {
        put(&table, "a GPU; 4096 x 4096", i, "kernel_a", i + 0.25);
    }
    put(&table, "a GPU; 4096 x 4096", 7, "kernel_a", 99.5); /* in place of the older one */
    put(&table, "a GPU; 4096 x 4096", 7, "kernel_b", 1.5);
    assert_int_equal(table.n, 201);
    assert_int_equal(tuning_file_write(&table, path, &why), 0);
    assert_int_equal(tuning_file_read(&again, path, &why), 0);
    assert_int_equal(again.n, table.n);
    assert_true(tuning_table_get(&again, "a GPU; 4096 x 4096", 7, "kernel_a") == 99.5);
    assert_true(tuning_table_get(&again, "a GPU; 4096 x 4096", 7, "kernel_b") == 1.5);
    assert_true(tuning_table_get(&again, "a GPU; 4096 x 4096", 200, "kernel_a") == 200.25);
    assert_true(tuning_table_get(&again, "another GPU", 7, "kernel_a") == 0);
    tuning_table_finish(&table);
    tuning_table_finish(&again);
}

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_damaged_lines_are_skipped(void **state)
{
    (void)state;
    struct tuning_table table = TUNING_TABLE_NULL;
    struct reason why = REASON_NULL;
    write_text("# comment\n\nkey\nkey\t1\tk\n\t1\tk\t1.0\nkey\t0\tk\t1.0\nkey\t-1\tk\t1.0\n"
               "key\t1x\tk\t1.0\nkey\t1\tk\tnan\nkey\t1\tk\t-2\nkey\t1\tk\tinf\n"
               "key\t1\tk\t1.0\tmore\nkey\t2\tgood\t3.5\nkey\t3\tno line feed\t4.5");
    assert_int_equal(tuning_file_read(&table, path, &why), STATUS_UNSUPPORTED);
    assert_non_null(strstr(why.text, "10 of its 14 lines are none of ours and left out, line 3"));
    assert_int_equal(table.n, 2);
    assert_true(tuning_table_get(&table, "key", 2, "good") == 3.5);
    assert_true(tuning_table_get(&table, "key", 3, "no line feed") == 4.5);
    tuning_table_finish(&table);
}

static void test_size_is_bounded(void **state)
{
    (void)state;
    struct tuning_table table = TUNING_TABLE_NULL, again = TUNING_TABLE_NULL;
    char key[400];
    struct stat file;
    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    for (uint32_t i = 1; i <= 3000; i++) {
        put(&table, key, i, "kernel", 1.0);
    }
    assert_int_equal(tuning_file_write(&table, path, NULL), 0);
    assert_int_equal(stat(path, &file), 0);
    assert_true(file.st_size <= (off_t)TUNING_FILE_BYTES_MAX);
    assert_int_equal(tuning_file_read(&again, path, NULL), 0);
    assert_true(again.n > 2000);
    assert_true(tuning_table_get(&again, key, 3000, "kernel") == 1.0); /* the newest stay */
    assert_true(tuning_table_get(&again, key, 1, "kernel") == 0);
    tuning_table_finish(&table);
    tuning_table_finish(&again);
}

/* As two daemons of one user do. */
static void test_two_keep_what_both_measured(void **state)
{
    (void)state;
    struct tuning_table first = TUNING_TABLE_NULL, second = TUNING_TABLE_NULL;
    struct tuning_table again = TUNING_TABLE_NULL;
    (void)unlink(path);
    put(&first, "key", 1, "kernel", 1.0);
    put(&second, "key", 1, "kernel", 2.0);
    put(&second, "key", 2, "kernel", 3.0);
    assert_int_equal(tuning_file_write(&first, path, NULL), 0);
    assert_int_equal(tuning_file_write(&second, path, NULL), 0);
    put(&first, "key", 3, "kernel", 4.0);
    assert_int_equal(tuning_file_write(&first, path, NULL), 0);
    assert_int_equal(tuning_file_read(&again, path, NULL), 0);
    assert_int_equal(again.n, 3);
    assert_true(tuning_table_get(&again, "key", 2, "kernel") == 3.0);
    assert_true(tuning_table_get(&again, "key", 3, "kernel") == 4.0);
    tuning_table_finish(&first);
    tuning_table_finish(&second);
    tuning_table_finish(&again);
}

/* Were they all looked for among all, it would take long. */
static void test_too_many_lines_are_left_out(void **state)
{
    (void)state;
    struct tuning_table table = TUNING_TABLE_NULL;
    struct reason why = REASON_NULL;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < TUNING_FILE_LINES_MAX + 100; i++) {
        assert_true(fprintf(file, "k%x\t1\ta\t1.0\n", i) > 0);
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(tuning_file_read(&table, path, &why), STATUS_UNSUPPORTED);
    assert_non_null(strstr(why.text, ": 100 of its "));
    assert_int_equal(table.n, TUNING_FILE_LINES_MAX);
    tuning_table_finish(&table);
}

static void test_refusals(void **state)
{
    (void)state;
    struct tuning_table table = TUNING_TABLE_NULL;
    struct reason why = REASON_NULL;
    assert_int_equal(tuning_file_read(&table, "/nowhere/at/all", &why), 0); /* no file, no lines */
    assert_int_equal(tuning_file_read(&table, folder, &why), STATUS_UNSUPPORTED);
    assert_non_null(strstr(why.text, folder));
    assert_int_equal(tuning_file_write(&table, "/proc/gemmd/tuning", &why), STATUS_UNSUPPORTED);
    assert_non_null(strstr(why.text, "/proc/gemmd/tuning"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_damaged_lines_are_skipped),
        cmocka_unit_test(test_size_is_bounded),
        cmocka_unit_test(test_two_keep_what_both_measured),
        cmocka_unit_test(test_too_many_lines_are_left_out),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
