/* gemmd.h - the C API of gemmd: products of quantised weights that a daemon holds.
 *
 * A program opens a connection, looks up a weight, allocates shared buffers, writes rows of x into
 * one, and asks for y = x W^T (+ bias). W is n x k and never leaves the daemon; x is m x k
 * row-major, y is m x n row-major.
 *
 *     gemmd_client_t *client;
 *     gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
 *     gemmd_buffer_t *x, *y;
 *     gemmd_open(NULL, &client);
 *     gemmd_find_weight(client, "minilm/encoder.layer.0.attention.self.query", &weight);
 *     gemmd_buffer_alloc_host(client, weight.device_index, weight.k * sizeof(float), &x);
 *     gemmd_buffer_alloc_host(client, weight.device_index, weight.n * sizeof(float), &y);
 *     ... write weight.k floats to gemmd_buffer_data(x) ...
 *     struct gemmd_gemm gemm = GEMMD_GEMM_INIT;
 *     gemm.weight = &weight;
 *     gemm.m = 1;
 *     gemm.x = x, gemm.x_dtype = GEMMD_F32;
 *     gemm.y = y, gemm.y_dtype = GEMMD_F32;
 *     gemmd_gemm(client, &gemm);
 *     ... read weight.n floats from gemmd_buffer_data(y) ...
 *
 * Errors: every call that can fail returns GEMMD_OK (0) or another enum gemmd_status; then
 * gemmd_last_error() has one sentence with the numbers in it, for the calling thread.
 *
 * Threads: all calls on one client may be made from any threads at once, except gemmd_close(),
 * which must be the last. A buffer must outlive the calls that submit requests which name it. A
 * child of fork() opens a client of its own: calls on the parent's are refused there, and closing
 * it or freeing its buffers lets go of the child's copies and changes nothing for the parent.
 *
 * Versions: the library and the daemon agree on a protocol version when they connect. Every struct
 * starts with struct_bytes, its size where the program was compiled: start from its _INIT macro.
 * Structs only grow, and at their end. One that a call fills (gemmd_weight_t, struct gemmd_result)
 * is written up to its struct_bytes and no further, so that a program is safe with a later library;
 * with an earlier one the fields it does not know stay as they were. struct_bytes then says how far
 * it was filled. One that a call takes (struct gemmd_options, struct gemmd_gemm) may be an older
 * program's, which has the defaults in the fields it does not know, or a newer one's, as long as
 * everything behind the fields that this library knows is 0; any other struct_bytes is refused with
 * INVALID_ARGUMENT. The elements of an array lie struct_bytes apart, the same in all of them. */
#ifndef GEMMD_H
#define GEMMD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GEMMD_PUBLIC     __attribute__((visibility("default")))
#define GEMMD_MUST_CHECK __attribute__((warn_unused_result))
#else
#define GEMMD_PUBLIC
#define GEMMD_MUST_CHECK
#endif

/* ---- status ---- */

/* The high byte is the category: see gemmd_status_category(). Numbers are never reused. */
enum gemmd_status {
    GEMMD_OK = 0,
    /* usage: the call is wrong */
    GEMMD_INVALID_ARGUMENT = 0x101,
    GEMMD_NOT_FOUND = 0x102,
    GEMMD_EXISTS = 0x103,
    GEMMD_PERMISSION = 0x104,
    /* quota: a limit of this session or user */
    GEMMD_QUOTA = 0x201,
    GEMMD_NO_SPACE = 0x202,
    /* unsupported */
    GEMMD_UNSUPPORTED = 0x301,
    GEMMD_BAD_CHECKPOINT = 0x302,
    /* busy: the same call may work later */
    GEMMD_BUSY = 0x401,
    GEMMD_TIMEOUT = 0x402,
    GEMMD_CANCELLED = 0x403,
    GEMMD_SHUTTING_DOWN = 0x404,
    /* device */
    GEMMD_DEVICE_LOST = 0x501,
    GEMMD_DEVICE_ERROR = 0x502,
    /* protocol: the peer speaks nonsense, or is gone */
    GEMMD_BAD_MESSAGE = 0x601,
    GEMMD_BAD_FRAMING = 0x602,
    GEMMD_VERSION = 0x603,
    GEMMD_NO_SESSION = 0x604,
    GEMMD_DISCONNECTED = 0x605,
    /* internal */
    GEMMD_INTERNAL = 0x701,
    GEMMD_NO_MEMORY = 0x702
};

