/* worker_internal.h - what the files of the worker share.
 *
 * Floors, lowest first: worker_words.c (the words of stream order), worker_finish.c (a request
 * ends), worker_queue.c (requests that wait for a launch), worker_batch.c (what a launch is made
 * of), worker_armed.c (launches queued ahead), worker_launch.c (launches begin), worker_landing.c
 * (launches end), worker_order.c (requests that wait for their stream), worker_intake.c (requests
 * come in), worker_inbox.c (the main thread's orders), worker.c (the loop). Everything here belongs
 * to the worker thread but where a line says otherwise. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device.h"
#include "daemon/weights/store.h"
#include "gk/gk.h"
#include "ipc/base/list.h"
#include "ipc/lane.h"
#include "ipc/order.h"
#include "ipc/spin.h"
#include "ipc/stats.h"

#include "daemon/engine/request_check.h"
#include "daemon/engine/sched.h"
#include "daemon/engine/worker.h"

#define WORKER_SESSION_BUCKETS 256u

struct worker_session;

/* A message of the main thread. */
enum command_kind { COMMAND_ATTACH, COMMAND_DETACH, COMMAND_SUBMIT, COMMAND_CANCEL, COMMAND_ORDER };

struct command {
    struct list in_inbox;
    enum command_kind kind;
    struct worker_session *session;
    union {
        struct lane lane;
        struct request_desc desc;
        uint64_t request_id;
        struct worker_order *order;
    };
};

/* The requests of one stream that wait until it is ready, in the order in which they came. */
struct order_stream {
    struct list waiting;   /* by in_order */
    struct list in_orders; /* linked while one waits */
};

/* A session's words of stream order. */
struct worker_order {
    struct order_words words;
    uint64_t done_address; /* 0: the device has no memory for them */
    struct order_stream streams[ORDER_STREAMS_MAX];
};

struct worker_session {
    /* the main thread's */
    struct list in_table;
    bool is_attached;
    struct command detach; /* made with the session, so that detaching cannot fail */

    uint64_t session_id; /* both threads', constant */
    struct buffers *buffers;
    _Atomic uint32_t n_zmq; /* requests of the ZeroMQ path that are not answered yet */

    /* the worker thread's */
    struct lane lane;
    struct worker_order *order; /* owned; NULL: not opened */
    struct list in_lanes;       /* linked while the lane is polled */
    bool is_lane_open;          /* completions may be written to it */
    bool is_muted;              /* being detached: what ends is told to nobody */
    bool has_ordered_last;      /* the latest entry of the lane was in stream order */
    uint32_t n_requests;
    uint32_t n_lane_requests;
    struct sched_session sched;
    bool is_in_sched;
    uint64_t last_batch; /* number of the last batch that it had a part in */
    struct list requests;
};

/* A request from its being taken to its end. */
struct worker_request {
    struct sched_item item;
    struct worker_session *session;
    struct checked checked;
    uint64_t request_id;
    bool is_from_lane;
    bool is_ordered;
    bool may_accumulate_fast; /* as gk_problem has it */
    uint32_t order_entry;
    uint32_t order_value;
    uint64_t timeout_usec;
    uint64_t seen_nsec;  /* or when its stream was ready */
    uint64_t start_nsec; /* of its first launch; 0: none yet */
    uint32_t n_rows_done;
    struct list in_session; /* or in the pool of free requests */
    struct list in_bucket;
    struct list in_order; /* linked while it waits for its stream */
    uint32_t i_stream;    /* of its session */
    bool is_expected;     /* by a launch that is armed, or was and has not come back: it is in no
                             queue */
    bool is_called_off;   /* while it was */
};

/* Of which slot a weight was when it was launched; found by its address. */
#define WORKER_SLOTS 1024u
struct worker_slot {
    uint64_t weight_key; /* as in sched_item; 0: none */
    uint64_t slot_id;
};

