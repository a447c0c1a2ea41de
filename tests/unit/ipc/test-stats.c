/* test-stats.c - the page of figures: made, mapped by others, replaced, refused; buckets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/stats.h"

static char folder[] = "/tmp/gemmd-stats-XXXXXX";
static char path[64];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/gemmd-stats-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/" STATS_FILE_NAME, folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static void test_figures_are_seen_by_others(void **state)
{
    (void)state;
    struct stats_page *page;
    const struct stats_page *seen;
    struct reason why = REASON_NULL;
    struct stat stat;
    assert_int_equal(stats_create(path, 0440, "1.2.3", &page), 0);
    assert_int_equal(lstat(path, &stat), 0);
    assert_int_equal(stat.st_mode & 07777, 0440);
    assert_int_equal(stats_open(path, &seen, &why), 0);
    assert_int_equal(seen->pid, getpid());
    assert_string_equal(seen->daemon_version, "1.2.3");
    stats_add(&page->workers[3].n_requests, 7);
    assert_int_equal(stats_read(&seen->workers[3].n_requests), 7);
    stats_add(&page->workers[3].n_requests, UINT64_MAX);
    assert_int_equal(stats_read(&seen->workers[3].n_requests), 6);
    assert_null(stats_remove(page, path));
    assert_int_equal(lstat(path, &stat), -1);
    assert_int_equal(stats_read(&seen->workers[3].n_requests), 6); /* its last figures stay */
    assert_null(stats_close(seen));
}

/* A daemon that was killed leaves its page; the next one's is another file. */
static void test_a_page_is_replaced(void **state)
{
    (void)state;
    struct stats_page *first, *second;
    const struct stats_page *seen;
    assert_int_equal(stats_create(path, 0400, "1", &first), 0);
    assert_int_equal(stats_open(path, &seen, NULL), 0);
    assert_int_equal(stats_create(path, 0400, "2", &second), 0);
    assert_string_equal(seen->daemon_version, "1");
    assert_null(stats_close(seen));
    assert_int_equal(stats_open(path, &seen, NULL), 0);
    assert_string_equal(seen->daemon_version, "2");
    assert_null(stats_close(seen));
    assert_null(stats_remove(first, path));
    assert_null(stats_remove(second, path));
    assert_null(stats_remove(NULL, path));
}

static void write_file(size_t n_bytes, uint32_t word)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)n_bytes), 0);
    assert_int_equal(pwrite(fd, &word, sizeof(word), 0), sizeof(word));
    (void)close(fd);
}

static void test_other_files_are_refused(void **state)
{
    (void)state;
    const struct stats_page *seen = NULL;
    struct reason why = REASON_NULL;
    assert_int_equal(stats_open(path, &seen, &why), -ENOENT);
    write_file(100, STATS_MAGIC);
    assert_int_equal(stats_open(path, &seen, &why), STATUS_VERSION);
    assert_non_null(strstr(why.text, "has 100 bytes"));
    write_file(sizeof(struct stats_page), STATS_MAGIC); /* version 0 */
    assert_int_equal(stats_open(path, &seen, &why), STATUS_VERSION);
    assert_null(seen);
    struct stats_page *page = NULL;
    assert_int_equal(stats_create("/nonexistent/stats", 0400, "1", &page), -ENOENT);
    assert_null(page);
}

static void test_models_keep_their_place(void **state)
{
    (void)state;
    struct stats_page *page = calloc(1, sizeof(*page));
    char name[32];
    struct stats_model *first = stats_model(page, "a\"b");
    for (uint32_t i = 1; i < STATS_MODELS_MAX - 1; i++) {
        (void)snprintf(name, sizeof(name), "m%u", i);
        assert_ptr_equal(stats_model(page, name), &page->models[i]);
    }
    assert_ptr_equal(stats_model(page, "a\"b"), first);
    assert_string_equal(first->name, "a\"b");
    struct stats_model *others = stats_model(page, "one too many");
    assert_ptr_equal(others, &page->models[STATS_MODELS_MAX - 1]);
    assert_ptr_equal(stats_model(page, "another"), others);
    assert_string_equal(others->name, "");
    assert_ptr_equal(stats_model_find(page, "m5"), &page->models[5]);
    assert_null(stats_model_find(page, "another"));
    free(page);
}

static void test_buckets(void **state)
{
    (void)state;
    const struct {
        uint64_t nsec;
        uint32_t bucket;
    } times[] = {{0, 0},    {1000, 0},        {1001, 1},        {2000, 1},       {2001, 2},
                 {4000, 2}, {1048576000, 20}, {1048576001, 21}, {UINT64_MAX, 21}};
    for (uint32_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        assert_int_equal(stats_time_bucket(times[i].nsec), times[i].bucket);
    }
    const uint32_t rows[][2] = {{0, 0},  {1, 0},  {2, 1},   {3, 2},  {4, 2},  {5, 3},
                                {8, 3},  {9, 4},  {16, 4},  {17, 5}, {32, 5}, {33, 6},
                                {64, 6}, {65, 7}, {128, 7}, {129, 7}};
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(stats_row_bucket(rows[i][0]), rows[i][1]);
    }
    struct stats_times histogram = {.counts = {0}};
    stats_count_time(&histogram, 1500);
    stats_count_time(&histogram, 2000);
    assert_int_equal(stats_read(&histogram.counts[1]), 2);
    assert_int_equal(stats_read(&histogram.sum_nsec), 3500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_figures_are_seen_by_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_page_is_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_files_are_refused, set_up, tear_down),
        cmocka_unit_test(test_models_keep_their_place),
        cmocka_unit_test(test_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