enum gemmd_status_category {
    GEMMD_CATEGORY_NONE = 0,
    GEMMD_CATEGORY_USAGE = 1,
    GEMMD_CATEGORY_QUOTA = 2,
    GEMMD_CATEGORY_UNSUPPORTED = 3,
    GEMMD_CATEGORY_BUSY = 4,
    GEMMD_CATEGORY_DEVICE = 5,
    GEMMD_CATEGORY_PROTOCOL = 6,
    GEMMD_CATEGORY_INTERNAL = 7
};

/* gemmd_status_name() - "INVALID_ARGUMENT". gemmd_status_text() - one general sentence.
 * Return: static strings; "UNKNOWN" and a sentence saying so for other numbers. Threads: any. */
GEMMD_PUBLIC const char *gemmd_status_name(int status);
GEMMD_PUBLIC const char *gemmd_status_text(int status);

/* gemmd_status_category() - the category of a status: its high byte. Threads: any. */
GEMMD_PUBLIC enum gemmd_status_category gemmd_status_category(int status);

/* gemmd_last_error() - why the calling thread's latest failing call failed: one sentence, what,
 * where and why. Valid until this thread's next gemmd call; "" if none has failed. */
GEMMD_PUBLIC const char *gemmd_last_error(void);

/* gemmd_version() - this library's version, "0.1.0". Static. Threads: any. */
GEMMD_PUBLIC const char *gemmd_version(void);

/* ---- connection ---- */

typedef struct gemmd_client gemmd_client_t;

/* Both paths take the same requests and give the same results and errors. */
enum gemmd_path {
    GEMMD_PATH_RING = 0,  /* shared-memory rings: no system call while the daemon is awake */
    GEMMD_PATH_ZEROMQ = 1 /* the portable path, tens of microseconds slower */
};

/* Whose requests come first when there is more to do than the device can. Nobody starves. */
enum gemmd_priority { GEMMD_PRIORITY_NORMAL = 0, GEMMD_PRIORITY_HIGH = 1, GEMMD_PRIORITY_LOW = 2 };

#define GEMMD_HOLD_AUTO UINT32_MAX

/* socket_dir: the folder of the daemon's sockets, at most 99 bytes; NULL: $GEMMD_SOCKET_DIR, else
 * $XDG_RUNTIME_DIR/gemmd, else /run/gemmd. */
struct gemmd_options {
    size_t struct_bytes;
    const char *socket_dir;
    const char *name;      /* shown to operators; NULL: the program's name */
    enum gemmd_path path;  /* how requests are submitted */
    uint32_t spin_usec;    /* how long a wait polls at most before it sleeps; default 100. Less
                              when recent waits were longer than that: polling would not help */
    uint32_t timeout_msec; /* for connecting and for control calls, > 0; default 5000 */
    /* When the daemon is gone (killed, crashed, upgraded): for how long calls wait for the next one
     * before they end with DISCONNECTED; default 30000, 0: not at all. A thread of the library's
     * then connects the client anew; a call with a time limit of its own (of gemmd_wait(), or of
     * the request) waits for that no longer than its limit, and ends with TIMEOUT. Weights and
     * buffers stay good, with what is in them. The answers of a daemon
     * that is about to go, SHUTTING_DOWN and DEVICE_LOST, are held back for as long: the next one
     * may do it. */
    uint32_t reconnect_msec;
    uint32_t has_no_repeat; /* 1: requests that were in flight end with DISCONNECTED; default 0:
                               they are done anew, from x as it is then */
    enum gemmd_priority priority;
    uint32_t hold_usec; /* how long the daemon may hold a request so that others can share its
                           launch: for throughput, at the cost of that latency. 0: never;
                           default GEMMD_HOLD_AUTO: while that pays, one pass over the model at
                           most */
};
#define GEMMD_OPTIONS_INIT                                                                         \
    {                                                                                              \
        sizeof(struct gemmd_options), NULL, NULL, GEMMD_PATH_RING, 100, 5000, 30000, 0,            \
            GEMMD_PRIORITY_NORMAL, GEMMD_HOLD_AUTO                                                 \
    }