/* One launch. `launch` is first: the device gives its address back. */
struct worker_batch {
    struct device_launch launch;
    bool is_busy;
    struct weight *weight;  /* a reference, of one that was armed; else its requests hold it */
    bool is_expecting;      /* the device may begin by itself; the scheduler has not heard of it */
    uint64_t come;          /* bits: of its requests, then, those whose streams are ready */
    enum worker_disarm why; /* of one that is expecting and was disarmed */
    uint32_t n_requests;
    uint32_t n_sessions;
    uint32_t n_rows;
    bool has_cpu_rows;
    uint64_t oldest_nsec; /* when the first of its requests was taken */
    struct worker_request *requests[GK_BATCH_ROWS_MAX];
    const void *x_rows[GK_BATCH_ROWS_MAX];
    const float *x_scale_rows[GK_BATCH_ROWS_MAX];
    void *y_rows[GK_BATCH_ROWS_MAX];
    struct device_signal signals[GK_BATCH_ROWS_MAX];
    uint32_t n_signals;
};

struct worker {
    struct device *device;
    struct store *store;
    struct worker_limits limits;
    struct worker_callbacks callbacks;
    pthread_t thread;

    struct list sessions[WORKER_SESSION_BUCKETS]; /* the main thread's: by id, not yet detached */

    /* both threads' */
    pthread_mutex_t inbox_mutex;
    struct list inbox;     /* guarded by inbox_mutex */
    bool is_asleep;        /* guarded by inbox_mutex */
    _Atomic bool has_news; /* set under inbox_mutex, peeked at without */
    int inbox_fd;          /* eventfd */
    int epoll_fd;          /* doorbells and inbox_fd */
    _Atomic bool is_asked; /* for a sign of life: worker_ask() */
    _Atomic bool is_draining;
    _Atomic bool is_stopping;
    struct stats_worker *counters; /* borrowed; written by the worker, read by any thread */

    /* the worker thread's */
    struct spin spin;
    struct spin order_spin;
    struct sched *sched;
    struct list lanes;  /* sessions whose lane is polled */
    struct list orders; /* streams with requests that wait until they are ready */
    uint32_t n_ordered; /* these requests */
    uint64_t wake_nsec; /* something is held until then; UINT64_MAX: nothing is */
    bool is_lost;
    uint32_t n_requests;
    struct worker_request *requests; /* limits.requests_max of them */
    struct list free_requests;
    struct list *request_buckets; /* by session and request id */
    uint32_t n_request_buckets;   /* a power of two */
    uint64_t hash_secret;
    struct worker_batch *batches; /* worker_batches() of them */
    uint32_t n_busy_batches;
    uint64_t n_batches;
    struct worker_batch *armed;   /* it may be fired; NULL: none */
    struct sched_ahead armed_for; /* what that should be */
    uint64_t armed_until_nsec;    /* it is waited for; 0: the one before has not ended */
    uint32_t n_unfired; /* batches without requests: armed, or disarmed and not back yet */
    struct worker_slot slots[WORKER_SLOTS];
};

/* request_of_item() - the request that embeds it. */
static inline struct worker_request *request_of_item(struct sched_item *item)
{
    return LIST_OWNER(item, struct worker_request, item);
}

/* request_is_prefill() - does it take more rows than a batch has? */
static inline bool request_is_prefill(const struct worker_request *request)
{
    return request->item.n_rows > GK_BATCH_ROWS_MAX;
}

/* worker_batches() - launches that may be in flight, and one that is armed. */
static inline uint32_t worker_batches(const struct device *device)
{
    return device->launches_max + 1;
}

/* worker_may_arm() - is it wanted, and can the device? Without MPS what waits on a GPU keeps it
 * from the clients. */
static inline bool worker_may_arm(const struct worker *worker)
{
    const struct device *device = worker->device;
    return worker->limits.may_arm && device->has_mps && device->ops->arm != NULL;
}

/* ---- worker_words.c ---- */

/* order_new() - main thread. 0 or -ENOMEM. To be given to free(). */
int order_new(const struct worker_words *words, struct worker_order **ret_order) GD_MUST_CHECK;

/* order_is_ready() - has the stream of an ordered request come to it?
 * order_signal() - the word that the device is to write behind its product; false: none.
 * order_device_ready() - the word by which its stream tells the device that it is ready. Only where
 * order_signal() has one.
 * order_end() - tell whoever waits for that entry that the request has ended. */
bool order_is_ready(const struct worker_request *request);
bool order_signal(const struct worker_request *request, struct device_signal *ret_signal);
struct device_signal order_device_ready(const struct worker_request *request);
void order_end(const struct worker_order *order, uint32_t entry, uint32_t value);

/* ---- worker_finish.c ---- */

