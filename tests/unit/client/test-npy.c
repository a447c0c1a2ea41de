/* test-npy.c - what numpy.save() writes is read, what we write is what it would write, and
 * everything else is refused with a reason. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/client/fixture.h"

#include "client/tool/npy.h"

/* A file of that version with that dictionary; returns its length. */
static size_t make(uint8_t version, const char *dictionary, uint8_t bytes[1024])
{
    size_t n = strlen(dictionary);
    size_t n_prefix = version == 1 ? 10 : 12;
    memset(bytes, 0, 1024);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = version;
    bytes[8] = (uint8_t)n;
    bytes[9] = (uint8_t)(n >> 8);
    memcpy(bytes + n_prefix, dictionary, n);
    return n_prefix + n;
}

static void test_good_headers(void **state)
{
    (void)state;
    static const struct {
        uint8_t version;
        const char *dictionary;
        enum dtype dtype;
        uint64_t n_rows, n_columns;
    } cases[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 384), }  \n", DTYPE_F32, 3, 384},
        {2, "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 7), }\n", DTYPE_F16, 0, 7},
        {3, "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }\n", DTYPE_F32, 1, 5},
        {1, "{'descr': '|i1', 'fortran_order': False, 'shape': (2, 5), }\n", DTYPE_I8, 2, 5},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }\n", DTYPE_U8, 1, 5},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[1024];
        struct npy_header header;
        size_t n = make(cases[i].version, cases[i].dictionary, bytes);
        assert_int_equal(npy_parse(bytes, n, &header, NULL), 0);
        assert_int_equal(header.dtype, cases[i].dtype);
        assert_int_equal(header.n_rows, cases[i].n_rows);
        assert_int_equal(header.n_columns, cases[i].n_columns);
        assert_int_equal(header.header_bytes, n);
    }
}

static void test_bad_headers(void **state)
{
    (void)state;
    static const struct {
        uint8_t version;
        const char *dictionary;
        const char *says;
    } cases[] = {
        {4, "{}", "version 4"},
        {1, "{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }",
         "'>f4', not little-endian float32 or float16, int8"},
        {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", "is '<f8', not"},
        {1, "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }", "Fortran order"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }", "two dimensions"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "one or two numbers"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2), }", "one or two numbers"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "2^64"},
        {1, "{'descr': '<f4', 'fortran_order': False}", "no shape"},
        {1, "{'shape': (3,)}", "no type"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[1024];
        struct npy_header header;
        struct reason why = REASON_NULL;
        size_t n = make(cases[i].version, cases[i].dictionary, bytes);
        assert_int_equal(npy_parse(bytes, n, &header, &why), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(why.text, cases[i].says));
    }
}

static void test_every_truncation_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    struct npy_header header;
    size_t n = make(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 384), }", bytes);
    for (size_t i = 0; i < n; i++) {
        uint8_t *exact = malloc(i + 1); /* so that a sanitizer sees a step too far */
        memcpy(exact, bytes, i);
        assert_int_equal(npy_parse(exact, i, &header, NULL), STATUS_INVALID_ARGUMENT);
        free(exact);
    }
}

/* ---- files ---- */

static const char path[] = "test-npy.scratch";

static void write_file(const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

static void test_round_trip(void **state)
{
    (void)state;
    const float values[6] = {1, -2.5f, 3e38f, 0, -0.0f, 1e-40f};
    struct npy_header header;
    float *back = NULL;
    assert_int_equal(npy_write(path, values, 2, 3), 0);
    assert_int_equal(npy_read(path, &header, &back, NULL), 0);
    assert_int_equal(header.n_rows, 2);
    assert_int_equal(header.n_columns, 3);
    assert_int_equal(header.header_bytes % 64, 0); /* as NumPy aligns it */
    assert_memory_equal(back, values, sizeof(values));
    free(back);
    assert_int_equal(unlink(path), 0);
}

static void test_halves_are_widened(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    struct npy_header header;
    float *values = NULL;
    size_t n = make(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }", bytes);
    memcpy(bytes + n, "\x00\x3c\x00\xc1", 4); /* 1, -2.5 */
    write_file(bytes, n + 4);
    assert_int_equal(npy_read(path, &header, &values, NULL), 0);
    assert_true(values[0] == 1.0f && values[1] == -2.5f);
    free(values);
    assert_int_equal(unlink(path), 0);
}

/* Bytes come as they are, and are no floats. */
static void test_bytes(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    struct npy_header header;
    struct reason why = REASON_NULL;
    void *data = NULL;
    float *values = NULL;
    size_t n = make(1, "{'descr': '|i1', 'fortran_order': False, 'shape': (3, 1), }", bytes);
    memcpy(bytes + n, "\x80\x00\x7f", 3);
    write_file(bytes, n + 3);
    assert_int_equal(npy_read_data(path, &header, &data, NULL), 0);
    assert_int_equal(header.n_rows, 3);
    assert_memory_equal(data, "\x80\x00\x7f", 3);
    free(data);
    assert_int_equal(npy_read(path, &header, &values, &why), STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "test-npy.scratch: the type is i8, not f32 or f16");
    assert_int_equal(unlink(path), 0);
}

static void test_data_must_fit_the_shape(void **state)
{
    (void)state;
    static const char *const shapes[] = {"(3,)", "(1,)", "(4294967296, 4294967296)", "(0, 5)"};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        uint8_t bytes[1024];
        char dictionary[128];
        struct npy_header header;
        struct reason why = REASON_NULL;
        float *values = NULL;
        (void)snprintf(dictionary, sizeof(dictionary),
                       "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shapes[i]);
        write_file(bytes, make(1, dictionary, bytes) + 8);
        assert_int_equal(npy_read(path, &header, &values, &why), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(why.text, "does not fit the 8 bytes"));
        assert_non_null(strstr(why.text, path));
    }
    assert_int_equal(unlink(path), 0);
}

static void test_no_file(void **state)
{
    (void)state;
    struct npy_header header;
    struct reason why = REASON_NULL;
    float *values = NULL;
    assert_int_equal(npy_read("/nonexistent/x.npy", &header, &values, &why),
                     STATUS_INVALID_ARGUMENT);
    assert_string_equal(why.text, "/nonexistent/x.npy: No such file or directory");
    assert_int_equal(npy_read("/", &header, &values, &why), STATUS_INVALID_ARGUMENT);
    assert_true(npy_write("/nonexistent/y.npy", NULL, 0, 0) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_headers),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_halves_are_widened),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_data_must_fit_the_shape),
        cmocka_unit_test(test_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