/* gemmd_open() - connect to the daemon. options: NULL for the defaults.
 * Errors: DISCONNECTED when no daemon listens there; VERSION; QUOTA; PERMISSION; BUSY while fewer
 * than 8 descriptors are free in this process, or no two threads can be started.
 * Return: GEMMD_OK with *ret_client, to be given to gemmd_close(). Blocks up to timeout_msec: a
 * daemon that is not there is waited for only after it has been. */
GEMMD_PUBLIC int gemmd_open(const struct gemmd_options *options,
                            gemmd_client_t **ret_client) GEMMD_MUST_CHECK;

/* gemmd_close() - hang up; the daemon reclaims everything of this session. Tickets become invalid,
 * and so do buffers, which are freed. NULL is fine. */
GEMMD_PUBLIC void gemmd_close(gemmd_client_t *client);

/* ---- weights ---- */

/* I8 and F8_E4M3 (the "fn" kind) are only for x that comes quantised. */
enum gemmd_dtype { GEMMD_F32 = 1, GEMMD_F16 = 2, GEMMD_BF16 = 3, GEMMD_I8 = 5, GEMMD_F8_E4M3 = 14 };

/* What a weight does to x before it multiplies. The daemon quantises float rows itself; a client
 * may bring rows quantised as the weight has it instead, to F8_E4M3 (FP8_*) or I8 (INT8_*), with
 * f32 scales x_scale (m, s): x[i] stands for code * scale. s is 1, or ceil(k / GEMMD_ACT_GROUP_K)
 * for FP8_GROUP, where a scale is for so many of k. *_TENSOR have the weight's own scale and zero
 * point: no x_scale. The zero point of INT8_TOKEN_ZERO is 0 for rows that come quantised. Numbers
 * that are not in this list: a later daemon's. */
enum gemmd_act {
    GEMMD_ACT_FLOAT = 0, /* nothing: x is taken as it is, and cannot come quantised */
    GEMMD_ACT_FP8_TENSOR = 1,
    GEMMD_ACT_FP8_TOKEN = 2,
    GEMMD_ACT_FP8_GROUP = 3,
    GEMMD_ACT_INT8_TENSOR = 4,
    GEMMD_ACT_INT8_TOKEN = 5,
    GEMMD_ACT_INT8_TOKEN_ZERO = 6
};
#define GEMMD_ACT_GROUP_K 128u

/* What a client needs to know of a weight: a plain value, copied freely, owning nothing. */
typedef struct gemmd_weight {
    size_t struct_bytes;
    uint64_t id; /* stays the same across reloads of the model; never reused by that daemon. A
                    client that connects anew finds the weight again, by name */
    uint32_t n;  /* out features: elements in a row of y */
    uint32_t k;  /* in features: elements in a row of x */
    uint32_t device_index;
    enum gemmd_dtype act_dtype; /* the model's own 16-bit type; F32, F16, BF16 are all accepted */
    uint32_t has_bias;
    uint64_t packed_bytes;
    uint64_t generation;
    char format[64]; /* "int4 sym g128 f16" */
    char name[256];
    enum gemmd_act act;
} gemmd_weight_t;
#define GEMMD_WEIGHT_INIT                                                                          \
    {                                                                                              \
        sizeof(gemmd_weight_t), 0, 0, 0, 0, GEMMD_F32, 0, 0, 0, {0}, {0}, GEMMD_ACT_FLOAT          \
    }

