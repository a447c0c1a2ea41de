/* request_check.c - see request_check.h. The descriptor is the caller's private copy. */
#include "daemon/engine/request_check.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>

#include "ipc/base/num.h"

/* One matrix of the request while it is being judged. */
struct matrix {
    const char *name; /* "x", "y", "x_scale" */
    enum dtype dtype;
    uint64_t buffer_id;
    uint64_t offset_bytes;
    uint64_t stride_elems;
    uint32_t n_rows;
    uint32_t n_columns;
    uint64_t end_bytes; /* offset of the first byte behind it */
    struct buffer *buffer;
    uint8_t *base;
};

static int check_form(const struct request_desc *desc, struct reason *why)
{
    if (desc->op != REQUEST_OP_GEMM) {
        return reason_set(why, STATUS_UNSUPPORTED, "op %u is not known", desc->op);
    }
    uint32_t flags = desc->flags & ~(REQUEST_HOLD_USEC_MAX << REQUEST_HOLD_SHIFT);
    if ((flags & ~(uint32_t)REQUEST_FLAGS) != 0) {
        return reason_set(why, STATUS_UNSUPPORTED, "flags 0x%" PRIx32 " are not known", flags);
    }
    bool has_order_fields =
        desc->order_value != 0 || desc->order_entry != 0 || desc->order_stream != 0;
    if (desc->reserved0 != 0 || ((flags & REQUEST_FLAG_ORDERED) == 0 && has_order_fields)) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "reserved fields of the request are not 0");
    }
    return 0;
}

static bool is_float(uint8_t dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static bool is_quantised(uint8_t dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_F8_E4M3;
}

static int check_types(const struct request_desc *desc, struct reason *why)
{
    if (!is_float(desc->x_dtype) && !is_quantised(desc->x_dtype)) {
        return reason_set(
            why, STATUS_UNSUPPORTED,
            "type %u of x is not one of f32 (%u), f16 (%u), bf16 (%u), i8 (%u), f8_e4m3 (%u)",
            desc->x_dtype, DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_I8, DTYPE_F8_E4M3);
    }
    if (!is_float(desc->y_dtype)) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "type %u of y is not one of f32 (%u), f16 (%u), bf16 (%u)", desc->y_dtype,
                          DTYPE_F32, DTYPE_F16, DTYPE_BF16);
    }
    return 0;
}

static int check_weight(const struct request_desc *desc, const struct weight *weight,
                        const struct device *device, struct reason *why)
{
    if (weight->device != device) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "weight '%.100s' is on device %u (%s), the request came to device %u "
                          "(%s)",
                          weight->name, weight->device->index, weight->device->name, device->index,
                          device->name);
    }
    if (desc->n != weight->desc.n || desc->k != weight->desc.k) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the request takes weight '%.100s' for %" PRIu32 " x %" PRIu32
                          ", it is %" PRIu32 " x %" PRIu32,
                          weight->name, desc->n, desc->k, weight->desc.n, weight->desc.k);
    }
    return 0;
}

/* How many scales a row of this request has; 0: none. */
static uint32_t scales_of(const struct request_desc *desc, const struct weight *weight)
{
    return is_quantised(desc->x_dtype) ? gk_desc_x_scales(&weight->desc) : 0;
}

/* Rows that come quantised must be what the weight would have made of them. */
static int check_quantised(const struct request_desc *desc, const struct weight *weight,
                           struct reason *why)
{
    enum dtype dtype = gk_act_dtype(weight->desc.act);
    if (is_quantised(desc->x_dtype) && desc->x_dtype != dtype) {
        return reason_set(why, STATUS_UNSUPPORTED,
                          "x comes as %s; weight '%.100s' takes rows of floats%s%s",
                          dtype_name((enum dtype)desc->x_dtype), weight->name,
                          dtype != DTYPE_NONE ? " or of " : " only",
                          dtype != DTYPE_NONE ? dtype_name(dtype) : "");
    }
    bool has_scale_fields = desc->x_scale_buffer_id != 0 || desc->x_scale_offset_bytes != 0 ||
                            desc->x_scale_stride_elems != 0;
    if (has_scale_fields && scales_of(desc, weight) == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "x brings scales, %s",
                          is_float(desc->x_dtype) ? "and is not quantised"
                                                  : "and the weight has one scale for all of x");
    }
    if (desc->m != 0 && desc->x_scale_buffer_id == 0 && scales_of(desc, weight) != 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "x comes as %s without scales, of which each row has %" PRIu32,
                          dtype_name((enum dtype)desc->x_dtype), scales_of(desc, weight));
    }
    return 0;
}