/* What a request's result says besides the request's own numbers. */
struct outcome {
    int status;
    const char *text; /* NULL: none */
    uint32_t batch_rows;
    uint32_t batch_requests;
    uint32_t batch_sessions;
    enum request_accumulation accumulation;
    uint64_t end_nsec; /* when its last launch ended; 0: it had none */
};

/* request_new() - NULL when requests_max are in flight. */
struct worker_request *request_new(struct worker *worker, struct worker_session *session,
                                   uint64_t request_id, bool is_from_lane, uint64_t now_nsec);

/* request_find() - a request of that session by the id that its client chose; NULL: none. */
struct worker_request *request_find(struct worker *worker, const struct worker_session *session,
                                    uint64_t request_id);

/* request_finish() - the one end of every request: gives back what it holds, then tells the client.
 * It must be in no queue. May end the session, if that is being detached.
 * request_refuse() - the same for one that was not launched. */
void request_finish(struct worker *worker, struct worker_request *request,
                    const struct outcome *outcome);
void request_refuse(struct worker *worker, struct worker_request *request, int status,
                    const char *text);

/* lane_drop() - stop polling a lane and writing to it; its memory stays until the session ends.
 * lane_mark_corrupt() - the same, counted and logged. */
void lane_drop(struct worker *worker, struct worker_session *session);
void lane_mark_corrupt(struct worker *worker, struct worker_session *session);

/* session_finish_if_done() - free a session that is being detached and has nothing in flight. */
void session_finish_if_done(struct worker *worker, struct worker_session *session);

/* ---- worker_queue.c ---- */

/* worker_door_status() - is the worker in a state to take requests at all? 0 or the status that
 * refuses them. */
int worker_door_status(const struct worker *worker);

/* batch_enqueue() - give a request to the scheduler: it is ready to be launched from now on.
 * batch_drop_waiting() - take a request out that is queued or between chunks; false if it is
 * neither. */
void batch_enqueue(struct worker *worker, struct worker_request *request, uint64_t now_nsec);
bool batch_drop_waiting(struct worker *worker, struct worker_request *request);

/* batch_refuse_all() - end everything that is not in flight with that status. */
void batch_refuse_all(struct worker *worker, int status, const char *text);

/* batch_count_decisions() - the scheduler's figures, after each of its decisions. */
void batch_count_decisions(struct worker *worker);

/* ---- worker_batch.c ---- */

/* batch_begin() - an empty one of the pool; NULL: all are busy. batch_end() - back to the pool.
 * batch_fill() - with these requests, n_rows rows of each at most. */
struct worker_batch *batch_begin(struct worker *worker);
void batch_end(struct worker *worker, struct worker_batch *batch);
void batch_fill(struct worker *worker, struct worker_batch *batch, struct sched_item *const *items,
                uint32_t n_items, uint32_t n_rows);

/* batch_finish_one() - end a request that was taken. batch_finish_all() - end all of the batch's
 * with that status, and the batch. */
void batch_finish_one(struct worker *worker, struct worker_request *request,
                      const struct outcome *outcome);
void batch_finish_all(struct worker *worker, struct worker_batch *batch, int status,
                      const char *text);

/* batch_problem() - of decode requests of that class; m is to be filled in. batch_chunk_rows() -
 * rows of each launch of a checked request, whose item says what it is. */
struct gk_problem batch_problem(const struct worker *worker, const struct weight *weight,
                                uint32_t class_key);
uint32_t batch_chunk_rows(const struct worker *worker, const struct worker_request *request);

/* ---- worker_armed.c ---- */

/* armed_remember() - that weight is launched. armed_begin() - arm what should come next, if
 * something should and the device can. */
void armed_remember(struct worker *worker, const struct weight *weight);
void armed_begin(struct worker *worker);

/* armed_take() - the armed batch, empty, if it can run these items; they are to be filled in, and
 * armed_fire() has them run. NULL: none can, and none is armed any more. */
struct worker_batch *armed_take(struct worker *worker, struct sched_item *const *items,
                                uint32_t n_items, uint32_t n_rows);
void armed_fire(struct worker *worker, struct worker_batch *batch);

/* armed_yield() - a launch is about to go behind what is armed: disarm that. */
void armed_yield(struct worker *worker);