/* gemmd_find_weight() - look up "MODEL/module.path". ret_weight: starts from GEMMD_WEIGHT_INIT.
 * Errors: INVALID_ARGUMENT when it does not; NOT_FOUND; DISCONNECTED; TIMEOUT.
 * Return: GEMMD_OK with *ret_weight. Blocks. */
GEMMD_PUBLIC int gemmd_find_weight(gemmd_client_t *client, const char *name,
                                   gemmd_weight_t *ret_weight) GEMMD_MUST_CHECK;

/* gemmd_list_weights() - all weights, or those of one model (NULL: all), sorted by name.
 * struct_bytes: sizeof(gemmd_weight_t), the size of an element of the caller's array.
 * Return: GEMMD_OK with a malloc'd array in *ret_weights (free() it; NULL when n is 0). Blocks. */
GEMMD_PUBLIC int gemmd_list_weights(gemmd_client_t *client, const char *model, size_t struct_bytes,
                                    gemmd_weight_t **ret_weights, size_t *ret_n) GEMMD_MUST_CHECK;

/* ---- buffers ---- */

/* Memory that this process and the daemon share. */
typedef struct gemmd_buffer gemmd_buffer_t;

/* Which processor can use gemmd_buffer_data(). A device that computes on the CPU has host memory
 * only; a GPU has both, its own being faster by far for more than a few rows. */
enum gemmd_memory {
    GEMMD_MEMORY_HOST = 1, /* the CPU */
    GEMMD_MEMORY_CUDA = 2  /* the GPU: a device pointer, good in its primary context */
};

/* gemmd_buffer_alloc() - zeroed memory of the device, allocated by the daemon, mapped here, charged
 * to this user's quota. On a GPU it is GEMMD_MEMORY_CUDA, in whole 2 MiB: use one buffer at many
 * offsets. size_bytes: > 0. Errors: QUOTA; NO_SPACE; NOT_FOUND (device_index); UNSUPPORTED where
 * this process cannot use the daemon's GPU; BUSY where it has no descriptor free.
 * Return: GEMMD_OK with *ret_buffer, to be given to gemmd_buffer_free(). Blocks. */
GEMMD_PUBLIC int gemmd_buffer_alloc(gemmd_client_t *client, uint32_t device_index,
                                    uint64_t size_bytes,
                                    gemmd_buffer_t **ret_buffer) GEMMD_MUST_CHECK;

/* gemmd_buffer_alloc_host() - zeroed memory of the CPU's that the device reaches, whatever device
 * that is: always GEMMD_MEMORY_HOST, and no GPU is needed in this process. As above otherwise. */
GEMMD_PUBLIC int gemmd_buffer_alloc_host(gemmd_client_t *client, uint32_t device_index,
                                         uint64_t size_bytes,
                                         gemmd_buffer_t **ret_buffer) GEMMD_MUST_CHECK;

/* gemmd_buffer_import_fd() - share memory of your own: a memfd sealed with F_SEAL_SHRINK (so that
 * the daemon can never be made to fault), at least size_bytes long; on a GPU also the export of a
 * VMM allocation of exactly size_bytes. The fd stays yours. Errors: INVALID_ARGUMENT naming what is
 * wrong with the fd; QUOTA. As above otherwise. */
GEMMD_PUBLIC int gemmd_buffer_import_fd(gemmd_client_t *client, uint32_t device_index, int fd,
                                        uint64_t size_bytes,
                                        gemmd_buffer_t **ret_buffer) GEMMD_MUST_CHECK;

/* gemmd_buffer_import_cuda() - share device memory of your own: size_bytes at `pointer`, all in one
 * allocation of cudaMalloc(), or in one VMM allocation that was made to be exported by POSIX fd.
 * PyTorch tensors are the former, with expandable_segments the latter as long as they do not cross
 * a segment. The daemon shares the memory, not the address: free the buffer before the memory. A
 * buffer whose memory was freed keeps naming what was there, never what is allocated there next.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED with the mend: memory of a pool (cudaMallocAsync), managed
 * memory, memory that crosses allocations, another GPU's. As above otherwise. */
