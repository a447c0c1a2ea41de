/* Cases T36 and T37: which files make a checkpoint, and what is missing from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/harness/safetensors_writer.h"

#include "daemon/weights/checkpoint.h"

#define INDEX    "model.safetensors.index.json"
#define SHARD_1  "model-1.safetensors"
#define SHARD_2  "model-2.safetensors"
#define TWO_MAPS "{\"weight_map\":{\"w1\":\"" SHARD_1 "\",\"w2\":\"" SHARD_2 "\"}}"

struct fixture {
    struct temp_folder folder;
    struct checkpoint checkpoint;
    struct warnings warnings;
    struct reason why;
};

static struct fixture f;

static const char *at(const char *name)
{
    return temp_path(&f.folder, name);
}

static void write_byte_tensor(const char *file, const char *tensor, uint8_t value)
{
    struct tensor_file writer;
    tensor_file_init(&writer);
    tensor_file_add(&writer, tensor, "U8", 1, &(uint64_t){1}, &value, 1);
    tensor_file_write(&writer, at(file));
    tensor_file_finish(&writer);
}

/* Two shards, w1 = 1 in the first, w2 = 2 in the second, and their index. */
static int set_up(void **state)
{
    (void)state;
    f = (struct fixture){.checkpoint = CHECKPOINT_NULL};
    temp_folder_init(&f.folder);
    write_byte_tensor(SHARD_1, "w1", 1);
    write_byte_tensor(SHARD_2, "w2", 2);
    write_text(at(INDEX), TWO_MAPS);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    checkpoint_finish(&f.checkpoint);
    warnings_finish(&f.warnings);
    temp_folder_finish(&f.folder);
    return 0;
}

static int open_folder(void)
{
    return checkpoint_open(f.folder.path, &f.warnings, &f.checkpoint, &f.why);
}

static void expect_refusal(int status, const char *text)
{
    int r = open_folder();
    if (r != status || !strstr(f.why.text, text)) {
        fail_msg("%d '%s', expected %d '%s'", r, f.why.text, status, text);
    }
}

static bool is_warned(const char *text)
{
    for (uint32_t i = 0; i < f.warnings.n; i++) {
        if (strstr(f.warnings.items[i], text)) {
            return true;
        }
    }
    return false;
}

static uint8_t value_of(const char *tensor)
{
    uint8_t value = 0xff;
    const struct checkpoint_tensor *found = checkpoint_find(&f.checkpoint, tensor);
    assert_non_null(found);
    assert_int_equal(safetensors_read(found->file, found->tensor, 0, &value, 1, NULL), 0);
    return value;
}

static void test_two_shards(void **state)
{
    (void)state;
    assert_int_equal(open_folder(), 0);
    assert_int_equal(f.checkpoint.n_tensors, 2);
    assert_int_equal(value_of("w1"), 1);
    assert_int_equal(value_of("w2"), 2);
    assert_null(checkpoint_find(&f.checkpoint, "w3"));
    assert_int_equal(f.warnings.n, 0);
}

static void test_shard_deleted(void **state)
{
    (void)state;
    assert_int_equal(unlink(at(SHARD_2)), 0);
    expect_refusal(STATUS_BAD_CHECKPOINT, "1 in all: cannot open '" SHARD_2 "': No such file");
}

static void test_shard_truncated(void **state)
{
    (void)state;
    struct stat info;
    assert_int_equal(stat(at(SHARD_2), &info), 0);
    assert_int_equal(truncate(at(SHARD_2), info.st_size - 1), 0);
    expect_refusal(STATUS_BAD_CHECKPOINT, "'" SHARD_2 "': tensor 'w2' ends at 1, the file has 0");
}

static void test_tensor_missing(void **state)
{
    (void)state;
    write_text(at(INDEX), "{\"weight_map\":{\"w1\":\"" SHARD_1 "\",\"w2\":\"" SHARD_1 "\"}}");
    expect_refusal(STATUS_BAD_CHECKPOINT, "tensor 'w2' is not in '" SHARD_1 "' as the index says");
}

static void test_every_item_is_listed(void **state)
{
    (void)state;
    assert_int_equal(unlink(at(SHARD_2)), 0);
    write_text(at(INDEX), "{\"weight_map\":{\"w1\":\"" SHARD_1 "\",\"w2\":\"" SHARD_2
                          "\",\"x\":\"" SHARD_1 "\",\"y\":\"absent.safetensors\"}}");
    expect_refusal(STATUS_BAD_CHECKPOINT, "3 in all");
    assert_true(is_warned(SHARD_2));
    assert_true(is_warned("'x'"));
    assert_true(is_warned("absent.safetensors"));
}

static void test_index_broken(void **state)
{
    (void)state;
    write_text(at(INDEX), "{\"weight_map\":");
    expect_refusal(STATUS_BAD_CHECKPOINT, "the index is not valid JSON");
}

static void test_index_empty(void **state)
{
    (void)state;
    write_text(at(INDEX), "{\"weight_map\":{}}");
    expect_refusal(STATUS_BAD_CHECKPOINT, "the index is empty");
}

static void test_shard_is_folder(void **state)
{
    (void)state;
    assert_int_equal(unlink(at(SHARD_2)), 0);
    assert_int_equal(mkdir(at(SHARD_2), 0700), 0);
    expect_refusal(STATUS_BAD_CHECKPOINT, "'" SHARD_2 "' is a folder");
}

static void test_shard_dangles(void **state)
{
    (void)state;
    assert_int_equal(unlink(at(SHARD_2)), 0);
    assert_int_equal(symlink("nowhere", at(SHARD_2)), 0);
    expect_refusal(STATUS_BAD_CHECKPOINT, "cannot open '" SHARD_2 "'");
}