/* Stride, alignment and the end of the last row: everything but the buffer. */
static int check_geometry(struct matrix *matrix, struct reason *why)
{
    uint32_t elem_bytes = dtype_bytes(matrix->dtype);
    if (matrix->n_rows > 1 && matrix->stride_elems < matrix->n_columns) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "stride %" PRIu64 " of %s is below its %" PRIu32 " columns",
                          matrix->stride_elems, matrix->name, matrix->n_columns);
    }
    if (matrix->offset_bytes % elem_bytes != 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "offset %" PRIu64 " of %s is not a multiple of its element size %" PRIu32,
                          matrix->offset_bytes, matrix->name, elem_bytes);
    }
    uint64_t n_elems;
    uint64_t n_bytes;
    if (!num_mul(matrix->n_rows - 1, matrix->n_rows > 1 ? matrix->stride_elems : 0, &n_elems) ||
        !num_add(n_elems, matrix->n_columns, &n_elems) || !num_mul(n_elems, elem_bytes, &n_bytes) ||
        !num_add(n_bytes, matrix->offset_bytes, &matrix->end_bytes)) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "%" PRIu32 " rows of %s with stride %" PRIu64 " from offset %" PRIu64
                          " end beyond 2^64 bytes",
                          matrix->n_rows, matrix->name, matrix->stride_elems, matrix->offset_bytes);
    }
    return 0;
}

static int check_device(const struct matrix *matrix, const struct device *device,
                        struct reason *why)
{
    const struct device *other = buffer_device(matrix->buffer);
    if (other == device) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT,
                      "%s is in buffer %" PRIu64 " of device %" PRIu32
                      " (%s), the weight on device %" PRIu32 " (%s): use a buffer of that device",
                      matrix->name, matrix->buffer_id, other->index, other->name, device->index,
                      device->name);
}

static int check_range(struct matrix *matrix, struct buffers *buffers, const struct device *device,
                       struct reason *why)
{
    void *base;
    uint64_t size_bytes;
    matrix->buffer = buffers_acquire(buffers, matrix->buffer_id, &base, &size_bytes);
    if (matrix->buffer == NULL) {
        return reason_set(why, STATUS_NOT_FOUND, "the session has no buffer %" PRIu64 " for %s",
                          matrix->buffer_id, matrix->name);
    }
    int r = check_device(matrix, device, why);
    if (r != 0) {
        return r;
    }
    if (matrix->end_bytes > size_bytes) {
        return reason_set(
            why, STATUS_INVALID_ARGUMENT,
            "%s needs bytes %" PRIu64 " to %" PRIu64 " of buffer %" PRIu64 ", which has %" PRIu64,
            matrix->name, matrix->offset_bytes, matrix->end_bytes, matrix->buffer_id, size_bytes);
    }
    matrix->base = base;
    return 0;
}

/* Whole spans are compared: rows of x and y interleaved in one buffer count as overlapping. A
 * matrix that is not there has no buffer. */
static int check_disjoint(const struct matrix *x, const struct matrix *y, struct reason *why)
{
    if (x->buffer == NULL || !buffers_share_memory(x->buffer, y->buffer)) {
        return 0;
    }
    uint64_t x_origin = buffer_origin(x->buffer);
    uint64_t y_origin = buffer_origin(y->buffer);
    if (x_origin + x->end_bytes <= y_origin + y->offset_bytes ||
        y_origin + y->end_bytes <= x_origin + x->offset_bytes) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT,
                      "y, bytes %" PRIu64 " to %" PRIu64 " of buffer %" PRIu64
                      ", overlaps %s, bytes %" PRIu64 " to %" PRIu64 " of buffer %" PRIu64,
                      y->offset_bytes, y->end_bytes, y->buffer_id, x->name, x->offset_bytes,
                      x->end_bytes, x->buffer_id);
}

/* The matrices of a request. x_scale has no columns where x brings no scales. */
struct matrices {
    struct matrix x;
    struct matrix y;
    struct matrix x_scale;
};

static int check_matrix(struct matrix *matrix, struct buffers *buffers, const struct device *device,
                        struct reason *why)
{
    if (matrix->n_columns == 0) {
        return 0;
    }
    int r = check_geometry(matrix, why);
    return r != 0 ? r : check_range(matrix, buffers, device, why);
}