GEMMD_PUBLIC int gemmd_buffer_import_cuda(gemmd_client_t *client, uint32_t device_index,
                                          void *pointer, uint64_t size_bytes,
                                          gemmd_buffer_t **ret_buffer) GEMMD_MUST_CHECK;

/* gemmd_buffer_data() - where it is in this process. gemmd_buffer_bytes() - its usable size.
 * gemmd_buffer_memory() - who can use it there. Threads: any. */
GEMMD_PUBLIC void *gemmd_buffer_data(const gemmd_buffer_t *buffer);
GEMMD_PUBLIC uint64_t gemmd_buffer_bytes(const gemmd_buffer_t *buffer);
GEMMD_PUBLIC enum gemmd_memory gemmd_buffer_memory(const gemmd_buffer_t *buffer);

/* gemmd_buffer_free() - unmap here; the daemon lets go when the last request using it has ended.
 * Waits until the daemon has looked at every request that uses it, which is a matter of
 * microseconds; over ZeroMQ until they have ended. Up to timeout_msec for that, and as long again
 * for the daemon's answer. Your own GPU work on it must have ended. A request in flight that uses
 * it is not done anew if the daemon goes meanwhile, and ends with DISCONNECTED. NULL is fine. */
GEMMD_PUBLIC void gemmd_buffer_free(gemmd_buffer_t *buffer);

/* ---- products ---- */

/* How fp8 activations are summed. PROMOTED: sums of a GPU's tensor cores, which keep about 14 bits,
 * are added in f32 every 128 of k. FAST, on request: they may stay in the tensor core for all of k,
 * which is faster for requests of more than 64 rows and less exact, the more so the larger k is.
 * Where there is no kernel for that (other formats, fewer rows, scales along k, host) PROMOTED is
 * what is done; gemmd_result.accumulation says which. */
enum gemmd_accumulation { GEMMD_ACCUMULATION_PROMOTED = 0, GEMMD_ACCUMULATION_FAST = 1 };

struct gemmd_gemm {
    size_t struct_bytes;
    const gemmd_weight_t *weight;
    gemmd_buffer_t *x;
    uint64_t x_offset_bytes; /* multiple of the element size */
    uint64_t x_stride;       /* elements between rows; 0: k */
    gemmd_buffer_t *y;
    uint64_t y_offset_bytes;
    uint64_t y_stride; /* elements between rows; 0: n */
    uint32_t m;        /* rows; 0 succeeds and touches nothing */
    /* On a GPU, x of F32 (and x of another type than that of a plain weight's numbers) is served by
     * a kernel that is 10 times slower and more, unless the weight quantises it: give it F16 or
     * BF16. y may be of any type. */
    enum gemmd_dtype x_dtype;
    enum gemmd_dtype y_dtype;
    uint64_t timeout_usec; /* answer TIMEOUT if not launched by then, be the daemon there or
                              not; 0: none */
    /* x of I8 or F8_E4M3 only; see enum gemmd_act. NULL: x brings no scales. */
    gemmd_buffer_t *x_scale;
    uint64_t x_scale_offset_bytes; /* multiple of 4 */
    uint64_t x_scale_stride;       /* scales between rows; 0: as many as a row has */
    enum gemmd_accumulation accumulation;
};
#define GEMMD_GEMM_INIT                                                                            \
    {                                                                                              \
        sizeof(struct gemmd_gemm), NULL, NULL, 0, 0, NULL, 0, 0, 0, GEMMD_F32, GEMMD_F32, 0, NULL, \
            0, 0, GEMMD_ACCUMULATION_PROMOTED                                                      \
    }

/* How a request was served. */
struct gemmd_result {
    size_t struct_bytes;
    int status;
    uint32_t batch_rows;     /* rows of the launch that served it */
    uint32_t batch_requests; /* requests that shared the launch */
    uint32_t batch_sessions; /* processes that shared the launch */
    uint64_t queue_nsec;     /* seen by the daemon -> launched */
    uint64_t run_nsec;       /* launched -> product complete */
    enum gemmd_accumulation accumulation;
};
#define GEMMD_RESULT_INIT                                                                          \
    {                                                                                              \
        sizeof(struct gemmd_result), 0, 0, 0, 0, 0, 0, GEMMD_ACCUMULATION_PROMOTED                 \
    }

