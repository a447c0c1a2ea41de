/* sched.h - which requests share the next launch, and when it is worth waiting for one more. A pure
 * module on a virtual clock: no threads, no clock of its own, no allocation after init; time is an
 * argument. Events in (push, cancel, expire, ended, done), decisions out (next).
 *
 * Three modes:
 *
 *   off         every request on its own
 *   natural     whatever waits for one weight shares its launch
 *   rendezvous  sessions that walk over the same weights are brought into step: those that are
 *               ahead are held while the others, which have the device to themselves meanwhile,
 *               catch up; from then on all share every launch (rendezvous.c)
 *
 * Whose turn it is, sessions decide by deficit round robin: each turn a session is due a quantum of
 * device time, its launches are charged to it by what they are expected to take, and a shared
 * launch is charged to all who share it, by rows. A session's weights take turns within it. High
 * priority goes first in each round and has a larger quantum, low priority a smaller one: nobody
 * starves. A request that would miss its deadline goes first while its session owes less than a
 * quantum: short deadlines choose the moment of a session's share, and make it no larger. Only the
 * nearest deadline is looked at: while its session owes, the others take their turns.
 *
 * A request of more rows than rows_max (prefill) goes in chunks, smaller ones while anybody
 * decodes: they cannot be stopped once they run. While anybody decodes, chunks may take
 * SCHED_PREFILL_SHARE of the time that decode steps take, so that a step beside a prefill takes at
 * most 1 + SCHED_PREFILL_SHARE times as long on average. Sessions that prefill share that by device
 * time, however many requests each of them has.
 *
 * Invariants: an item is in exactly one state; requests of one session for one weight, prefill
 * aside, start in the order they came, unless postponed; a launch is full, or takes all that waits
 * for its weight and fits; nothing is held past its deadline, which is one pass over the model at
 * most, or when its session may not be held at all.
 *
 * Threads: one, the device's worker. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/list.h"

#include "daemon/engine/deadlines.h"
#include "daemon/engine/route.h"

#define SCHED_PREFILL_SHARE 0.25

enum sched_mode { SCHED_OFF, SCHED_NATURAL, SCHED_RENDEZVOUS };
enum sched_priority { SCHED_HIGH, SCHED_NORMAL, SCHED_LOW, SCHED_PRIORITIES };
enum sched_state { SCHED_OUTSIDE = 0, SCHED_QUEUED, SCHED_TAKEN };

/* Why a launch took no more: it was full; a request in it could wait no longer; those that were
 * expected did not come in time; all that were expected had come; nobody was expected. */
enum sched_close {
    SCHED_CLOSE_FULL,
    SCHED_CLOSE_DEADLINE,
    SCHED_CLOSE_WINDOW,
    SCHED_CLOSE_COMPLETE,
    SCHED_CLOSE_IDLE,
    SCHED_CLOSES,
};

/* Why something waits although the device is free for it: sessions behind it catch up; somebody who
 * shares its launch is about to come; prefill has had its share. */
enum sched_hold { SCHED_HOLD_CATCH_UP, SCHED_HOLD_ARRIVAL, SCHED_HOLD_PREFILL, SCHED_HOLDS };

struct sched_stream;

/* Embedded in the owner's session: zero, then sched_join(). All is sched's. */
struct sched_session {
    struct route_walker walker;
    enum sched_priority priority; /* of its latest request */
    uint64_t hold_nsec_max;       /* of its latest request */
    uint32_t class_key;           /* these two likewise */
    uint32_t n_rows;
    double deficit_nsec;
    double n_rounds;           /* that the deficit accounts for */
    bool has_jumped;           /* a deadline was near, and no turn of its own has come since */
    uint64_t run_end_nsec;     /* when its latest launch should end */
    struct list in_active;     /* linked while it has streams */
    struct list streams;       /* one for each weight that it waits for, in turn */
    struct list queued;        /* its queued items, oldest first */
    double prefill_nsec;       /* of its turn among those who prefill: sched_prefill.c */
    struct list in_prefilling; /* linked while it has prefills */
    struct list prefills;      /* in turn */
};

/* Embedded in the owner's request. The owner fills the first block before push. */
struct sched_item {
    /* Requests with equal keys may share a launch: one weight generation, same x and y dtype. */
    uint64_t weight_key;
    uint32_t class_key;
    struct sched_session *session;
    uint32_t n_rows;        /* >= 1 */
    uint32_t n_chunk_rows;  /* of a launch at most, if n_rows is over rows_max; 0: rows_max */
    uint64_t deadline_nsec; /* 0: none */
    uint64_t hold_nsec_max; /* never to be held longer than that; 0: not at all */
    enum sched_priority priority;

    enum sched_state state; /* the rest is sched's */
    uint64_t arrival_nsec;
    struct deadline deadline;
    struct sched_stream *stream; /* NULL: of a prefill */
    struct list in_stream;       /* or in its session's prefills */
    struct list in_session;
};

struct sched_limits {
    uint32_t items_max;       /* queued at once over all sessions; beyond it push answers full */
    uint32_t rows_max;        /* of one launch; an item of more is a prefill */
    uint32_t batch_items_max; /* room in the caller's array */
    uint32_t weights_max;     /* whose order is known at once */
    uint32_t edges_max;       /* steps known at once, over all sessions */
    enum sched_mode mode;
};

