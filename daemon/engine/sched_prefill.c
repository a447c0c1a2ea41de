/* sched_prefill.c - requests of more rows than one launch has: in chunks, beside decode.
 *
 * A chunk cannot be stopped once it runs, so a decode request that comes meanwhile waits for its
 * end. Prefill earns the right to be in the way: while anybody decodes, SCHED_PREFILL_SHARE of the
 * time that passes is credited to it, up to one chunk; a chunk that a decode request had to wait
 * for is paid from that. With the device free and no debt a chunk starts at once; with a whole
 * chunk's credit even before decode requests that wait, so that prefill goes on while they never
 * pause. With nobody decoding there is nothing to pay.
 *
 * Sessions share chunks by device time, by start-time fair queueing: a session with ten prefills
 * gets what one with a single one gets. A session's own prefills take turns. */
#include "daemon/engine/sched_internal.h"

#include <math.h>

#include "ipc/base/clock.h"

/* So long after its latest request somebody still counts as decoding. */
#define DECODE_NSEC (5u * (uint64_t)CLOCK_NSEC_PER_MSEC)

/* Rows of a chunk meanwhile: on an H200 a chunk of so many takes a quarter to a third of the time
 * of one of 1024, which is what the unlucky decode step waits, for 10 to 25% of prefill's speed. */
#define CHUNK_ROWS_BESIDE 256u

/* ---- whose chunk is next ---- */

static bool has_chunk_in_flight(const struct sched *sched)
{
    for (uint32_t i = 0; i < sched->n_flights; i++) {
        if (sched->flights[(sched->i_first_flight + i) % SCHED_FLIGHTS_MAX].is_chunk) {
            return true;
        }
    }
    return false;
}

/* Each session's turn has a time, which its chunks move on by what they take: the earliest is next.
 * Who comes anew, or again, begins with those whose turn it is now. */
static void place(struct sched *sched, struct sched_session *session)
{
    if (list_is_empty(&sched->prefilling) && !has_chunk_in_flight(sched)) {
        sched->prefill_begin_nsec = fmax(sched->prefill_begin_nsec, session->prefill_nsec);
    }
    session->prefill_nsec = fmax(session->prefill_nsec, sched->prefill_begin_nsec);
    struct list *behind = sched->prefilling.prev;
    while (behind != &sched->prefilling &&
           LIST_OWNER(behind, struct sched_session, in_prefilling)->prefill_nsec >
               session->prefill_nsec) {
        behind = behind->prev;
    }
    list_insert_before(behind->next, &session->in_prefilling);
}

void prefill_add(struct sched *sched, struct sched_item *item, bool is_urgent)
{
    struct sched_session *session = item->session;
    struct list *rest = session->prefills.next;
    list_remove(&session->in_prefilling);
    if (is_urgent) {
        list_insert_before(rest, &item->in_stream);
        list_insert_before(sched->prefilling.next, &session->in_prefilling);
        return;
    }
    list_append(&session->prefills, &item->in_stream);
    place(sched, session);
}

struct sched_item *prefill_next(const struct sched *sched)
{
    if (list_is_empty(&sched->prefilling)) {
        return NULL;
    }
    const struct sched_session *session =
        LIST_OWNER(sched->prefilling.next, struct sched_session, in_prefilling);
    return LIST_OWNER(session->prefills.next, struct sched_item, in_stream);
}

struct sched_item *prefill_take(struct sched *sched, uint64_t expected_nsec)
{
    struct sched_item *item = prefill_next(sched);
    struct sched_session *session = item->session;
    double normal_nsec = sched_quantum_nsec(SCHED_NORMAL);
    double nsec = expected_nsec > 0 ? (double)expected_nsec : normal_nsec;
    sched->prefill_begin_nsec = fmax(sched->prefill_begin_nsec, session->prefill_nsec);
    session->prefill_nsec += nsec * normal_nsec / sched_quantum_nsec(session->priority);
    sched_unlink(sched, item, SCHED_TAKEN);
    if (!list_is_empty(&session->prefills)) {
        list_remove(&session->in_prefilling);
        place(sched, session);
    }
    return item;
}

