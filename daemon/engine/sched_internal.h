/* sched_internal.h - what the files of the scheduler share.
 *
 * Floors, lowest first: sched_queues.c (items, streams, queues; filling a launch),
 * sched_prefill.c (chunks), rendezvous.c (whom to run and whom to hold on a ring), sched_turns.c
 * (whose turn it is), sched_ahead.c (which launch comes next), sched.c (events and decisions). */
#pragma once

#include "ipc/base/clock.h"

#include "daemon/engine/sched.h"

#define SCHED_FLIGHTS_MAX 8u

/* An item whose deadline, by when it must be launched, is nearer than this is urgent. */
#define SCHED_URGENT_NSEC (20u * (uint64_t)CLOCK_NSEC_PER_USEC)

struct sched_queue {
    uint64_t weight_key;
    struct route_node *node; /* NULL: the table of weights was full */
    struct list in_bucket;
    struct list in_all; /* or in the pool of free queues */
    struct list streams;
    uint32_t n_rows; /* of all its items */
};

/* The items of one session for one weight. */
struct sched_stream {
    struct sched_queue *queue;
    struct sched_session *session;
    struct list in_queue; /* or in the pool of free streams */
    struct list in_session;
    struct list in_bucket;
    struct list items;
};

/* A launch that was given out. */
struct sched_flight {
    struct route_node *node;
    uint32_t n_rows;
    uint64_t expected_nsec; /* that it takes; 0: not known */
    bool is_chunk;
    bool was_waited_for; /* a decode request came while this chunk was in the way */
};

struct sched {
    struct sched_limits limits;
    struct routes *routes;
    uint32_t n_queued;
    struct deadlines deadlines;
    struct list active[SCHED_PRIORITIES]; /* sessions with streams */
    double n_rounds;                      /* of all sessions' turns so far */

    uint32_t n_buckets; /* a power of two */
    struct list *queue_buckets;
    struct list *stream_buckets;
    struct sched_queue *queues;
    struct sched_stream *streams;
    struct list all_queues;
    struct list free_queues;
    struct list free_streams;

    struct sched_flight flights[SCHED_FLIGHTS_MAX]; /* a ring */
    uint32_t i_first_flight;
    uint32_t n_flights;
    uint64_t free_nsec; /* when the device should be through with them */

    struct list prefilling;    /* sessions with prefills, the next one first */
    double prefill_begin_nsec; /* of the latest turn among them */
    double prefill_credit_nsec;
    uint64_t credit_nsec; /* when that was brought up to date */
    uint64_t decode_nsec; /* when the latest decode request came or ended */

    const struct route_node *ahead_node; /* before the launch that was told of last; NULL: none */

    uint64_t hold_until_nsec; /* the latest decision was to wait until then; 0: it was not */
    uint64_t idle_since_nsec; /* the device is idle because of it since then; 0: it is not */
    enum sched_hold idle_hold;
    struct sched_stats stats;
};

/* ---- sched_queues.c ---- */

/* sched_quantum_nsec() - device time that a session of that priority is due in a round. */
double sched_quantum_nsec(enum sched_priority priority);

/* sched_queues_init() - 0 or -ENOMEM; finish is safe after a failure. */
int sched_queues_init(struct sched *sched) GD_MUST_CHECK;
void sched_queues_finish(struct sched *sched);

/* sched_enqueue() - into the stream of its session and weight. sched_unlink() - out of it, wherever
 * it is; what is empty then is given back. sched_oldest() - the session's oldest queued item. */
void sched_enqueue(struct sched *sched, struct sched_item *item, struct route_node *node);
void sched_unlink(struct sched *sched, struct sched_item *item, enum sched_state state);
struct sched_item *sched_oldest(const struct sched_session *session);

/* sched_fill() - take what fits from one queue, the stream that comes first beginning: NULL for
 * whoever is at its front. Returns the number of items; adds up their rows. */
uint32_t sched_fill(struct sched *sched, struct sched_queue *queue, struct sched_item **ret_items,
                    uint32_t *ret_n_rows);

/* ---- rendezvous.c ---- */

struct rendezvous {
    struct sched_queue *queue; /* to run; NULL: none */
    enum sched_close close;
    uint32_t n_running;   /* sessions of the cohort that it serves */
    enum sched_hold hold; /* without a queue: why, and until when */
    uint64_t until_nsec;
};

/* rendezvous_plan() - choose the cohort anew if it is time; after each step of a walker of it.
 * rendezvous_has() - is what that session waits for the ring's business? */
void rendezvous_plan(struct route_ring *ring);
bool rendezvous_has(const struct sched_session *session);

/* rendezvous_expect() - when a session of a ring should ask for what comes next, and from when on
 * it is late: nobody waits for it any longer. */
void rendezvous_expect(const struct sched_session *session, uint64_t now_nsec,
                       uint64_t *ret_expected_nsec, uint64_t *ret_late_nsec);

/* rendezvous_choose() - what the cohort of a ring should do: run one of its queues, or wait. Some
 * session of it has something queued. free_nsec: when the device can start. */
void rendezvous_choose(struct sched *sched, struct route_ring *ring, uint64_t now_nsec,
                       uint64_t free_nsec, struct rendezvous *ret_choice);

/* ---- sched_prefill.c ---- */

/* prefill_add() - into its session's prefills, last or, if it is urgent, first, and then its
 * session's turn is next. prefill_next() - whose chunk is next; NULL: there is none.
 * prefill_may_run() - may a chunk start now? `is_alone`: nothing else could. Else *ret_until_nsec
 * is when to ask again. prefill_may_jump() - may one whose deadline is near? prefill_take() - the
 * next chunk, of which that is expected, 0: not known; prefill_seen() - a decode request came or
 * ended. prefill_ended() - a chunk ended, having taken run_nsec. prefill_chunk_rows() - of that
 * item, if it is launched now. */
void prefill_add(struct sched *sched, struct sched_item *item, bool is_urgent);
struct sched_item *prefill_next(const struct sched *sched);
bool prefill_may_run(struct sched *sched, uint64_t now_nsec, bool is_alone,
                     uint64_t *ret_until_nsec);
bool prefill_may_jump(const struct sched *sched, const struct sched_session *session);
struct sched_item *prefill_take(struct sched *sched, uint64_t expected_nsec);
uint32_t prefill_chunk_rows(const struct sched *sched, const struct sched_item *item,
                            uint64_t now_nsec);
void prefill_seen(struct sched *sched, uint64_t now_nsec);
void prefill_ended(struct sched *sched, const struct sched_flight *flight, uint64_t now_nsec,
                   uint64_t run_nsec);

/* ---- sched_turns.c ---- */

/* turns_enter() - a session has its first stream. turns_leave() - it has none left. turns_charge()
 * - a launch of all these was given out. */
void turns_enter(struct sched *sched, struct sched_session *session);
void turns_leave(struct sched_session *session);
void turns_charge(struct sched *sched, struct sched_item *const *items, uint32_t n_items,
                  uint32_t n_rows, uint64_t expected_nsec);

/* turns_pass() - begin rounds until somebody who waits is not in debt, as turns_next() does. */
void turns_pass(struct sched *sched);

/* turns_next() - the queue whose turn it is; NULL: every one is held, until *ret_until_nsec. */
struct sched_queue *turns_next(struct sched *sched, uint64_t now_nsec, uint64_t free_nsec,
                               struct rendezvous *ret_choice);
