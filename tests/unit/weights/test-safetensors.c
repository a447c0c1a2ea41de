/* Cases T33, T34 and T35: one .safetensors file, right and wrong. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/safetensors_writer.h"

#include "daemon/weights/safetensors.h"

static struct temp_folder folder;

static int set_up(void **state)
{
    (void)state;
    temp_folder_init(&folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_folder_finish(&folder);
    return 0;
}

/* ---- headers ---- */

struct header_case {
    const char *json;
    uint64_t data_bytes;
    const char *refusal; /* part of the sentence; NULL: accepted */
};

#define ENTRY(name, dtype, shape, begin, end)                                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static const struct header_case header_cases[] = {
    /* T33 (a) to (k) */
    {"{" ENTRY("w", "F32", "[1000,1000]", 0, 4) "}", 4,
     "'w': F32 [1000, 1000] takes 4000000 bytes, its data_offsets span 4"},
    {"{" ENTRY("w", "F32", "[1]", 8, 4) "}", 8,
     "'w': data_offsets end at 4 before they begin at 8"},
    {"{" ENTRY("w", "U8", "[17]", 0, 17) "}", 16, "'w' ends at 17, the file has 16"},
    {"{" ENTRY("a", "U8", "[16]", 0, 16) "," ENTRY("b", "U8", "[16]", 8, 24) "}", 24,
     "'b' begins at 8 and overlaps 'a', which ends at 16"},
    {"{" ENTRY("a", "U8", "[16]", 0, 16) "," ENTRY("b", "U8", "[16]", 0, 16) "}", 16, "overlaps"},
    {"{" ENTRY("a", "U8", "[8]", 0, 8) "," ENTRY("b", "U8", "[8]", 16, 24) "}", 24,
     "a hole: tensor 'b' begins at 16"},
    {"{" ENTRY("a", "U8", "[8]", 0, 8) "}", 16, "8 bytes after the last tensor"},
    {"{" ENTRY("w", "U8", "[8]", 0, 8) "," ENTRY("w", "U8", "[4]", 0, 4) "}", 8, "duplicate"},
    {"{" ENTRY("b", "U8", "[8]", 8, 16) "," ENTRY("a", "U8", "[8]", 0, 8) "}", 16, NULL},
    {"{" ENTRY("a", "U8", "[8]", 0, 8) "," ENTRY("b", "U8", "[8]", 8, 16) "}", 12,
     "'b' ends at 16, the file has 12"},
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,4,8]}}", 8,
     "'w': data_offsets is not a pair"},
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[\"0\",\"8\"]}}", 8,
     "'w': data_offsets is not a pair"},
    /* entries that are not what they should be */
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":[8]}}", 8, "'w': data_offsets is not a pair"},
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[-8,0]}}", 8, "is not a pair"},
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0.0,8.0]}}", 8, "is not a pair"},
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":8,\"data_offsets\":[0,8]}}", 8, "shape is not a list"},
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":[-8],\"data_offsets\":[0,8]}}", 8, "dimension 0"},
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":[8,\"1\"],\"data_offsets\":[0,8]}}", 8, "dimension 1"},
    {"{\"w\":{\"dtype\":8,\"shape\":[8],\"data_offsets\":[0,8]}}", 8, "dtype is not a string"},
    {"{\"w\":[]}", 0, "'w': its entry is not an object"},
    {"{" ENTRY("w", "U8", "[4294967296,4294967296]", 0, 8) "}", 8, "exceeds 64 bits"},
    {"{" ENTRY("w", "U8", "[1048576]", 0, 1048576) "}", 8, "cut short"},
    {"{" ENTRY("w", "F64", "[4611686018427387904]", 0, 8) "}", 8, "no whole number of bytes"},
    {"{" ENTRY("w", "U8", "[99999999999999999999]", 0, 8) "}", 8, "not valid JSON"},
    {"{" ENTRY("w", "U8", "[9223372036854775807]", 0, 9223372036854775807) "}", 8,
     "no whole number of bytes"},
    {"{\"__metadata__\":{\"format\":1}}", 0, "__metadata__ 'format' is not a string"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
    {"{" ENTRY("a\\u0000b", "U8", "[8]", 0, 8) "}", 8, "not valid JSON"},
    /* T34: not JSON, an array, a byte order mark, trailing bytes */
    {"", 0, "not a JSON object"},
    {"{", 0, "not a JSON object"},
    {"[]", 0, "not a JSON object"},
    {"  {}", 0, "not a JSON object"},
    {"\xef\xbb\xbf{}", 0, "not a JSON object"},
    {"{nonsense}", 0, "not valid JSON"},
    {"{} x", 0, "not valid JSON"},
    {"{}    ", 0, NULL},
    {"{}", 0, NULL},
    {"{}", 8, "8 bytes after the last tensor"},
    /* T35: legal and unusual */
    {"{" ENTRY("e", "F16", "[0]", 0, 0) "," ENTRY("f", "F16", "[0,128]", 0,
                                                  0) "," ENTRY("s", "F32", "[]", 0, 4) "}",
     4, NULL},
    {"{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("e", "U8", "[0]", 2, 2) "}", 4, "'e' begins at 2"},
    {"{\"__metadata__\":{}," ENTRY("s", "F8_E8M0", "[4]", 0, 4) "," ENTRY("t", "F4", "[3,2]", 4,
                                                                          7) "}",
     7, NULL},
    {"{" ENTRY("t", "F4", "[3]", 0, 2) "}", 2, "no whole number of bytes"},
    {"{" ENTRY("t", "F6_E2M3", "[4]", 0, 3) "}", 3, NULL},
    {"{" ENTRY("t", "f16", "[4]", 0, 3) "}", 3, NULL}, /* unknown too: not the file's spelling */
    {"{" ENTRY("b", "U8", "[1]", 0, 1) "," ENTRY("w", "F32", "[2]", 1, 9) "}", 9, NULL},
    {"{" ENTRY("a name/with \xce\xb1\xce\xb2", "U8", "[1]", 0, 1) "}", 1, NULL},
    {"{" ENTRY("\xff", "U8", "[1]", 0, 1) "}", 1, "not valid JSON"},
    {"{" ENTRY("d", "U8", "[1,1,1,1,1,1,1,1,2]", 0, 2) "}", 2, NULL},
};