/* A request in flight. 0 is never a ticket. */
typedef uint64_t gemmd_ticket_t;

/* gemmd_gemm() - one product, start to end: y = x W^T (+ bias). Blocks.
 * Shapes: x (m, k) of x_dtype; y (m, n) of y_dtype, which is F32, F16 or BF16. y must overlap
 * neither x nor x_scale. A row of y depends on that row of x and on the weight only, never on what
 * it was batched with, nor on m up to 64; a GPU may add up in another order where m is larger.
 * Errors: INVALID_ARGUMENT with the numbers; UNSUPPORTED types; NOT_FOUND when the weight was
 * unloaded; BUSY; TIMEOUT; SHUTTING_DOWN; DEVICE_LOST; DISCONNECTED. y is undefined unless
 * GEMMD_OK. */
GEMMD_PUBLIC int gemmd_gemm(gemmd_client_t *client, const struct gemmd_gemm *gemm) GEMMD_MUST_CHECK;

/* gemmd_submit() - start n products in one call, of weights on one device; they may run in any
 * order and at once. Never blocks on the daemon. On GEMMD_OK all n are in flight and ret_tickets
 * (n) names them; otherwise none is: BUSY when they do not all fit in flight beside what is
 * (lane_entries of gemmd.conf, 256 by default; over ZeroMQ session_requests_max). Over ZeroMQ, BUSY
 * as well while the connection is being made anew; if it breaks between two of the messages, the
 * later requests end with BUSY. The first submit of a client opens its path, which takes up to
 * timeout_msec, and the first after the daemon was gone waits for it, up to reconnect_msec; up to
 * the largest timeout_usec, if all n have one, and ends with TIMEOUT then. */
GEMMD_PUBLIC int gemmd_submit(gemmd_client_t *client, const struct gemmd_gemm *gemms, size_t n,
                              gemmd_ticket_t *ret_tickets) GEMMD_MUST_CHECK;

#define GEMMD_WAIT_FOREVER UINT64_MAX

/* gemmd_wait() - wait for one ticket, for at most timeout_usec (0: only look). ret_result: starts
 * from GEMMD_RESULT_INIT; may be NULL. Return: how the request ended, the ticket being spent; or
 * TIMEOUT with the ticket still good when time ran out (ret_result->status tells them apart: it is
 * TIMEOUT only if the request ended so, and GEMMD_BUSY while it is in flight). Errors: NOT_FOUND
 * for a ticket not in flight; INVALID_ARGUMENT for a ret_result without its size, the ticket being
 * good. */
GEMMD_PUBLIC int gemmd_wait(gemmd_client_t *client, gemmd_ticket_t ticket, uint64_t timeout_usec,
                            struct gemmd_result *ret_result) GEMMD_MUST_CHECK;

/* gemmd_cancel() - ask that a request not be started. It still has to be waited for, and ends with
 * CANCELLED, or as it would have if it had been launched already. Errors: NOT_FOUND. */
GEMMD_PUBLIC int gemmd_cancel(gemmd_client_t *client, gemmd_ticket_t ticket) GEMMD_MUST_CHECK;

/* ---- products in stream order ---- */

/* A CUDA stream of this process as the daemon takes turns with it. The request goes to the daemon
 * at once; the stream tells it when x is ready, and waits until y is there. The CPU does neither,
 * and a stream that stalls holds up no one else.
 *
 * A product must be asked for in the order in which its work is put on the stream, not from two
 * threads at once. A stream that is being captured into a graph is refused. */
typedef struct gemmd_stream gemmd_stream_t;
struct CUstream_st; /* cudaStream_t and CUstream are pointers to it */

