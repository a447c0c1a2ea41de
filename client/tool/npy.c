/* npy.c - magic, version, a Python dictionary in ASCII, then the data. Source: NumPy's NEP 1. The
 * dictionary is always written by numpy.save() with these three keys, so a search for each is
 * enough and no Python parser is needed. */
#include "client/tool/npy.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"

#define MAGIC       "\x93NUMPY"
#define MAGIC_BYTES 6u

static int refuse(struct reason *why, const char *sentence)
{
    return reason_set(why, STATUS_INVALID_ARGUMENT, "%s", sentence);
}

/* The value behind 'key': in the dictionary, or NULL. */
static const char *value_of(const char *dictionary, const char *key)
{
    char quoted[32];
    (void)snprintf(quoted, sizeof(quoted), "'%s':", key);
    const char *found = strstr(dictionary, quoted);
    if (!found) {
        return NULL;
    }
    found += strlen(quoted);
    while (*found == ' ') {
        found++;
    }
    return found;
}

static int parse_type(const char *dictionary, struct npy_header *header, struct reason *why)
{
    const char *type = value_of(dictionary, "descr");
    const char *order = value_of(dictionary, "fortran_order");
    if (!type || !order) {
        return refuse(why, "the header names no type or no order");
    }
    if (strncmp(order, "False", 5) != 0) {
        return refuse(why, "the array is in Fortran order; save it with numpy.ascontiguousarray()");
    }
    static const struct {
        const char *name;
        enum dtype dtype;
    } types[] = {
        {"'<f4'", DTYPE_F32}, {"'<f2'", DTYPE_F16}, {"'|i1'", DTYPE_I8}, {"'|u1'", DTYPE_U8}};
    for (size_t i = 0; i < ARRAY_LENGTH(types); i++) {
        if (strncmp(type, types[i].name, strlen(types[i].name)) == 0) {
            header->dtype = types[i].dtype;
            return 0;
        }
    }
    int n_type = (int)num_min(strcspn(type, ","), 40); /* a structured type goes on behind it */
    return reason_set(why, STATUS_INVALID_ARGUMENT,
                      "the type is %.*s, not little-endian float32 or float16, int8 or uint8",
                      n_type, type);
}

/* "(3, 384)", "(384,)" or "()": at most two dimensions. */
static int parse_shape(const char *dictionary, struct npy_header *header, struct reason *why)
{
    const char *text = value_of(dictionary, "shape");
    uint64_t dimensions[2] = {0, 0};
    uint32_t n = 0;
    if (!text || *text != '(') {
        return refuse(why, "the header names no shape");
    }
    for (text++; isdigit((unsigned char)*text);) {
        char *end;
        errno = 0;
        unsigned long long value = strtoull(text, &end, 10);
        if (n == 2 || errno != 0) {
            return refuse(why, "the array has more than two dimensions, or one over 2^64");
        }
        dimensions[n++] = value;
        text = end;
        while (*text == ',' || *text == ' ') {
            text++;
        }
    }
    if (n == 0 || *text != ')') {
        return refuse(why, "the shape is not one or two numbers");
    }
    header->n_rows = n == 2 ? dimensions[0] : 1;
    header->n_columns = dimensions[n - 1];
    return 0;
}

int npy_parse(const uint8_t *bytes, size_t n_bytes, struct npy_header *ret_header,
              struct reason *why)
{
    if (n_bytes < 12 || memcmp(bytes, MAGIC, MAGIC_BYTES) != 0) {
        return refuse(why, "this is no .npy file");
    }
    bool is_v1 = bytes[6] == 1;
    if (bytes[6] < 1 || bytes[6] > 3) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, ".npy version %u is not known", bytes[6]);
    }
    uint32_t n_prefix = is_v1 ? 10 : 12;
    uint32_t n_text = (uint32_t)bytes[8] | (uint32_t)bytes[9] << 8;
    n_text |= is_v1 ? 0 : (uint32_t)bytes[10] << 16 | (uint32_t)bytes[11] << 24;
    if (n_text > NPY_HEADER_BYTES_MAX || n_text > n_bytes - num_min(n_bytes, n_prefix)) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the header claims %u bytes of a file of %zu", n_text, n_bytes);
    }
    CLEAN_FREE char *dictionary = malloc(n_text + 1u);
    if (!dictionary) {
        return err_raise(-ENOMEM);
    }
    memcpy(dictionary, bytes + n_prefix, n_text);
    dictionary[n_text] = '\0';
    struct npy_header header = {.header_bytes = n_prefix + n_text};
    int r = parse_type(dictionary, &header, why);
    r = r != 0 ? r : parse_shape(dictionary, &header, why);
    if (r == 0) {
        *ret_header = header;
    }
    return r;
}

