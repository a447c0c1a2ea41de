/* request_check.h - is this descriptor something the worker may run? The single place where sizes,
 * ranges, strides, types and overlap are judged, for every submit path. Pure but for the references
 * it acquires. */
#pragma once

#include "daemon/engine/buffers.h"
#include "daemon/weights/store.h"
#include "ipc/request.h"

/* A checked request: addresses proven to lie inside their buffers. Finish with checked_finish(). */
struct checked {
    struct weight *weight;         /* reference */
    struct buffer *x_buffer;       /* reference */
    struct buffer *y_buffer;       /* reference */
    struct buffer *x_scale_buffer; /* reference; NULL: x brings no scales */
    const uint8_t *x;
    uint8_t *y;
    const uint8_t *x_scales; /* NULL likewise */
    uint64_t x_stride_bytes;
    uint64_t y_stride_bytes;
    uint64_t x_scale_stride_bytes;
    uint32_t m;
};

#define CHECKED_NULL ((struct checked){0})

/* request_check() - Rules, each with its numbers in the sentence: op, reserved fields and flags
 * known; types among F32, F16, BF16, and for x I8 and F8_E4M3; weight there, on this device, n and
 * k as believed; buffers of this device; x quantised only as the weight's activations are, with
 * scales just where the scheme has them; m <= rows_max; strides >= the columns (for m > 1); offsets
 * multiples of the element size; last byte within the buffer, all sums checked for overflow; output
 * disjoint from input. m = 0 checks the weight and the types and acquires no buffer. Return: 0,
 * STATUS_NOT_FOUND, STATUS_INVALID_ARGUMENT, STATUS_UNSUPPORTED. */
int request_check(const struct request_desc *desc, struct store *store, struct buffers *buffers,
                  const struct device *device, uint32_t rows_max, struct checked *ret_checked,
                  struct reason *why) GD_MUST_CHECK;
void checked_finish(struct checked *checked);