static void check_header(const struct header_case *c)
{
    struct safetensors file = SAFETENSORS_NULL;
    struct reason why = REASON_NULL;
    /* an exact copy, so that a read past its end is seen */
    size_t length = strlen(c->json);
    char *json = malloc(length ? length : 1);
    assert_non_null(json);
    memcpy(json, c->json, length);
    int r = safetensors_parse("f", json, length, c->data_bytes, &file, &why);
    free(json);
    if (c->refusal && (r != STATUS_BAD_CHECKPOINT || !strstr(why.text, c->refusal))) {
        fail_msg("%s: %d '%s', expected '%s'", c->json, r, why.text, c->refusal);
    }
    if (!c->refusal && r != 0) {
        fail_msg("%s: refused: %s", c->json, why.text);
    }
    safetensors_finish(&file);
}

static void test_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(header_cases); i++) {
        check_header(&header_cases[i]);
    }
}

static void test_table(void **state)
{
    (void)state;
    static const char json[] =
        "{" ENTRY("b", "F16", "[2,3]", 8, 20) "," ENTRY("a", "X9", "[2]", 0, 8) "}";
    struct safetensors file;
    assert_int_equal(safetensors_parse("f", json, strlen(json), 20, &file, NULL), 0);
    const struct safetensors_tensor *b = safetensors_find(&file, "b");
    const struct safetensors_tensor *a = safetensors_find(&file, "a");
    assert_int_equal(file.n_tensors, 2);
    assert_int_equal(b->dtype, DTYPE_F16);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->dims[0], 2);
    assert_int_equal(b->dims[1], 3);
    assert_int_equal(b->offset_bytes, 8);
    assert_int_equal(b->size_bytes, 12);
    assert_int_equal(a->dtype, DTYPE_NONE);
    assert_string_equal(a->dtype_text, "X9");
    assert_null(safetensors_find(&file, "c"));
    safetensors_finish(&file);
}

/* T34: 100,000 levels of nesting, and T35: 10,000 tensors. */
static void test_large_headers(void **state)
{
    (void)state;
    enum { N_LEVELS = 100000, N_TENSORS = 10000 };
    char *json = malloc(N_LEVELS + 6);
    assert_non_null(json);
    memcpy(json, "{\"a\":", 5);
    memset(json + 5, '[', N_LEVELS);
    struct safetensors file;
    struct reason why;
    int r = safetensors_parse("f", json, N_LEVELS + 5, 0, &file, &why);
    free(json);
    assert_int_equal(r, STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(why.text, "depth"));

    struct tensor_file writer;
    tensor_file_init(&writer);
    for (uint32_t i = 0; i < N_TENSORS; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "t%05u", i * 7919 % N_TENSORS);
        tensor_file_add(&writer, name, "U8", 1, &(uint64_t){1}, &(uint8_t){(uint8_t)i}, 1);
    }
    tensor_file_write(&writer, temp_path(&folder, "many"));
    tensor_file_finish(&writer);
    assert_int_equal(safetensors_open(AT_FDCWD, temp_path(&folder, "many"), &file, &why), 0);
    assert_int_equal(file.n_tensors, N_TENSORS);
    uint8_t byte;
    assert_int_equal(safetensors_read(&file, safetensors_find(&file, "t07919"), 0, &byte, 1, &why),
                     0);
    assert_int_equal(byte, 1);
    safetensors_finish(&file);
}

/* ---- files ---- */

static int open_bytes(const void *bytes, uint64_t size_bytes, struct reason *why)
{
    struct safetensors file = SAFETENSORS_NULL;
    write_bytes(temp_path(&folder, "f"), bytes, size_bytes);
    int r = safetensors_open(AT_FDCWD, temp_path(&folder, "f"), &file, why);
    safetensors_finish(&file);
    return r;
}

