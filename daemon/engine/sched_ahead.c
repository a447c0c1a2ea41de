/* sched_ahead.c - which launch comes next, so that the device can have it queued before its rows
 * are there.
 *
 * It can be told where everybody who is in the way of it takes the same step: a cohort in step, or
 * the only session of a ring. Somebody else may ask for something else first; then the launch that
 * was told of is given up, which costs little, and whether it is worth telling is counted for each
 * ring (ahead.h). */
#include "daemon/engine/sched_internal.h"

#include "ipc/base/num.h"

/* Queueing a launch takes about as long as this; what comes sooner is better launched. */
#define LEAD_NSEC (8u * (uint64_t)CLOCK_NSEC_PER_USEC)
/* It is not queued for longer behind the one before, since it may be in the way of the clients' own
 * kernels. */
#define WAIT_NSEC_MAX (200u * (uint64_t)CLOCK_NSEC_PER_USEC)
/* From when the last of them is late until the launch is given out. */
#define DECISION_NSEC (10u * (uint64_t)CLOCK_NSEC_PER_USEC)

/* Those who should ask for the node after `from`. */
struct party {
    const struct route_node *from;
    uint32_t class_key;
    uint32_t n_sessions;
    uint32_t n_rows;
    uint64_t soonest_nsec;
    uint64_t late_nsec;
};

/* One more session of the ring; false if it may be in the way of the others. */
static bool join_party(struct party *party, const struct sched_session *session, uint64_t now_nsec)
{
    const struct route_walker *walker = &session->walker;
    uint64_t expected_nsec, late_nsec;
    rendezvous_expect(session, now_nsec, &expected_nsec, &late_nsec);
    bool is_away = walker->n_open == 0 && late_nsec <= now_nsec;
    if (walker->at != party->from || is_away) {
        return is_away;
    }
    if (walker->n_open > 1) {
        return false;
    }
    if (party->n_sessions > 0 && party->class_key != session->class_key) {
        return false;
    }
    party->class_key = session->class_key;
    party->n_sessions++;
    party->n_rows += session->n_rows;
    party->soonest_nsec = num_min(party->soonest_nsec, expected_nsec);
    party->late_nsec = num_max(party->late_nsec, late_nsec);
    return true;
}

static bool is_of_party(const struct route_ring *ring, const struct route_walker *walker)
{
    return walker->ring == ring && (ring->n_walkers == 1 || walker->is_in_cohort);
}

/* All of the ring that count; false: they are not in step. */
static bool gather(const struct sched *sched, const struct route_ring *ring, uint64_t now_nsec,
                   struct party *party)
{
    bool is_alone = ring->n_walkers == 1;
    if (!is_alone && (sched->limits.mode != SCHED_RENDEZVOUS || ring->n_cohort < 2)) {
        return false;
    }
    list_for_each (node, &ring->walkers) {
        const struct sched_session *session =
            LIST_OWNER(node, struct sched_session, walker.in_ring);
        if (is_of_party(ring, &session->walker) && !join_party(party, session, now_nsec)) {
            return false;
        }
    }
    return party->n_sessions > 0;
}

static const struct sched_flight *newest(const struct sched *sched)
{
    uint32_t i = (sched->i_first_flight + sched->n_flights - 1) % SCHED_FLIGHTS_MAX;
    return sched->n_flights > 0 ? &sched->flights[i] : NULL;
}

bool sched_ahead(struct sched *sched, uint64_t now_nsec, struct sched_ahead *ret_ahead)
{
    const struct sched_flight *flight = newest(sched);
    if (flight == NULL || flight->is_chunk || flight->node == NULL || flight->node->ring == NULL ||
        ahead_now(&flight->node->ring->ahead) == AHEAD_NOT || !list_is_empty(&sched->all_queues)) {
        return false;
    }
    struct party party = {.from = flight->node, .soonest_nsec = UINT64_MAX};
    if (!gather(sched, flight->node->ring, now_nsec, &party) ||
        party.n_rows > sched->limits.rows_max || party.soonest_nsec < now_nsec + LEAD_NSEC ||
        party.late_nsec > sched->free_nsec + WAIT_NSEC_MAX) {
        return false;
    }
    sched->ahead_node = flight->node;
    *ret_ahead = (struct sched_ahead){
        .weight_key = flight->node->next->weight_key,
        .class_key = party.class_key,
        .n_sessions = party.n_sessions,
        .n_rows = party.n_rows,
        .is_in_place = ahead_now(&flight->node->ring->ahead) == AHEAD_IN_PLACE,
        .wait_nsec = num_max(party.late_nsec, sched->free_nsec) - sched->free_nsec + DECISION_NSEC,
    };
    return true;
}

bool sched_ahead_awaits(const struct sched *sched, const struct sched_session *session)
{
    const struct route_node *from = sched->ahead_node;
    return from != NULL && from->ring != NULL && session->walker.at == from &&
           is_of_party(from->ring, &session->walker);
}

void sched_ahead_missed(struct sched *sched)
{
    if (sched->ahead_node != NULL && sched->ahead_node->ring != NULL) {
        ahead_missed(&sched->ahead_node->ring->ahead);
    }
}
