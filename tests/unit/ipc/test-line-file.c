/* test-line-file.c - lines outlive the process that writes them; what is damaged costs its line and
 * no other. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/base/line_file.h"
#include "t.h"

#define HEADER "# what this is\n"

static char folder[32], path[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/gemmd-lines-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/lines", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static struct line_file file_of(uint64_t bytes_max)
{
    return (struct line_file){
        .path = path, .what = "list of words", .header = HEADER, .bytes_max = bytes_max};
}

/* What was taken, each followed by a bar; words that start with '-' are none of ours. */
static char taken[256];

static int take(void *context, char *line)
{
    assert_ptr_equal(context, taken);
    if (line[0] == '-') {
        return STATUS_BAD_MESSAGE;
    }
    if (line[0] == '!') {
        return -EIO;
    }
    (void)strcat(strcat(taken, line), "|");
    return 0;
}

static int read_all(uint64_t bytes_max, struct reason *why)
{
    const struct line_file file = file_of(bytes_max);
    taken[0] = '\0';
    return line_file_read(&file, take, taken, why);
}

static void write_bytes(const void *bytes, size_t n)
{
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, n, stream), n);
    assert_int_equal(fclose(stream), 0);
}

#define write_text(text) write_bytes((text), sizeof(text) - 1)

static void format(const void *context, uint32_t i, char *text)
{
    (void)snprintf(text, LINE_FILE_LINE_BYTES, "%s%u", (const char *)context, i);
}

static void test_lines_come_back(void **state)
{
    (void)state;
    const struct line_file file = file_of(1000);
    struct stat stat;
    assert_int_equal(line_file_write(&file, 3, format, "word", NULL), 0);
    assert_int_equal(read_all(1000, NULL), 0);
    assert_string_equal(taken, "word0|word1|word2|");
    assert_int_equal(line_file_write(&file, 0, format, "word", NULL), 0);
    assert_int_equal(read_all(1000, NULL), 0);
    assert_string_equal(taken, "");
    assert_int_equal(lstat(path, &stat), 0);
    assert_int_equal(stat.st_size, strlen(HEADER));
}

static void test_no_file_has_no_lines(void **state)
{
    (void)state;
    assert_int_equal(read_all(1000, NULL), 0);
    assert_string_equal(taken, "");
}

static void test_damage_costs_its_line(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    write_text("#\none\n-two\n\nth\0ree\n\xff\xfe\nfive");
    assert_int_equal(read_all(1000, &why), STATUS_UNSUPPORTED);
    assert_string_equal(taken, "one|\xff\xfe|five|");
    assert_non_null(strstr(why.text, "list of words '"));
    assert_non_null(strstr(why.text, "2 of its 7 lines are none of ours and left out, line 3 the"));
}

static void test_a_line_that_is_too_long(void **state)
{
    (void)state;
    char bytes[LINE_FILE_LINE_BYTES + 8];
    memset(bytes, 'a', sizeof(bytes));
    bytes[LINE_FILE_LINE_BYTES] = '\n';
    bytes[sizeof(bytes) - 1] = '\n';
    write_bytes(bytes, sizeof(bytes));
    assert_int_equal(read_all(sizeof(bytes) + 1, NULL), STATUS_UNSUPPORTED);
    assert_string_equal(taken, "aaaaaa|");
}

/* An error of ours is not taken for a bad line. */
static void test_an_error_ends_reading(void **state)
{
    (void)state;
    write_text("one\n!\ntwo\n");
    assert_int_equal(read_all(1000, NULL), -EIO);
    assert_string_equal(taken, "one|");
}

/* Of more than may be, the end of a write and the beginning of a read; no half lines. */
static void test_size_is_bounded(void **state)
{
    (void)state;
    const struct line_file file = file_of(strlen(HEADER) + 12);
    assert_int_equal(line_file_write(&file, 5, format, "word", NULL), 0);
    assert_int_equal(read_all(1000, NULL), 0);
    assert_string_equal(taken, "word3|word4|");
    assert_int_equal(read_all(strlen(HEADER) + 11, NULL), 0);
    assert_string_equal(taken, "word3|");
}

static void test_refusals(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    struct line_file file = file_of(1000);
    file.path = folder;
    assert_int_equal(line_file_read(&file, take, taken, &why), STATUS_UNSUPPORTED);
    assert_non_null(strstr(why.text, "cannot be read: Is a directory"));
    file.path = "/proc/gemmd/lines";
    assert_int_equal(line_file_write(&file, 1, format, "word", &why), STATUS_UNSUPPORTED);
    assert_non_null(strstr(why.text, "list of words '/proc/gemmd/lines' cannot be written: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lines_come_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_no_file_has_no_lines, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_damage_costs_its_line, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_a_line_that_is_too_long, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_an_error_ends_reading, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_size_is_bounded, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refusals, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