enum gemmd_order {
    GEMMD_ORDER_AUTO = 0,   /* KERNEL where it can be, else MEMORY */
    GEMMD_ORDER_KERNEL = 1, /* kernels that wait, under MPS only: this process and the daemon share
                               the GPU at the same time. For up to 15 processes: an H200 runs work
                               of 16 at once, and with more a step took ten times as long */
    GEMMD_ORDER_MEMORY = 2  /* stream memory operations */
};

/* gemmd_stream_open() - take turns with a stream of the GPU that the daemon knows as device_index;
 * of its primary context, which CUDA's runtime uses. NULL is the default stream, which MEMORY
 * cannot use. At most 64 of a client's are open on one device. Errors: UNSUPPORTED without a GPU,
 * without MPS for KERNEL, or over ZeroMQ; INVALID_ARGUMENT for a stream of another context;
 * NO_SPACE; NOT_FOUND; QUOTA. Return: GEMMD_OK with *ret_stream, to be given to
 * gemmd_stream_close() before the client is closed. Blocks. The first one starts a thread that
 * sleeps until the daemon is gone, to release what waits for it. */
GEMMD_PUBLIC int gemmd_stream_open(gemmd_client_t *client, uint32_t device_index,
                                   struct CUstream_st *stream, enum gemmd_order order,
                                   gemmd_stream_t **ret_stream) GEMMD_MUST_CHECK;

/* gemmd_stream_order() - which of the two it is. Threads: any. */
GEMMD_PUBLIC enum gemmd_order gemmd_stream_order(const gemmd_stream_t *stream);

/* gemmd_gemm_on_stream() - y = x W^T (+ bias) as gemmd_gemm() has it, in stream order: what was put
 * on the stream before has written x, what is put there after reads y. Never waits for the GPU or
 * the daemon; timeout_usec counts from when x is ready.
 * Errors: of gemmd_submit(), at once and with nothing on the stream: BUSY when as many are in
 * flight as can be, until some of the stream's work has ended; UNSUPPORTED while the stream is
 * being captured. What the daemon refuses later lets the stream go on with y undefined; from then
 * on every product on it is refused with that error, until gemmd_stream_status() has told of it. */
GEMMD_PUBLIC int gemmd_gemm_on_stream(gemmd_stream_t *stream,
                                      const struct gemmd_gemm *gemm) GEMMD_MUST_CHECK;

/* gemmd_stream_status() - how the products on the stream ended: the first failure since the last
 * call, which is thereby forgotten; GEMMD_OK when none of those that have ended failed. After
 * cudaStreamSynchronize() every failure is known. Never blocks. Products in stream order are not
 * done anew: when the daemon goes they end with DISCONNECTED, and so does every later one until
 * all streams of the device have been closed and opened again. */
GEMMD_PUBLIC int gemmd_stream_status(gemmd_stream_t *stream) GEMMD_MUST_CHECK;

/* What a kernel of the caller's needs to take a turn itself: addresses of the GPU's. A plain value,
 * to be passed to the kernel; good until the stream is closed. */
struct gemmd_signal {
    uint32_t *ready;
    const uint32_t *done;
    const uint32_t *ended;
    uint32_t value;
};

/* gemmd_submit_on_stream() - the same for kernels that say ready and wait themselves, by the two
 * functions of gemmd_device.h, which saves what a kernel in between costs. Puts nothing on the
 * stream: a kernel put there next must say that x is ready, that one or a later one must wait
 * before y is read. A stream in GEMMD_ORDER_KERNEL only (else UNSUPPORTED); errors as above. */
GEMMD_PUBLIC int gemmd_submit_on_stream(gemmd_stream_t *stream, const struct gemmd_gemm *gemm,
                                        struct gemmd_signal *ret_signal) GEMMD_MUST_CHECK;

/* gemmd_stream_close() - the stream's work with products in it must have ended. The CUDA stream
 * stays the caller's. NULL is fine. */
GEMMD_PUBLIC void gemmd_stream_close(gemmd_stream_t *stream);

#ifdef __cplusplus
}
#endif

#endif
