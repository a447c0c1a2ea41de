/* sched_prefill.c - requests of more rows than one launch has: in chunks, beside decode.
 *
 * A chunk cannot be stopped once it runs, so a decode request that comes meanwhile waits for its
 * end. Prefill earns the right to be in the way: while anybody decodes, SCHED_PREFILL_SHARE of the
 * time that passes is credited to it, up to one chunk; a chunk that a decode request had to wait
 * for is paid from that. With the device free and no debt a chunk starts at once; with a whole
 * chunk's credit even before decode requests that wait, so that prefill goes on while they never
 * pause. With nobody decoding there is nothing to pay. */
#include "daemon/engine/sched_internal.h"

#include <math.h>

#include "ipc/base/clock.h"

/* So long after its latest request somebody still counts as decoding. */
#define DECODE_NSEC (5u * (uint64_t)CLOCK_NSEC_PER_MSEC)

uint32_t prefill_chunk_rows(const struct sched *sched, const struct sched_item *item)
{
    return item->n_chunk_rows != 0 ? item->n_chunk_rows : sched->limits.rows_max;
}

static uint64_t chunk_nsec(const struct sched *sched)
{
    const struct sched_item *item = LIST_OWNER(sched->prefills.next, struct sched_item, in_stream);
    struct route_node *node = route_node(sched->routes, item->weight_key);
    return node != NULL ? cost_nsec(&node->cost, prefill_chunk_rows(sched, item)) : 0;
}

static bool is_decoding(const struct sched *sched, uint64_t now_nsec)
{
    return sched->decode_nsec != 0 && now_nsec - sched->decode_nsec < DECODE_NSEC;
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
    if (list_is_empty(&sched->prefills)) {
        return false;
    }
    earn(sched, now_nsec);
    double cost_nsec = (double)chunk_nsec(sched);
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

struct sched_item *prefill_take(struct sched *sched)
{
    struct sched_item *item = LIST_OWNER(sched->prefills.next, struct sched_item, in_stream);
    sched_unlink(sched, item, SCHED_TAKEN);
    return item;
}

void prefill_ended(struct sched *sched, const struct sched_flight *flight, uint64_t now_nsec,
                   uint64_t run_nsec)
{
    earn(sched, now_nsec);
    if (flight->was_waited_for) {
        /* A chunk whose deadline let it jump the queue leaves a debt of one chunk at most: all
         * prefills share the credit. */
        double rest_nsec = sched->prefill_credit_nsec - (double)run_nsec;
        sched->prefill_credit_nsec = fmax(rest_nsec, -(double)run_nsec);
    }
}