/* T34: what the length may claim. */
static void test_header_lengths(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        uint64_t file_bytes;
        const char *refusal;
    } cases[] = {
        {0, 0, "too few"},
        {0, 7, "too few"},
        {0, 8, "not a JSON object"},
        {0, 64, "not a JSON object"},
        {1, 64, "not a JSON object"},
        {UINT64_C(1) << 63, 64, "over the limit"},
        {UINT64_MAX, 64, "over the limit"},
        {100000001, 64, "over the limit"},
        {100000000, 64, "has 64 in all"},
        {64 - 8, 64, NULL},
        {64 - 7, 64, "has 64 in all"},
        {64, 64, "has 64 in all"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint8_t bytes[64];
        struct reason why = REASON_NULL;
        memset(bytes, ' ', sizeof(bytes));
        memcpy(bytes, &cases[i].length, 8);
        memcpy(bytes + 8, "{}", 2);
        int r = open_bytes(bytes, cases[i].file_bytes, &why);
        if (cases[i].refusal ? r == 0 || !strstr(why.text, cases[i].refusal) : r != 0) {
            fail_msg("length %llu: %d '%s'", (unsigned long long)cases[i].length, r, why.text);
        }
    }
}

/* T34: whole headers of awkward sizes, up to and over the cap. */
static void test_header_sizes(void **state)
{
    (void)state;
    static const struct {
        uint64_t size_bytes;
        int status;
    } cases[] = {{99992, 0},         {99994, 0},   {100000, 0},
                 {(1 << 20) - 8, 0}, {1 << 20, 0}, {101000000, STATUS_BAD_CHECKPOINT}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint64_t size_bytes = cases[i].size_bytes;
        char *bytes = malloc(8 + size_bytes);
        assert_non_null(bytes);
        memcpy(bytes, &size_bytes, 8);
        memset(bytes + 8, ' ', size_bytes);
        memcpy(bytes + 8, "{}", 2);
        struct reason why = REASON_NULL;
        assert_int_equal(open_bytes(bytes, 8 + size_bytes, &why), cases[i].status);
        free(bytes);
    }
}

static void test_not_regular(void **state)
{
    (void)state;
    struct safetensors file;
    struct reason why;
    assert_int_equal(mkfifo(temp_path(&folder, "fifo"), 0600), 0);
    assert_int_equal(mkdir(temp_path(&folder, "dir"), 0700), 0);
    assert_int_equal(symlink("nowhere", temp_path(&folder, "dangling")), 0);
    assert_int_equal(safetensors_open(AT_FDCWD, temp_path(&folder, "fifo"), &file, &why),
                     STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(why.text, "not a regular file"));
    assert_int_equal(safetensors_open(AT_FDCWD, temp_path(&folder, "dir"), &file, &why),
                     STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(why.text, "a folder"));
    assert_int_equal(safetensors_open(AT_FDCWD, temp_path(&folder, "dangling"), &file, &why),
                     STATUS_NOT_FOUND);
}

/* A file that shrinks after it was opened is an error of the read. */
static void test_truncated_while_open(void **state)
{
    (void)state;
    struct safetensors file;
    struct reason why;
    char bytes[4096];
    const char *path = temp_path(&folder, "shrinks");
    write_safetensors(path, "{" ENTRY("w", "U8", "[4096]", 0, 4096) "}", 4096);
    assert_int_equal(safetensors_open(AT_FDCWD, path, &file, &why), 0);
    const struct safetensors_tensor *w = safetensors_find(&file, "w");
    assert_int_equal(safetensors_read(&file, w, 0, bytes, sizeof(bytes), &why), 0);
    assert_int_equal(truncate(path, 1024), 0);
    assert_int_equal(safetensors_read(&file, w, 0, bytes, sizeof(bytes), &why),
                     STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(why.text, "cut while being read"));
    safetensors_finish(&file);
}

/* T35: tensors at odd bytes hold what was written. */
static void test_unaligned(void **state)
{
    (void)state;
    struct tensor_file writer;
    struct safetensors file;
    const float values[2] = {1.5f, -2.25f};
    float read[2];
    tensor_file_init(&writer);
    tensor_file_add(&writer, "byte", "U8", 1, &(uint64_t){1}, "x", 1);
    tensor_file_add(&writer, "w", "F32", 1, &(uint64_t){2}, values, sizeof(values));
    tensor_file_write(&writer, temp_path(&folder, "odd"));
    tensor_file_finish(&writer);
    assert_int_equal(safetensors_open(AT_FDCWD, temp_path(&folder, "odd"), &file, NULL), 0);
    const struct safetensors_tensor *w = safetensors_find(&file, "w");
    assert_int_equal(w->offset_bytes, 1);
    assert_int_equal(safetensors_read(&file, w, 0, read, sizeof(read), NULL), 0);
    assert_memory_equal(read, values, sizeof(values));
    assert_int_equal(safetensors_read(&file, w, 4, read, 4, NULL), 0);
    assert_memory_equal(read, values + 1, 4);
    safetensors_finish(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_large_headers),
        cmocka_unit_test(test_header_lengths),
        cmocka_unit_test(test_header_sizes),
        cmocka_unit_test(test_not_regular),
        cmocka_unit_test(test_truncated_while_open),
        cmocka_unit_test(test_unaligned),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