/* armed_poll() - disarm what nobody came for in time, or when the worker takes nothing more; was
 * there anything to do? armed_landed() - the device gave that batch back: was it never fired? */
bool armed_poll(struct worker *worker);
bool armed_landed(struct worker *worker, struct worker_batch *batch);

/* ---- worker_expected.c ---- */

/* expected_gather() - take the requests of all who should share that launch from their streams and
 * fill the batch with them: it expects them; false: some are not there or cannot, and none is
 * taken. expected_rows() - what the device is to know of them; how many rows.
 * expected_poll() - look whose streams are ready; have all come? */
bool expected_gather(struct worker *worker, struct worker_batch *batch,
                     const struct sched_ahead *ahead);
uint32_t expected_rows(const struct worker_batch *batch,
                       struct device_expected ret_rows[GK_BATCH_ROWS_MAX]);
bool expected_poll(struct worker_batch *batch);

/* expected_launched() - the batch has begun or is about to, and the scheduler hears of it.
 * expected_return() - it never will: its requests go back to where they came from, and the batch is
 * empty. */
void expected_launched(struct worker *worker, struct worker_batch *batch);
void expected_return(struct worker *worker, struct worker_batch *batch);

/* ---- worker_launch.c ---- */

/* batch_launch() - start one launch, if there is one and the device takes it; else wake_nsec is
 * when to ask again; was there anything to do? batch_send() - give a batch to the device that has
 * been given out and has its kernel. */
bool batch_launch(struct worker *worker);
void batch_send(struct worker *worker, struct worker_batch *batch);

/* ---- worker_landing.c ---- */

/* batch_poll() - finish what the device has finished; was there anything? */
bool batch_poll(struct worker *worker);

/* ---- worker_order.c ---- */

/* order_check() - may that session send this ordered request? 0, UNSUPPORTED, INVALID_ARGUMENT.
 * order_check_room() - may one more wait? 0, or BUSY when half of all requests do already.
 * order_hold() - let a request wait for its stream. order_hold_again() - before all others of it.
 * order_first() - of one where some wait. order_poll() - queue those whose streams are
 * ready, or refuse all with that status if it is not 0; was there anything to do?
 * order_drop() - take a request that waits out; false if it does not. */
int order_check(const struct worker_session *session, const struct request_desc *desc,
                bool is_from_lane, struct reason *why) GD_MUST_CHECK;
int order_check_room(const struct worker *worker, struct reason *why) GD_MUST_CHECK;
void order_hold(struct worker *worker, struct worker_request *request, uint32_t i_stream);
void order_hold_again(struct worker *worker, struct worker_request *request);
struct worker_request *order_first(const struct order_stream *stream);
bool order_poll(struct worker *worker, int door_status);
bool order_drop(struct worker *worker, struct worker_request *request);

/* ---- worker_intake.c ---- */

/* intake_poll() - take a few requests of each lane. intake_expire() - answer those whose deadline
 * has passed. Both: was there anything to do? */
bool intake_poll(struct worker *worker);
bool intake_expire(struct worker *worker);

/* intake_accept() - check a request and queue or answer it; the pool must have one free.
 * intake_cancel() - answer it CANCELLED if it has not been launched. */
void intake_accept(struct worker *worker, struct worker_session *session,
                   const struct request_desc *desc, bool is_from_lane, uint64_t now_nsec);
void intake_cancel(struct worker *worker, struct worker_session *session, uint64_t request_id);

/* intake_is_stalled() - does the client not read its completions? A corrupt lane is not stalled: it
 * is to be polled once more, and that ends it. */
bool intake_is_stalled(const struct worker_session *session);

/* intake_is_full() - does it hold its share of the worker's requests, or is none free? What more
 * its ring has waits for some to end. */
bool intake_is_full(const struct worker *worker, const struct worker_session *session);

/* ---- worker_inbox.c ---- */

/* inbox_take() - carry out what the main thread has sent; was there anything? */
bool inbox_take(struct worker *worker);

/* inbox_wake() - main thread: make the worker look at its flags. */
void inbox_wake(struct worker *worker);

/* inbox_sleep_begin() - true if nothing is there; from then on, until inbox_sleep_end(), a message
 * writes inbox_fd. */
bool inbox_sleep_begin(struct worker *worker);
void inbox_sleep_end(struct worker *worker);
