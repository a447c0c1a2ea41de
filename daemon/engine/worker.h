/* worker.h - one device's worker: takes requests from lanes and from ZeroMQ, checks them, batches
 * them, launches, completes.
 *
 * DESIGN. One thread owns the lanes' worker side, the scheduler, and the device. The main thread
 * talks to it through an inbox (mutex, list, eventfd) and hears back through callbacks that run on
 * the worker thread and must only hand the news on. Awake, the worker polls the lanes' submit rings
 * and makes no system call; with nothing to do it goes on polling while that pays (ipc/spin.h), for
 * spin_usec at most, then raises every lane's is_worker_asleep, looks once more, and sleeps in
 * epoll on the doorbells and the inbox, without a time limit: an idle worker uses no CPU.
 *
 * A request's way: popped (copied once) -> checked (request_check) -> queued (sched) -> launched in
 * a batch through row-pointer tables -> completed into its lane, or handed to the ZeroMQ callback.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device.h"
#include "daemon/engine/buffers.h"
#include "daemon/engine/sched.h"
#include "daemon/weights/store.h"
#include "ipc/lane.h"
#include "ipc/request.h"
#include "ipc/stats.h"

struct worker;

struct worker_limits {
    uint32_t requests_max;         /* accepted and unfinished, over all sessions */
    uint32_t session_requests_max; /* ... of one session on the ZeroMQ path; lanes are bounded by
                                      their ring */
    uint32_t rows_max;             /* m of one request */
    uint32_t spin_usec;            /* how long an idle worker polls at most before it sleeps */
    enum sched_mode mode;
    bool may_arm; /* queue launches ahead of their rows, where the device has MPS and can */
};

/* Who a request is for. The session keeps `buffers` alive until worker_detach() has called back. */
struct worker_client {
    uint64_t session_id;
    struct buffers *buffers;
};

/* Where the words of ipc/order.h are. */
struct worker_words {
    void *base; /* order_bytes(n_entries), shared with the client */
    uint32_t n_entries;
    uint64_t done_address; /* ORDER_DEVICE_BYTES of the device's memory; 0: none */
};

typedef void (*worker_reply_fn)(void *arg, uint64_t session_id,
                                const struct request_result *result);
typedef void (*worker_detached_fn)(void *arg, uint64_t session_id);
typedef void (*worker_fatal_fn)(void *arg, const struct reason *why);

struct worker_callbacks { /* all run on the worker thread */
    void *arg;
    worker_reply_fn on_reply;       /* a ZeroMQ request ended */
    worker_detached_fn on_detached; /* nothing of that session is left in this worker */
    worker_fatal_fn on_fatal;       /* DEVICE_LOST: the process must exit for a restart */
    struct stats_worker *stats;     /* zeroed; counted in by the worker as long as it lives */
};

/* worker_new() - start the thread. Device and store must outlive it. 0 or negative errno. */
int worker_new(struct device *device, struct store *store, const struct worker_limits *limits,
               const struct worker_callbacks *callbacks, struct worker **ret_worker) GD_MUST_CHECK;
/* worker_free() - answers what is queued with SHUTTING_DOWN, lets the launch in flight end, joins.
 */
struct worker *worker_free(struct worker *worker);

/* All of the following: main thread, never blocking on the device. */

/* worker_attach() - take the lane over on success, once per session. 0 or negative errno. */
int worker_attach(struct worker *worker, const struct worker_client *client,
                  struct lane *lane) GD_MUST_CHECK;
/* worker_open_order() - the session's words of stream order, borrowed until it is detached; once
 * per session that is attached. 0 or negative errno. */
int worker_open_order(struct worker *worker, uint64_t session_id,
                      const struct worker_words *words) GD_MUST_CHECK;
/* worker_detach() - drop the session's lane and queued requests, let its launch in flight end, then
 * on_detached. Also for a session that never attached. */
void worker_detach(struct worker *worker, uint64_t session_id);
/* worker_submit() - the ZeroMQ path. 0 (then on_reply follows exactly once, unless the session is
 * detached first), -ENOMEM, or STATUS_BUSY. */
int worker_submit(struct worker *worker, const struct worker_client *client,
                  const struct request_desc *desc, struct reason *why) GD_MUST_CHECK;
/* worker_cancel() - the request answers CANCELLED if it had not been launched. */
void worker_cancel(struct worker *worker, uint64_t session_id, uint64_t request_id);
/* worker_drain() - from now on every new request answers SHUTTING_DOWN. */
void worker_drain(struct worker *worker);

/* worker_ask() - want a sign of life, which the worker gives when it next comes round its loop.
 * worker_has_answered() - has it, since it was last asked? */
void worker_ask(struct worker *worker);
bool worker_has_answered(const struct worker *worker);

/* Why an armed launch was not fired: another came first; its rows did not fit (too many, other
 * types, in CPU memory, with scales); nobody came in time; the worker takes nothing more; the
 * device had ceased to wait. */
enum worker_disarm {
    WORKER_DISARM_OTHER,
    WORKER_DISARM_UNFIT,
    WORKER_DISARM_LATE,
    WORKER_DISARM_STOPPED,
    WORKER_DISARM_GIVEN_UP,
    WORKER_DISARMS,
};

#define WORKER_BATCH_BUCKETS STATS_ROW_BUCKETS

struct worker_stats {
    uint64_t n_requests; /* taken; each ends in one of the next five */
    uint64_t n_ok;
    uint64_t n_refused; /* failed validation */
    uint64_t n_cancelled, n_timed_out, n_failed;
    uint64_t n_rows;
    uint64_t n_launches;
    uint64_t n_shared_launches; /* with rows of more than one session */
    uint64_t launches_by_rows[WORKER_BATCH_BUCKETS];
    uint64_t busy_nsec;  /* launches running */
    uint64_t queue_nsec; /* sum over requests */
    uint64_t n_sleeps;
    uint64_t n_corrupt_lanes;
    uint32_t n_in_flight;
    uint32_t n_lanes;
    uint64_t last_ok_nsec; /* CLOCK_MONOTONIC; 0: none yet */
    uint64_t n_closed[SCHED_CLOSES];
    uint64_t n_holds[SCHED_HOLDS];
    uint64_t hold_idle_nsec[SCHED_HOLDS];
    uint32_t n_held;
    uint32_t n_passes;
    uint32_t n_in_step;
    uint64_t n_armed; /* each ends in one of the next two, once the device gives it back */
    uint64_t n_fired;
    uint64_t n_disarmed[WORKER_DISARMS];
};
void worker_stats(struct worker *worker, struct worker_stats *ret_stats); /* any thread */