/* ---- files ---- */

static int read_whole(const char *path, uint8_t **ret_bytes, size_t *ret_n_bytes,
                      struct reason *why)
{
    FILE *file = fopen(path, "rbe");
    if (!file) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%s", strerror(errno));
    }
    int r = 0;
    CLEAN_FREE uint8_t *bytes = NULL;
    struct stat info;
    size_t size = 0;
    if (fstat(fileno(file), &info) < 0 || !S_ISREG(info.st_mode)) {
        r = refuse(why, "not a regular file");
    } else if (!(bytes = malloc((size = (size_t)info.st_size) + 1))) {
        r = err_raise(-ENOMEM);
    } else if (fread(bytes, 1, size, file) != size) {
        r = refuse(why, "reading failed");
    }
    (void)fclose(file);
    if (r == 0) {
        *ret_n_bytes = size;
        *ret_bytes = steal_ptr(&bytes);
    }
    return r;
}

/* The data of a whole file, moved to its start; bytes stay the caller's. */
static int check_data(uint8_t *bytes, size_t n_bytes, struct npy_header *ret_header,
                      struct reason *why)
{
    struct npy_header header;
    uint64_t n = 0;
    uint64_t n_data = 0;
    int r = npy_parse(bytes, n_bytes, &header, why);
    if (r != 0) {
        return r;
    }
    uint64_t n_rest = n_bytes - header.header_bytes;
    if (!num_mul(header.n_rows, header.n_columns, &n) ||
        !num_mul(n, dtype_bytes(header.dtype), &n_data) || n_data != n_rest) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the shape (%llu, %llu) does not fit the %llu bytes of data",
                          (unsigned long long)header.n_rows, (unsigned long long)header.n_columns,
                          (unsigned long long)n_rest);
    }
    memmove(bytes, bytes + header.header_bytes, n_data);
    *ret_header = header;
    return 0;
}

int npy_read_data(const char *path, struct npy_header *ret_header, void **ret_data,
                  struct reason *why)
{
    CLEAN_FREE uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    int r = read_whole(path, &bytes, &n_bytes, why);
    r = r != 0 ? r : check_data(bytes, n_bytes, ret_header, why);
    if (r > 0) {
        reason_prefix(why, "%s", path);
    }
    if (r == 0) {
        *ret_data = steal_ptr(&bytes);
    }
    return r;
}

void npy_widen(const void *data, enum dtype dtype, uint64_t n, float *values)
{
    if (dtype == DTYPE_F32) {
        memcpy(values, data, n * sizeof(*values));
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, (const char *)data + i * sizeof(half), sizeof(half));
        values[i] = half_to_f32(half);
    }
}

int npy_read(const char *path, struct npy_header *ret_header, float **ret_values,
             struct reason *why)
{
    struct npy_header header;
    CLEAN_FREE void *data = NULL;
    int r = npy_read_data(path, &header, &data, why);
    if (r != 0) {
        return r;
    }
    if (header.dtype != DTYPE_F32 && header.dtype != DTYPE_F16) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "%s: the type is %s, not f32 or f16", path,
                          dtype_name(header.dtype));
    }
    uint64_t n = header.n_rows * header.n_columns; /* it is in memory, so this fits */
    float *values = malloc(n * sizeof(float) + 1);
    if (!values) {
        return err_raise(-ENOMEM);
    }
    npy_widen(data, header.dtype, n, values);
    *ret_header = header;
    *ret_values = values;
    return 0;
}

int npy_write(const char *path, const float *values, uint64_t n_rows, uint64_t n_columns)
{
    char header[128];
    int n = snprintf(header + 10, sizeof(header) - 10,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %llu), }",
                     (unsigned long long)n_rows, (unsigned long long)n_columns);
    memset(header + 10 + n, ' ', sizeof(header) - 11 - (size_t)n);
    header[sizeof(header) - 1] = '\n';
    memcpy(header, MAGIC "\x01\x00", 8);
    header[8] = (char)(sizeof(header) - 10);
    header[9] = 0;
    FILE *file = fopen(path, "wbe");
    if (!file) {
        return err_raise(-errno);
    }
    size_t n_values = (size_t)(n_rows * n_columns);
    int r = 0;
    if (fwrite(header, sizeof(header), 1, file) != 1 ||
        fwrite(values, sizeof(float), n_values, file) != n_values) {
        r = err_raise(-errno);
    }
    return fclose(file) < 0 && r == 0 ? err_raise(-errno) : r;
}