static int check_matrices(struct matrices *all, struct buffers *buffers,
                          const struct device *device, struct reason *why)
{
    int r = check_matrix(&all->x, buffers, device, why);
    if (r == 0) {
        r = check_matrix(&all->y, buffers, device, why);
    }
    if (r == 0) {
        r = check_matrix(&all->x_scale, buffers, device, why);
    }
    if (r == 0) {
        r = check_disjoint(&all->x, &all->y, why);
    }
    return r != 0 ? r : check_disjoint(&all->x_scale, &all->y, why);
}

static struct matrices matrices_of(const struct request_desc *desc, const struct weight *weight)
{
    return (struct matrices){
        .x = {.name = "x",
              .dtype = (enum dtype)desc->x_dtype,
              .buffer_id = desc->x_buffer_id,
              .offset_bytes = desc->x_offset_bytes,
              .stride_elems = desc->x_stride_elems,
              .n_rows = desc->m,
              .n_columns = desc->k},
        .y = {.name = "y",
              .dtype = (enum dtype)desc->y_dtype,
              .buffer_id = desc->y_buffer_id,
              .offset_bytes = desc->y_offset_bytes,
              .stride_elems = desc->y_stride_elems,
              .n_rows = desc->m,
              .n_columns = desc->n},
        .x_scale = {.name = "x_scale",
                    .dtype = DTYPE_F32,
                    .buffer_id = desc->x_scale_buffer_id,
                    .offset_bytes = desc->x_scale_offset_bytes,
                    .stride_elems = desc->x_scale_stride_elems,
                    .n_rows = desc->m,
                    .n_columns = scales_of(desc, weight)},
    };
}

/* With one row the stride is never used, and need not even fit 64 bits once in bytes. */
static uint64_t stride_bytes(const struct matrix *matrix)
{
    return matrix->n_rows > 1 ? matrix->stride_elems * dtype_bytes(matrix->dtype) : 0;
}

static int check_memory(const struct request_desc *desc, struct buffers *buffers,
                        struct checked *checked, struct reason *why)
{
    struct matrices all = matrices_of(desc, checked->weight);
    int r = check_matrices(&all, buffers, checked->weight->device, why);
    checked->x_buffer = all.x.buffer;
    checked->y_buffer = all.y.buffer;
    checked->x_scale_buffer = all.x_scale.buffer;
    if (r != 0) {
        return r;
    }
    checked->x = all.x.base + all.x.offset_bytes;
    checked->y = all.y.base + all.y.offset_bytes;
    checked->x_stride_bytes = stride_bytes(&all.x);
    checked->y_stride_bytes = stride_bytes(&all.y);
    if (all.x_scale.buffer != NULL) {
        checked->x_scales = all.x_scale.base + all.x_scale.offset_bytes;
        checked->x_scale_stride_bytes = stride_bytes(&all.x_scale);
    }
    return 0;
}

static int check_all(const struct request_desc *desc, struct store *store, struct buffers *buffers,
                     const struct device *device, uint32_t rows_max, struct checked *checked,
                     struct reason *why)
{
    int r = check_form(desc, why);
    if (r == 0) {
        r = check_types(desc, why);
    }
    if (r != 0) {
        return r;
    }
    checked->weight = store_acquire(store, desc->weight_id);
    if (checked->weight == NULL) {
        return reason_set(why, STATUS_NOT_FOUND,
                          "there is no weight of id %" PRIu64
                          ": it was unloaded, or reloaded with another shape",
                          desc->weight_id);
    }
    r = check_weight(desc, checked->weight, device, why);
    r = r != 0 ? r : check_quantised(desc, checked->weight, why);
    if (r != 0) {
        return r;
    }
    if (desc->m > rows_max) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "m %" PRIu32 " is over the limit of %" PRIu32 " rows", desc->m, rows_max);
    }
    checked->m = desc->m;
    return desc->m == 0 ? 0 : check_memory(desc, buffers, checked, why);
}

int request_check(const struct request_desc *desc, struct store *store, struct buffers *buffers,
                  const struct device *device, uint32_t rows_max, struct checked *ret_checked,
                  struct reason *why)
{
    struct checked checked = CHECKED_NULL;
    int r = check_all(desc, store, buffers, device, rows_max, &checked, why);
    if (r != 0) {
        checked_finish(&checked);
        return r;
    }
    *ret_checked = checked;
    return 0;
}

void checked_finish(struct checked *checked)
{
    (void)weight_unref(checked->weight);
    (void)buffer_unref(checked->x_buffer);
    (void)buffer_unref(checked->y_buffer);
    (void)buffer_unref(checked->x_scale_buffer);
    *checked = CHECKED_NULL;
}
