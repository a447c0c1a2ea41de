/* request.h - the one descriptor of a GEMM request, whatever path it takes.
 *
 * y = x W^T (+ bias): x is m x k row-major with x_stride_elems between rows, y is m x n likewise.
 * Lives in submit rings as it is, and in control messages field by field (codec_request.c). A
 * descriptor in shared memory can change under the reader: it is copied once, and only the copy is
 * looked at. */
#pragma once

#include <assert.h>
#include <stdint.h>

#include "ipc/base/reason.h"

enum request_op {
    REQUEST_OP_GEMM = 1,
    REQUEST_OP_CANCEL = 2, /* request_id names the request to cancel; it has no completion itself */
};

enum request_flags {
    REQUEST_FLAG_NONE = 0,
    REQUEST_FLAG_ORDERED = 1, /* through a lane only: launched when its stream says so; order.h */
    REQUEST_FLAG_NO_HOLD = 2, /* never held so that others can share its launch */
    REQUEST_FLAG_HIGH = 4,    /* its session's turn comes first, and is longer */
    REQUEST_FLAG_LOW = 8,     /* ... last, and shorter; neither: in between */
    REQUEST_FLAG_FAST_ACCUMULATION = 16, /* see enum request_accumulation */
    REQUEST_FLAGS = 31,
};

/* How e4m3 activations were summed. PROMOTED: a tensor core's sums, of about 14 bits, are added in
 * f32 every 128 of k; what does without such sums says so, too. FAST: they stay in the tensor core
 * for all of k, which is less exact and, where there are many rows, faster: only for a request that
 * asks for it, and where there is a kernel for it. */
enum request_accumulation {
    REQUEST_ACCUMULATION_PROMOTED = 0,
    REQUEST_ACCUMULATION_FAST = 1,
};

/* The upper bits of the flags: how long it may be held at most; 0: as long as the daemon thinks
 * fit.
 */
#define REQUEST_HOLD_SHIFT    8u
#define REQUEST_HOLD_USEC_MAX (UINT32_MAX >> REQUEST_HOLD_SHIFT)

struct request_desc {
    uint64_t request_id;     /* chosen by the client, unique among its requests in flight */
    uint64_t weight_id;      /* slot id from WEIGHT_FIND; never reused */
    uint64_t x_buffer_id;    /* id with generation; never reused within a session */
    uint64_t x_offset_bytes; /* multiple of the element size */
    uint64_t x_stride_elems; /* >= k */
    uint64_t y_buffer_id;
    uint64_t y_offset_bytes;
    uint64_t y_stride_elems; /* >= n */
    uint64_t timeout_usec;   /* from the daemon's first sight of it; 0: none */
    uint32_t m;              /* 0 is a success that touches nothing */
    uint32_t n;              /* what the client believes the weight's shape to be: a reload that */
    uint32_t k;              /* changed it is noticed instead of served */
    uint8_t op;              /* enum request_op */
    uint8_t x_dtype;         /* enum dtype: F16, BF16 or F32; or I8 or F8_E4M3, see below */
    uint8_t y_dtype;
    uint8_t reserved0;    /* zero; refused otherwise, so that it can gain a meaning */
    uint32_t flags;       /* enum request_flags */
    uint32_t order_value; /* ORDERED, else 0: what the entry's words become */
    /* Rows that come quantised bring f32 scales, one a row or one for each 128 of k, as the
     * weight's scheme has it: m rows of them, x_scale_stride_elems apart. All three are 0 for float
     * rows, and where the weight has one scale for all. */
    uint64_t x_scale_buffer_id;
    uint64_t x_scale_offset_bytes; /* multiple of 4 */
    uint64_t x_scale_stride_elems;
    uint32_t order_entry;  /* ORDERED, else 0: which words are its own; see order.h */
    uint32_t order_stream; /* likewise; < ORDER_STREAMS_MAX: requests of one are looked at in the
                              order in which they came */
};
static_assert(sizeof(struct request_desc) == 128, "a descriptor is two cache lines");

/* How a request ended. The sentence is empty for STATUS_OK. */
struct request_result {
    uint64_t request_id;
    uint32_t status;         /* enum status */
    uint32_t batch_rows;     /* rows of the launch that served it */
    uint32_t batch_requests; /* requests that shared the launch */
    uint32_t batch_sessions; /* sessions that shared the launch */
    uint64_t queue_nsec;     /* first seen by the daemon -> launch */
    uint64_t run_nsec;       /* launch -> product complete */
    uint32_t accumulation;   /* enum request_accumulation */
    uint8_t reserved[20];
    char text[REASON_TEXT_BYTES];
};
static_assert(sizeof(struct request_result) == 384, "a completion is six cache lines");
