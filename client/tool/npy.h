/* npy.h - NumPy's .npy files: two-dimensional arrays in, float32 out. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/dtype.h"
#include "ipc/base/reason.h"

#define NPY_HEADER_BYTES_MAX 65536u

struct npy_header {
    enum dtype dtype; /* F32, F16, I8 or U8 */
    uint64_t n_rows;  /* 1 for a one-dimensional array */
    uint64_t n_columns;
    uint64_t header_bytes; /* where the data starts */
};

/* npy_parse() - judge the first n_bytes of a file. Versions 1 to 3; C order; little endian; one or
 * two dimensions. Return: 0 or STATUS_INVALID_ARGUMENT saying what is wrong. */
int npy_parse(const uint8_t *bytes, size_t n_bytes, struct npy_header *ret_header,
              struct reason *why) GD_MUST_CHECK;

/* npy_read_data() - the whole array, malloc'd, (n_rows, n_columns) of header.dtype. npy_read() -
 * one of floats, as float32. Return: 0, -ENOMEM, or STATUS_INVALID_ARGUMENT naming the file. */
int npy_read_data(const char *path, struct npy_header *ret_header, void **ret_data,
                  struct reason *why) GD_MUST_CHECK;
int npy_read(const char *path, struct npy_header *ret_header, float **ret_values,
             struct reason *why) GD_MUST_CHECK;

/* npy_widen() - n elements of F32 or F16 as float32. */
void npy_widen(const void *data, enum dtype dtype, uint64_t n, float *values);

/* npy_write() - values (n_rows, n_columns) as version 1.0. Return: 0 or a negative errno. */
int npy_write(const char *path, const float *values, uint64_t n_rows,
              uint64_t n_columns) GD_MUST_CHECK;
