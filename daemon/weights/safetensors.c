/* Strict safetensors reader. JSON comes through jansson, which refuses duplicate keys, bad UTF-8
 * and deep nesting; everything the format adds is checked here, in two passes: each tensor by
 * itself, then all of them in the order of their offsets. The alternative, trusting the writer and
 * checking only what is used, would serve a file with overlapping tensors until somebody looked at
 * the numbers. */
#include "daemon/weights/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/weights/files.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define REFUSE(why, ...) reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)

const char *safetensors_shape(const struct safetensors_tensor *tensor, char *text,
                              uint32_t size_bytes)
{
    uint32_t used = (uint32_t)snprintf(text, size_bytes, "[");
    uint32_t n_shown = (uint32_t)num_min(tensor->n_dims, SAFETENSORS_DIMS_KEPT);
    for (uint32_t i = 0; i < n_shown && used < size_bytes; i++) {
        used += (uint32_t)snprintf(text + used, size_bytes - used, "%s%" PRIu64, i ? ", " : "",
                                   tensor->dims[i]);
    }
    if (used < size_bytes) {
        (void)snprintf(text + used, size_bytes - used, "%s]",
                       tensor->n_dims > n_shown ? ", ..." : "");
    }
    return text;
}

static int parse_dtype(const json_t *json, struct safetensors_tensor *tensor, struct reason *why)
{
    const char *text = json_string_value(json);
    if (!text) {
        return REFUSE(why, "tensor '%s': dtype is not a string", tensor->name);
    }
    (void)snprintf(tensor->dtype_text, sizeof(tensor->dtype_text), "%s", text);
    enum dtype dtype = dtype_parse(text);
    /* The lower-case spellings are for people; in a file they are as unknown as any other word. */
    if (dtype != DTYPE_NONE && strcmp(dtype_safetensors_name(dtype), text) == 0) {
        tensor->dtype = dtype;
    }
    return 0;
}

static int parse_shape(const json_t *json, struct safetensors_tensor *tensor,
                       uint64_t *ret_n_elements, struct reason *why)
{
    if (!json_is_array(json)) {
        return REFUSE(why, "tensor '%s': shape is not a list", tensor->name);
    }
    uint64_t n_elements = 1;
    size_t n_dims = json_array_size(json);
    for (size_t i = 0; i < n_dims; i++) {
        const json_t *dim = json_array_get(json, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return REFUSE(why, "tensor '%s': dimension %zu of its shape is not a whole number >= 0",
                          tensor->name, i);
        }
        uint64_t value = (uint64_t)json_integer_value(dim);
        if (!num_mul(n_elements, value, &n_elements)) {
            return REFUSE(why, "tensor '%s': the product of its dimensions exceeds 64 bits",
                          tensor->name);
        }
        if (i < SAFETENSORS_DIMS_KEPT) {
            tensor->dims[i] = value;
        }
    }
    tensor->n_dims = (uint32_t)n_dims; /* at most half the header's bytes */
    *ret_n_elements = n_elements;
    return 0;
}

static int parse_offsets(const json_t *json, struct safetensors_tensor *tensor, struct reason *why)
{
    const json_t *begin = json_array_get(json, 0);
    const json_t *end = json_array_get(json, 1);
    if (json_array_size(json) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0) {
        return REFUSE(why, "tensor '%s': data_offsets is not a pair of whole numbers >= 0",
                      tensor->name);
    }
    if (json_integer_value(end) < json_integer_value(begin)) {
        return REFUSE(why, "tensor '%s': data_offsets end at %lld before they begin at %lld",
                      tensor->name, json_integer_value(end), json_integer_value(begin));
    }
    tensor->offset_bytes = (uint64_t)json_integer_value(begin);
    tensor->size_bytes = (uint64_t)(json_integer_value(end) - json_integer_value(begin));
    return 0;
}

/* Shape, element type and offsets must tell the same size. Of a type we do not know the width is
 * not known either, so there is nothing to compare. */
