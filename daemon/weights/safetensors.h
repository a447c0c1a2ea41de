/* safetensors.h - one .safetensors file, read strictly.
 *
 * A file is an 8-byte little-endian header length, that many bytes of JSON, and the data. We accept
 * what the format allows: any tensor order, trailing spaces, unaligned and empty tensors, element
 * types we do not know. We refuse, naming file and tensor: a header over 100,000,000 bytes or past
 * the end of the file, duplicate names, offsets that are no pair of numbers, that do not match
 * shape and element type, overlap (two names for the same bytes too), leave a hole, end past the
 * file, or leave bytes behind the last tensor.
 *
 * Threads: one file is read by one thread; a parsed table is immutable. */
#pragma once

#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/dtype.h"
#include "ipc/base/reason.h"

#define SAFETENSORS_HEADER_MAX UINT64_C(100000000)
#define SAFETENSORS_DIMS_KEPT  4

struct safetensors_tensor {
    char *name; /* owned, UTF-8 */
    char dtype_text[16];
    enum dtype
        dtype; /* DTYPE_NONE: a type we do not know; an error only for who needs the tensor */
    uint32_t n_dims;
    uint64_t dims[SAFETENSORS_DIMS_KEPT]; /* those beyond count in n_dims and in the size only */
    uint64_t offset_bytes;                /* from the start of the data */
    uint64_t size_bytes;
};

struct safetensors {
    int fd;                             /* owned; -1 for a table parsed from bytes */
    char *name;                         /* owned; for messages */
    struct safetensors_tensor *tensors; /* owned, sorted by name */
    uint64_t n_tensors;
    uint64_t data_offset_bytes;
};

#define SAFETENSORS_NULL ((struct safetensors){.fd = -1})

/* safetensors_parse() - the header's JSON, checked against data_bytes of data behind it. `name`
 * names the file in messages. Return: 0, STATUS_BAD_CHECKPOINT, or -ENOMEM. */
int safetensors_parse(const char *name, const void *json, uint64_t json_bytes, uint64_t data_bytes,
                      struct safetensors *ret_file, struct reason *why) GD_MUST_CHECK;

/* safetensors_open() - open folder_fd/name and parse its header. Nothing is allocated for a claimed
 * length before the file is known to be that long. Return also as file_open_regular(). */
int safetensors_open(int folder_fd, const char *name, struct safetensors *ret_file,
                     struct reason *why) GD_MUST_CHECK;

void safetensors_finish(struct safetensors *file); /* safe on SAFETENSORS_NULL */

/* safetensors_find() - NULL when the file has no tensor of that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);

/* safetensors_read() - size_bytes of a tensor from an offset inside it; the range must lie in it.
 */
int safetensors_read(const struct safetensors *file, const struct safetensors_tensor *tensor,
                     uint64_t offset_bytes, void *ret_bytes, uint64_t size_bytes,
                     struct reason *why) GD_MUST_CHECK;

/* safetensors_shape() - "[4096, 128]" into text, cut to fit; returns text. */
const char *safetensors_shape(const struct safetensors_tensor *tensor, char *text,
                              uint32_t size_bytes);
