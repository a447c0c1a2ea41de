/* Has a checkpoint changed since? By size, by time, by being gone. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/weights/sources.h"
#include "tests/harness/safetensors_writer.h"

static struct temp_folder folder;
static struct sources sources;

static int set_up(void **state)
{
    (void)state;
    temp_folder_init(&folder);
    struct tensor_file file;
    tensor_file_init(&file);
    tensor_file_add_flat_plain(&file, "p", 16, 32, 1);
    tensor_file_write(&file, temp_path(&folder, "model.safetensors"));
    tensor_file_finish(&file);
    struct checkpoint checkpoint;
    assert_int_equal(checkpoint_open(folder.path, NULL, &checkpoint, NULL), 0);
    assert_int_equal(sources_read(folder.path, &checkpoint, &sources), 0);
    checkpoint_finish(&checkpoint);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sources_finish(&sources);
    temp_folder_finish(&folder);
    return 0;
}

static void test_untouched(void **state)
{
    (void)state;
    assert_int_equal(sources.n, 1);
    assert_string_equal(sources.items[0].path, temp_path(&folder, "model.safetensors"));
    assert_null(sources_changed(&sources));
}

static void test_another_size(void **state)
{
    (void)state;
    const char *path = temp_path(&folder, "model.safetensors");
    struct stat before;
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(truncate(path, before.st_size + 1), 0);
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_string_equal(sources_changed(&sources), path);
}

static void test_another_time(void **state)
{
    (void)state;
    const char *path = temp_path(&folder, "model.safetensors");
    struct stat before;
    assert_int_equal(stat(path, &before), 0);
    struct timespec times[2] = {before.st_atim, before.st_mtim};
    times[1].tv_nsec ^= 1;
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_string_equal(sources_changed(&sources), path);
}

static void test_gone(void **state)
{
    (void)state;
    assert_int_equal(unlink(temp_path(&folder, "model.safetensors")), 0);
    assert_non_null(sources_changed(&sources));
}

/* A single file as the model's path. */
static void test_file(void **state)
{
    (void)state;
    const char *path = temp_path(&folder, "model.safetensors");
    struct checkpoint checkpoint;
    struct sources single;
    assert_int_equal(checkpoint_open(path, NULL, &checkpoint, NULL), 0);
    assert_int_equal(sources_read(path, &checkpoint, &single), 0);
    checkpoint_finish(&checkpoint);
    assert_int_equal(single.n, 1);
    assert_string_equal(single.items[0].path, path);
    assert_null(sources_changed(&single));
    sources_finish(&single);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_untouched), CASE(test_another_size), CASE(test_another_time),
        CASE(test_gone),      CASE(test_file),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