static int check_size(const struct safetensors_tensor *tensor, uint64_t n_elements,
                      struct reason *why)
{
    if (tensor->dtype == DTYPE_NONE) {
        return 0;
    }
    uint64_t n_bits;
    if (!num_mul(n_elements, dtype_bits(tensor->dtype), &n_bits) || n_bits % 8 != 0) {
        return REFUSE(why, "tensor '%s': %" PRIu64 " elements of %s are no whole number of bytes",
                      tensor->name, n_elements, tensor->dtype_text);
    }
    if (n_bits / 8 != tensor->size_bytes) {
        char shape[96];
        return REFUSE(
            why, "tensor '%s': %s %s takes %" PRIu64 " bytes, its data_offsets span %" PRIu64,
            tensor->name, tensor->dtype_text, safetensors_shape(tensor, shape, sizeof(shape)),
            n_bits / 8, tensor->size_bytes);
    }
    return 0;
}

static int parse_tensor(const char *name, const json_t *json, struct safetensors_tensor *tensor,
                        struct reason *why)
{
    tensor->name = strdup(name);
    if (!tensor->name) {
        return err_raise(-ENOMEM);
    }
    if (!json_is_object(json)) {
        return REFUSE(why, "tensor '%s': its entry is not an object", name);
    }
    uint64_t n_elements = 0;
    int r = parse_dtype(json_object_get(json, "dtype"), tensor, why);
    if (r == 0) {
        r = parse_shape(json_object_get(json, "shape"), tensor, &n_elements, why);
    }
    if (r == 0) {
        r = parse_offsets(json_object_get(json, "data_offsets"), tensor, why);
    }
    return r != 0 ? r : check_size(tensor, n_elements, why);
}

static int check_metadata(const json_t *json, struct reason *why)
{
    if (!json_is_object(json)) {
        return REFUSE(why, "__metadata__ is not an object");
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        if (!json_is_string(value)) {
            return REFUSE(why, "__metadata__ '%s' is not a string", key);
        }
    }
    return 0;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a;
    const struct safetensors_tensor *y = b;
    if (x->offset_bytes != y->offset_bytes) {
        return x->offset_bytes < y->offset_bytes ? -1 : 1;
    }
    return (x->size_bytes > y->size_bytes) - (x->size_bytes < y->size_bytes);
}

static int compare_names(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a;
    const struct safetensors_tensor *y = b;
    return strcmp(x->name, y->name);
}

/* Tensors sorted by offset must tile the data exactly. */
static int check_tiling(const struct safetensors *file, uint64_t data_bytes, struct reason *why)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < file->n_tensors; i++) {
        const struct safetensors_tensor *tensor = &file->tensors[i];
        if (tensor->offset_bytes < at) {
            return REFUSE(
                why, "tensor '%s' begins at %" PRIu64 " and overlaps '%s', which ends at %" PRIu64,
                tensor->name, tensor->offset_bytes, file->tensors[i - 1].name, at);
        }
        if (tensor->offset_bytes > at) {
            return REFUSE(
                why, "a hole: tensor '%s' begins at %" PRIu64 ", the one before ends at %" PRIu64,
                tensor->name, tensor->offset_bytes, at);
        }
        at += tensor->size_bytes; /* both below 2^63: cannot wrap */
        if (at > data_bytes) {
            return REFUSE(why,
                          "tensor '%s' ends at %" PRIu64 ", the file has %" PRIu64
                          " bytes of data: cut short",
                          tensor->name, at, data_bytes);
        }
    }
    if (at != data_bytes) {
        return REFUSE(why, "%" PRIu64 " bytes after the last tensor belong to none",
                      data_bytes - at);
    }
    return 0;
}