/* What sched_next() says beside the items. */
struct sched_verdict {
    uint32_t n_rows;     /* of the launch; of a chunk: how many more of its item's */
    uint64_t until_nsec; /* with no items: nothing to do before then; UINT64_MAX: an event */
    enum sched_close close;
};

/* Counted since the start; n_held is what is held now. */
struct sched_stats {
    uint64_t n_closed[SCHED_CLOSES]; /* launches, by why they took no more */
    uint64_t n_holds[SCHED_HOLDS];   /* decisions to wait */
    uint64_t idle_nsec[SCHED_HOLDS]; /* the device had nothing to do meanwhile */
    uint32_t n_held;                 /* sessions, by the latest decision */
    uint32_t n_rings;                /* passes over models that are known */
    uint32_t n_in_step;              /* sessions that share launches along them */
};

/* The launch that should come next. */
struct sched_ahead {
    uint64_t weight_key;
    uint32_t class_key;
    uint32_t n_sessions;
    uint32_t n_rows;    /* at most: of one request of each of these */
    bool is_in_place;   /* it should wait on the GPU; else in line for it */
    uint64_t wait_nsec; /* after the end of the one before it should have been given out */
};

struct sched;

/* sched_new() - 0, -ENOMEM, or -EINVAL when a limit is 0. */
int sched_new(const struct sched_limits *limits, struct sched **ret_sched) GD_MUST_CHECK;
struct sched *sched_free(struct sched *sched); /* items left inside are merely forgotten */

/* sched_join() - before a session's first item. sched_leave() - after its last, none of them being
 * queued or taken. */
void sched_join(struct sched *sched, struct sched_session *session);
void sched_leave(struct sched *sched, struct sched_session *session);

enum sched_push { SCHED_PUSHED = 0, SCHED_FULL };

/* sched_push() - queue an item that is OUTSIDE. SCHED_FULL when items_max are queued. */
enum sched_push sched_push(struct sched *sched, struct sched_item *item,
                           uint64_t now_nsec) GD_MUST_CHECK;

/* sched_next() - the items of the next launch, in the order they were taken; 0 when none should
 * start now. ret_items: room for batch_items_max. They are TAKEN until sched_done(); the launch is
 * running until sched_ended(). Of an item of more than rows_max rows, ret_verdict->n_rows more are
 * to be launched: sched_again() then asks for the rest. */
uint32_t sched_next(struct sched *sched, uint64_t now_nsec, struct sched_item **ret_items,
                    struct sched_verdict *ret_verdict);

/* sched_ahead() - after sched_next() has given out a launch: which one should come next, where all
 * who wait for that one walk over a ring in step, or one alone does, and have been right about it;
 * false: it cannot be told, or telling has brought nothing lately (ahead.h). Asking changes no
 * decision. sched_ahead_missed() - the one that was told of last came otherwise, or not in time. */
bool sched_ahead(struct sched *sched, uint64_t now_nsec, struct sched_ahead *ret_ahead);

/* sched_ahead_awaits() - is that session one of those who share the launch that was told of last?
 * sched_taken() - the device has begun that launch by itself, which it may when all of them have
 * come: these items, QUEUED and of one weight, are as if sched_next() had given them out now. */
bool sched_ahead_awaits(const struct sched *sched, const struct sched_session *session);
void sched_taken(struct sched *sched, struct sched_item *const *items, uint32_t n_items,
                 uint64_t now_nsec);

void sched_ahead_missed(struct sched *sched);

/* sched_ended() - the oldest launch that is running has ended, having taken run_nsec; 0 where it
 * failed. sched_failed() - the newest one has not begun and never will. Either before the
 * sched_done() and sched_again() of its items. sched_postponed() - the oldest one has not begun and
 * will, behind the others. */
void sched_ended(struct sched *sched, uint64_t now_nsec, uint64_t run_nsec);
void sched_failed(struct sched *sched, uint64_t now_nsec);
void sched_postponed(struct sched *sched, uint64_t now_nsec);
void sched_done(struct sched *sched, struct sched_item *item, uint64_t now_nsec);
void sched_again(struct sched *sched, struct sched_item *item);

/* sched_cancel() - true if it was QUEUED and is now out. A prefill between two chunks is QUEUED. */
bool sched_cancel(struct sched *sched, struct sched_item *item, uint64_t now_nsec);

/* sched_expired() - one QUEUED item whose deadline has passed, taken out; NULL when none. An item
 * that has begun has no deadline any more. */
struct sched_item *sched_expired(struct sched *sched, uint64_t now_nsec);
/* sched_deadline() - the earliest deadline of a queued item; UINT64_MAX when none. */
uint64_t sched_deadline(const struct sched *sched);

/* sched_any() - some item that is QUEUED, taken out; NULL when none is. */
struct sched_item *sched_any(struct sched *sched, uint64_t now_nsec);

/* sched_queued() - items that are QUEUED. */
uint32_t sched_queued(const struct sched *sched);
void sched_stats(const struct sched *sched, struct sched_stats *ret_stats);