/* ---- when ---- */

static bool is_decoding(const struct sched *sched, uint64_t now_nsec)
{
    return sched->decode_nsec != 0 && now_nsec - sched->decode_nsec < DECODE_NSEC;
}

uint32_t prefill_chunk_rows(const struct sched *sched, const struct sched_item *item,
                            uint64_t now_nsec)
{
    uint32_t n_rows = item->n_chunk_rows != 0 ? item->n_chunk_rows : sched->limits.rows_max;
    return is_decoding(sched, now_nsec) && n_rows > CHUNK_ROWS_BESIDE ? CHUNK_ROWS_BESIDE : n_rows;
}

static uint64_t chunk_nsec(const struct sched *sched, uint64_t now_nsec)
{
    const struct sched_item *item = prefill_next(sched);
    struct route_node *node = route_node(sched->routes, item->weight_key);
    return node != NULL ? cost_nsec(&node->cost, prefill_chunk_rows(sched, item, now_nsec)) : 0;
}

static void earn(struct sched *sched, uint64_t now_nsec)
{
    uint64_t end_nsec = sched->decode_nsec == 0 ? 0 : sched->decode_nsec + DECODE_NSEC;
    end_nsec = end_nsec < now_nsec ? end_nsec : now_nsec;
    if (end_nsec > sched->credit_nsec) {
        sched->prefill_credit_nsec += SCHED_PREFILL_SHARE * (double)(end_nsec - sched->credit_nsec);
    }
    sched->credit_nsec = now_nsec;
}

void prefill_seen(struct sched *sched, uint64_t now_nsec)
{
    earn(sched, now_nsec);
    sched->decode_nsec = now_nsec;
    for (uint32_t i = 0; i < sched->n_flights; i++) {
        sched->flights[(sched->i_first_flight + i) % SCHED_FLIGHTS_MAX].was_waited_for = true;
    }
}

bool prefill_may_run(struct sched *sched, uint64_t now_nsec, bool is_alone,
                     uint64_t *ret_until_nsec)
{
    if (list_is_empty(&sched->prefilling)) {
        return false;
    }
    earn(sched, now_nsec);
    double cost_nsec = (double)chunk_nsec(sched, now_nsec);
    if (sched->prefill_credit_nsec > cost_nsec + 1) {
        sched->prefill_credit_nsec = cost_nsec + 1;
    }
    double price_nsec = is_alone ? 0 : cost_nsec + 1; /* the first one's cost is not known */
    double needed_nsec = price_nsec - sched->prefill_credit_nsec;
    if (needed_nsec <= 0 || (is_alone && !is_decoding(sched, now_nsec))) {
        return true;
    }
    uint64_t quiet_nsec = sched->decode_nsec + DECODE_NSEC;
    uint64_t later_nsec = now_nsec + (uint64_t)(needed_nsec / SCHED_PREFILL_SHARE) + 1;
    *ret_until_nsec = is_alone && quiet_nsec < later_nsec ? quiet_nsec : later_nsec;
    return false;
}

/* Not while an earlier one that was in the way is not paid for, and by one chunk a turn at most. */
bool prefill_may_jump(const struct sched *sched, const struct sched_session *session)
{
    return sched->prefill_credit_nsec >= 0 && session->prefill_nsec <= sched->prefill_begin_nsec;
}

void prefill_ended(struct sched *sched, const struct sched_flight *flight, uint64_t now_nsec,
                   uint64_t run_nsec)
{
    earn(sched, now_nsec);
    if (flight->was_waited_for) {
        /* One that nobody waited for when it began, and somebody before it ended, leaves a debt of
         * one chunk at most: all prefills share the credit. */
        double rest_nsec = sched->prefill_credit_nsec - (double)run_nsec;
        sched->prefill_credit_nsec = fmax(rest_nsec, -(double)run_nsec);
    }
}
