/* sched_turns.c - whose turn it is: deficit round robin over sessions.
 *
 * In each round every session with something queued is due one quantum. A launch is charged to all
 * who share it, by rows, at what launches of that weight have taken lately; who is in debt is
 * passed over until later rounds have paid for it, whether it has something queued meanwhile or
 * not: most sessions ask for one thing at a time. What a session does not use of a quantum is not
 * saved for the next round; a debt is, up to a bound. Rounds in which nobody could be served are
 * skipped in one step, so nobody waits for arithmetic. */
#include "daemon/engine/sched_internal.h"

#define DEBT_QUANTA 8.0

void turns_enter(struct sched *sched, struct sched_session *session)
{
    list_append(&sched->active[session->priority], &session->in_active);
    double n_missed = sched->n_rounds - session->n_rounds;
    if (n_missed > 0) {
        session->deficit_nsec += n_missed * sched_quantum_nsec(session->priority);
        session->deficit_nsec = session->deficit_nsec < 0 ? session->deficit_nsec : 0;
        session->n_rounds = sched->n_rounds;
    }
}

void turns_leave(struct sched_session *session)
{
    list_remove(&session->in_active);
}

static void charge(struct sched_session *session, double nsec)
{
    double debt_max = DEBT_QUANTA * sched_quantum_nsec(session->priority);
    debt_max = debt_max > nsec ? debt_max : nsec; /* one launch, however long, counts whole */
    session->deficit_nsec -= nsec;
    if (session->deficit_nsec < -debt_max) {
        session->deficit_nsec = -debt_max;
    }
}

void turns_charge(struct sched *sched, struct sched_item *const *items, uint32_t n_items,
                  uint32_t n_rows, uint64_t expected_nsec)
{
    double total_nsec =
        expected_nsec > 0 ? (double)expected_nsec : sched_quantum_nsec(SCHED_NORMAL);
    for (uint32_t i = 0; i < n_items; i++) {
        charge(items[i]->session, total_nsec * items[i]->n_rows / n_rows);
    }
    struct sched_session *first = items[0]->session;
    if (!list_is_empty(&first->streams)) {
        list_remove(&first->in_active);
        turns_enter(sched, first);
    }
}

/* ---- whose turn ---- */

/* A session's queue, or what its ring makes of it; false: nothing of it may start now. */
static bool look_at(struct sched *sched, struct sched_session *session, uint64_t now_nsec,
                    uint64_t free_nsec, struct rendezvous *choice)
{
    if (rendezvous_has(session)) {
        struct rendezvous of_ring;
        rendezvous_choose(sched, session->walker.ring, now_nsec, free_nsec, &of_ring);
        if (of_ring.queue != NULL || of_ring.until_nsec < choice->until_nsec) {
            *choice = of_ring;
        }
        return of_ring.queue != NULL;
    }
    struct sched_stream *stream =
        LIST_OWNER(session->streams.next, struct sched_stream, in_session);
    list_remove(&stream->in_queue); /* its launch begins with it */
    list_insert_before(stream->queue->streams.next, &stream->in_queue);
    *choice = (struct rendezvous){.queue = stream->queue, .close = SCHED_CLOSE_IDLE};
    return true;
}

/* The first of that priority that is not in debt and has something to start. */
static bool look_among(struct sched *sched, enum sched_priority priority, uint64_t now_nsec,
                       uint64_t free_nsec, struct rendezvous *choice)
{
    const struct route_ring *held = NULL; /* asked already: all its cohort gets the same answer */
    list_for_each (node, &sched->active[priority]) {
        struct sched_session *session = LIST_OWNER(node, struct sched_session, in_active);
        bool is_held = held != NULL && session->walker.ring == held && rendezvous_has(session);
        if (session->deficit_nsec < 0 || is_held) {
            continue;
        }
        if (look_at(sched, session, now_nsec, free_nsec, choice)) {
            return true;
        }
        held = session->walker.ring;
    }
    return false;
}

/* Begin as many rounds as it takes for one more session to be out of debt; false: nobody is in it.
 */
static bool next_round(struct sched *sched)
{
    double n_rounds = 0;
    for (uint32_t priority = 0; priority < SCHED_PRIORITIES; priority++) {
        list_for_each (node, &sched->active[priority]) {
            double deficit = LIST_OWNER(node, struct sched_session, in_active)->deficit_nsec;
            double n_needed = -deficit / sched_quantum_nsec((enum sched_priority)priority);
            if (deficit < 0 && (n_rounds == 0 || n_needed < n_rounds)) {
                n_rounds = n_needed;
            }
        }
    }
    if (n_rounds == 0) {
        return false;
    }
    n_rounds = (double)(uint64_t)n_rounds + 1;
    sched->n_rounds += n_rounds;
    for (uint32_t priority = 0; priority < SCHED_PRIORITIES; priority++) {
        list_for_each (node, &sched->active[priority]) {
            struct sched_session *session = LIST_OWNER(node, struct sched_session, in_active);
            session->deficit_nsec += n_rounds * sched_quantum_nsec((enum sched_priority)priority);
            if (session->deficit_nsec > sched_quantum_nsec((enum sched_priority)priority)) {
                session->deficit_nsec = sched_quantum_nsec((enum sched_priority)priority);
            }
            session->n_rounds = sched->n_rounds;
        }
    }
    return true;
}

static bool is_anybody_due(const struct sched *sched)
{
    for (uint32_t priority = 0; priority < SCHED_PRIORITIES; priority++) {
        list_for_each (node, &sched->active[priority]) {
            if (LIST_OWNER(node, struct sched_session, in_active)->deficit_nsec >= 0) {
                return true;
            }
        }
    }
    return false;
}

void turns_pass(struct sched *sched)
{
    while (!is_anybody_due(sched) && next_round(sched)) {
    }
}

struct sched_queue *turns_next(struct sched *sched, uint64_t now_nsec, uint64_t free_nsec,
                               struct rendezvous *ret_choice)
{
    *ret_choice = (struct rendezvous){.queue = NULL, .until_nsec = UINT64_MAX};
    do {
        for (uint32_t priority = 0; priority < SCHED_PRIORITIES; priority++) {
            if (look_among(sched, priority, now_nsec, free_nsec, ret_choice)) {
                return ret_choice->queue;
            }
        }
    } while (next_round(sched));
    return NULL;
}