static int parse_all(json_t *root, struct safetensors *file, struct reason *why)
{
    file->tensors = calloc(json_object_size(root) + 1, sizeof(*file->tensors));
    if (!file->tensors) {
        return err_raise(-ENOMEM);
    }
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        bool is_metadata = strcmp(key, "__metadata__") == 0;
        int r = is_metadata ? check_metadata(value, why)
                            : parse_tensor(key, value, &file->tensors[file->n_tensors++], why);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

static int parse_table(const void *json, uint64_t json_bytes, uint64_t data_bytes,
                       struct safetensors *file, struct reason *why)
{
    if (json_bytes < 2 || *(const char *)json != '{') {
        return REFUSE(why, "the header is not a JSON object");
    }
    json_error_t error;
    json_t *root = json_loadb(json, json_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        return REFUSE(why, "the header is not valid JSON: %s (byte %d)", error.text,
                      error.position);
    }
    int r = parse_all(root, file, why);
    json_decref(root);
    if (r != 0) {
        return r;
    }
    qsort(file->tensors, file->n_tensors, sizeof(*file->tensors), compare_offsets);
    r = check_tiling(file, data_bytes, why);
    qsort(file->tensors, file->n_tensors, sizeof(*file->tensors), compare_names);
    return r;
}

int safetensors_parse(const char *name, const void *json, uint64_t json_bytes, uint64_t data_bytes,
                      struct safetensors *ret_file, struct reason *why)
{
    struct safetensors file = SAFETENSORS_NULL;
    file.name = strdup(name);
    int r = file.name ? parse_table(json, json_bytes, data_bytes, &file, why) : err_raise(-ENOMEM);
    if (r != 0) {
        if (r > 0) {
            reason_prefix(why, "'%s'", name);
        }
        safetensors_finish(&file);
        return r;
    }
    *ret_file = file;
    return 0;
}

/* The 8 bytes that say how long the header is, against how long the file is. */
static int read_header_length(int fd, const char *name, uint64_t file_bytes,
                              uint64_t *ret_json_bytes, struct reason *why)
{
    uint64_t length;
    if (file_bytes < sizeof(length)) {
        return REFUSE(why, "'%s' has %" PRIu64 " bytes, too few for a safetensors header", name,
                      file_bytes);
    }
    int r = file_read_at(fd, name, 0, &length, sizeof(length), why);
    if (r != 0) {
        return r;
    }
    length = le64toh(length);
    if (length > SAFETENSORS_HEADER_MAX) {
        return REFUSE(why,
                      "'%s' is no safetensors file: its first 8 bytes claim a header of %" PRIu64
                      " bytes, over the limit of %" PRIu64,
                      name, length, SAFETENSORS_HEADER_MAX);
    }
    if (length > file_bytes - sizeof(length)) {
        return REFUSE(why,
                      "'%s' claims a header of %" PRIu64 " bytes, the file has %" PRIu64 " in all",
                      name, length, file_bytes);
    }
    *ret_json_bytes = length;
    return 0;
}

int safetensors_open(int folder_fd, const char *name, struct safetensors *ret_file,
                     struct reason *why)
{
    CLEAN_FD int fd = -1;
    const char *slash = strrchr(name, '/');
    const char *shown = slash ? slash + 1 : name;
    uint64_t file_bytes = 0;
    uint64_t json_bytes = 0;
    int r = file_open_regular(folder_fd, name, shown, &fd, &file_bytes, why);
    if (r == 0) {
        r = read_header_length(fd, shown, file_bytes, &json_bytes, why);
    }
    if (r != 0) {
        return r;
    }
    CLEAN_FREE char *json = malloc(json_bytes + 1);
    if (!json) {
        return err_raise(-ENOMEM);
    }
    uint64_t data_offset_bytes = sizeof(uint64_t) + json_bytes;
    r = file_read_at(fd, shown, sizeof(uint64_t), json, json_bytes, why);
    if (r == 0) {
        r = safetensors_parse(shown, json, json_bytes, file_bytes - data_offset_bytes, ret_file,
                              why);
    }
    if (r == 0) {
        ret_file->fd = steal_fd(&fd);
        ret_file->data_offset_bytes = data_offset_bytes;
    }
    return r;
}

void safetensors_finish(struct safetensors *file)
{
    for (uint64_t i = 0; i < file->n_tensors; i++) {
        free(file->tensors[i].name);
    }
    free(file->tensors);
    free(file->name);
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    *file = SAFETENSORS_NULL;
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
    uint64_t low = 0;
    uint64_t high = file->n_tensors;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = strcmp(name, file->tensors[middle].name);
        if (order == 0) {
            return &file->tensors[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

int safetensors_read(const struct safetensors *file, const struct safetensors_tensor *tensor,
                     uint64_t offset_bytes, void *ret_bytes, uint64_t size_bytes,
                     struct reason *why)
{
    GD_ASSERT(offset_bytes <= tensor->size_bytes);
    GD_ASSERT(size_bytes <= tensor->size_bytes - offset_bytes);
    uint64_t at = file->data_offset_bytes + tensor->offset_bytes + offset_bytes;
    return file_read_at(file->fd, file->name, at, ret_bytes, size_bytes, why);
}