/* A link to a real file is how model caches are made. */
static void test_shard_is_link(void **state)
{
    (void)state;
    assert_int_equal(rename(at(SHARD_2), at("blob")), 0);
    assert_int_equal(symlink("blob", at(SHARD_2)), 0);
    assert_int_equal(open_folder(), 0);
    assert_int_equal(value_of("w2"), 2);
}

static void test_file_not_in_index(void **state)
{
    (void)state;
    write_byte_tensor("extra.safetensors", "w3", 3);
    assert_int_equal(open_folder(), 0);
    assert_true(is_warned("'extra.safetensors' is ignored"));
    assert_null(checkpoint_find(&f.checkpoint, "w3"));
}

static void test_two_files_without_index(void **state)
{
    (void)state;
    assert_int_equal(unlink(at(INDEX)), 0);
    expect_refusal(STATUS_BAD_CHECKPOINT, "2 .safetensors files ('" SHARD_1 "', '" SHARD_2 "')");
}

static void test_only_file(void **state)
{
    (void)state;
    assert_int_equal(unlink(at(INDEX)), 0);
    assert_int_equal(unlink(at(SHARD_1)), 0);
    assert_int_equal(open_folder(), 0);
    assert_int_equal(value_of("w2"), 2);
}

static void test_model_safetensors_counts(void **state)
{
    (void)state;
    assert_int_equal(unlink(at(INDEX)), 0);
    write_byte_tensor("model.safetensors", "w1", 9);
    assert_int_equal(open_folder(), 0);
    assert_int_equal(value_of("w1"), 9);
    assert_int_equal(f.warnings.n, 2);
}

static void test_empty_folder(void **state)
{
    (void)state;
    assert_int_equal(unlink(at(INDEX)), 0);
    assert_int_equal(unlink(at(SHARD_1)), 0);
    assert_int_equal(unlink(at(SHARD_2)), 0);
    expect_refusal(STATUS_BAD_CHECKPOINT, "no .safetensors file in '/");
}

/* T37: 'w' is 1 in the first shard and 2 in the second. */
static void write_w_twice(const char *index)
{
    write_byte_tensor(SHARD_1, "w", 1);
    write_byte_tensor(SHARD_2, "w", 2);
    write_text(at(INDEX), index);
}

static void test_tensor_in_two_shards(void **state)
{
    (void)state;
    write_w_twice("{\"weight_map\":{\"w\":\"" SHARD_2 "\",\"v\":\"" SHARD_1 "\"}}");
    struct tensor_file both;
    tensor_file_init(&both);
    tensor_file_add(&both, "v", "U8", 1, &(uint64_t){1}, "\7", 1);
    tensor_file_add(&both, "w", "U8", 1, &(uint64_t){1}, "\1", 1);
    tensor_file_write(&both, at(SHARD_1));
    tensor_file_finish(&both);
    assert_int_equal(open_folder(), 0);
    assert_int_equal(value_of("w"), 2);
    assert_true(is_warned("tensor 'w' of '" SHARD_1 "' is ignored"));
}

static void test_index_takes_first_shard(void **state)
{
    (void)state;
    write_w_twice("{\"weight_map\":{\"w\":\"" SHARD_1 "\"}}");
    assert_int_equal(open_folder(), 0);
    assert_int_equal(value_of("w"), 1);
}

static void test_index_takes_third_shard(void **state)
{
    (void)state;
    write_w_twice("{\"weight_map\":{\"w\":\"3.safetensors\",\"a\":\"" SHARD_1 "\",\"b\":\"" SHARD_2
                  "\"}}");
    write_byte_tensor("3.safetensors", "x", 3);
    expect_refusal(STATUS_BAD_CHECKPOINT,
                   "'w' is not in '3.safetensors' as the index says; it is in '" SHARD_1
                   "', '" SHARD_2 "'");
}

static void test_single_file(void **state)
{
    (void)state;
    assert_int_equal(checkpoint_open(at(SHARD_1), NULL, &f.checkpoint, &f.why), 0);
    assert_int_equal(value_of("w1"), 1);
    assert_null(f.checkpoint.config);
}

static void test_path_missing(void **state)
{
    (void)state;
    assert_int_equal(checkpoint_open(at("nowhere"), NULL, &f.checkpoint, &f.why), STATUS_NOT_FOUND);
    assert_non_null(strstr(f.why.text, "nowhere"));
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(checkpoint_open(at("fifo"), NULL, &f.checkpoint, &f.why),
                     STATUS_BAD_CHECKPOINT);
}

static void test_configs_are_read(void **state)
{
    (void)state;
    write_text(at("config.json"), "{\"a\":1}");
    write_text(at("quantize_config.json"), "{}");
    assert_int_equal(open_folder(), 0);
    assert_string_equal(f.checkpoint.config, "{\"a\":1}");
    assert_int_equal(f.checkpoint.config_bytes, 7);
    assert_string_equal(f.checkpoint.quantize_config, "{}");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_two_shards),
        CASE(test_shard_deleted),
        CASE(test_shard_truncated),
        CASE(test_tensor_missing),
        CASE(test_every_item_is_listed),
        CASE(test_index_broken),
        CASE(test_index_empty),
        CASE(test_shard_is_folder),
        CASE(test_shard_dangles),
        CASE(test_shard_is_link),
        CASE(test_file_not_in_index),
        CASE(test_two_files_without_index),
        CASE(test_only_file),
        CASE(test_model_safetensors_counts),
        CASE(test_empty_folder),
        CASE(test_tensor_in_two_shards),
        CASE(test_index_takes_first_shard),
        CASE(test_index_takes_third_shard),
        CASE(test_single_file),
        CASE(test_path_missing),
        CASE(test_configs_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
