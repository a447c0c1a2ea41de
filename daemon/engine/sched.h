/* sched.h - which requests share the next launch. A pure module: no threads, no clock, no
 * allocation after init; time is an argument. Events in (push, cancel, expire, done), decisions out
 * (next).
 *
 * Policy here: natural batching. One run queue per weight; the weight that has waited longest since
 * its last turn goes first, so that a session with a thousand requests for one weight delays
 * another weight by one launch; a launch takes every compatible decode request of its weight that
 * fits rows_max, one session after the other in turn so that no session crowds out another; a
 * request of more rows than rows_max (prefill) runs alone, in chunks that the caller cuts.
 *
 * Invariants: an item is in exactly one state; requests of one session for one weight start in the
 * order they came; nothing waits for ever while next() is called: an item with d items of its
 * session before it starts after (d + 1) x sessions x weights calls at most.
 *
 * Threads: one, the device's worker. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/list.h"

#include "daemon/engine/deadlines.h"

enum sched_state { SCHED_OUTSIDE = 0, SCHED_QUEUED, SCHED_TAKEN };

struct sched_stream;

/* Embedded in the owner's request. The owner fills the first block before push. */
struct sched_item {
    /* Requests with equal keys may share a launch: one weight generation, same x and y dtype. */
    uint64_t weight_key;
    uint32_t class_key;
    uint64_t session_id;
    uint32_t n_rows;        /* >= 1 */
    uint64_t deadline_nsec; /* 0: none */

    enum sched_state state; /* the rest is sched's */
    uint64_t arrival_nsec;
    struct deadline deadline;
    struct sched_stream *stream;
    struct list in_stream;
};

struct sched_limits {
    uint32_t items_max;       /* queued at once over all sessions; beyond it push answers full */
    uint32_t rows_max;        /* of one launch */
    uint32_t batch_items_max; /* room in the caller's array */
    bool is_batching;         /* false: every request on its own, for comparison */
};

struct sched;

/* sched_new() - 0, -ENOMEM, or -EINVAL when a limit is 0. */
int sched_new(const struct sched_limits *limits, struct sched **ret_sched) GD_MUST_CHECK;
struct sched *sched_free(struct sched *sched); /* items left inside are merely forgotten */

enum sched_push { SCHED_PUSHED = 0, SCHED_FULL };

/* sched_push() - queue an item that is OUTSIDE. SCHED_FULL when items_max are queued. */
enum sched_push sched_push(struct sched *sched, struct sched_item *item,
                           uint64_t now_nsec) GD_MUST_CHECK;

/* sched_next() - the items of the next launch, in the order they were taken; 0 when nothing is
 * queued. ret_items: room for batch_items_max. They are TAKEN until sched_done(). */
uint32_t sched_next(struct sched *sched, struct sched_item **ret_items);
void sched_done(struct sched *sched, struct sched_item *item);

/* sched_cancel() - true if it was QUEUED and is now out. */
bool sched_cancel(struct sched *sched, struct sched_item *item);

/* sched_expired() - one QUEUED item whose deadline has passed, taken out; NULL when none. */
struct sched_item *sched_expired(struct sched *sched, uint64_t now_nsec);
/* sched_deadline() - the earliest deadline of a queued item; UINT64_MAX when none. */
uint64_t sched_deadline(const struct sched *sched);

/* sched_queued() - items that are QUEUED. */
uint32_t sched_queued(const struct sched *sched);
