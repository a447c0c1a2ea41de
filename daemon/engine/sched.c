/* sched.c - events in, decisions out; see sched.h for the rules and sched_internal.h for the
 * floors.
 *
 * The next launch is given out while the one before it still runs, so that the device finds it in
 * time, but only COMMIT_NSEC before that one should end: until then requests may come that share
 * it. What a launch takes is known from earlier ones of its weight; where none has run, the next is
 * given out at once. */
#include "daemon/engine/sched_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define COMMIT_NSEC (10u * (uint64_t)CLOCK_NSEC_PER_USEC)

#define RINGS_MAX 64u

/* ---- setting up ---- */

int sched_new(const struct sched_limits *limits, struct sched **ret_sched)
{
    if (limits->items_max == 0 || limits->rows_max == 0 || limits->batch_items_max == 0) {
        return err_raise(-EINVAL);
    }
    struct sched *sched = calloc(1, sizeof(*sched));
    if (sched == NULL) {
        return err_raise(-ENOMEM);
    }
    sched->limits = *limits;
    list_init(&sched->prefilling);
    for (uint32_t i = 0; i < SCHED_PRIORITIES; i++) {
        list_init(&sched->active[i]);
    }
    const struct route_limits route_limits = {limits->weights_max, limits->edges_max, RINGS_MAX};
    int r = route_new(&route_limits, &sched->routes);
    r = r != 0 ? r : deadlines_init(&sched->deadlines, limits->items_max);
    r = r != 0 ? r : sched_queues_init(sched);
    if (r != 0) {
        (void)sched_free(sched);
        return r;
    }
    *ret_sched = sched;
    return 0;
}

struct sched *sched_free(struct sched *sched)
{
    if (sched != NULL) {
        sched_queues_finish(sched);
        deadlines_finish(&sched->deadlines);
        (void)route_free(sched->routes);
        free(sched);
    }
    return NULL;
}

void sched_join(struct sched *sched, struct sched_session *session)
{
    list_init(&session->in_active);
    list_init(&session->streams);
    list_init(&session->queued);
    list_init(&session->in_prefilling);
    list_init(&session->prefills);
    route_join(sched->routes, &session->walker);
}

void sched_leave(struct sched *sched, struct sched_session *session)
{
    GD_ASSERT(list_is_empty(&session->streams) && session->walker.n_open == 0);
    route_leave(sched->routes, &session->walker);
    sched->hold_until_nsec = 0;
}

/* ---- requests come and go ---- */

/* The device had nothing to do because of a hold; that is over. */
static void end_idleness(struct sched *sched, uint64_t now_nsec)
{
    if (sched->idle_since_nsec != 0) {
        sched->stats.idle_nsec[sched->idle_hold] += now_nsec - sched->idle_since_nsec;
        sched->idle_since_nsec = 0;
    }
}

static bool is_prefill(const struct sched *sched, const struct sched_item *item)
{
    return item->n_rows > sched->limits.rows_max;
}

/* With the table of weights full everything is learned anew; queues that exist need their nodes. */
static struct route_node *node_of(struct sched *sched, uint64_t weight_key)
{
    struct route_node *node = route_node(sched->routes, weight_key);
    if (node != NULL) {
        return node;
    }
    route_forget(sched->routes);
    for (uint32_t i = 0; i < SCHED_FLIGHTS_MAX; i++) {
        sched->flights[i].node = NULL;
    }
    sched->ahead_node = NULL;
    list_for_each (in_all, &sched->all_queues) {
        struct sched_queue *queue = LIST_OWNER(in_all, struct sched_queue, in_all);
        queue->node = route_node(sched->routes, queue->weight_key);
    }
    return route_node(sched->routes, weight_key);
}

static void learn_arrival(struct sched *sched, struct sched_item *item, struct route_node *node,
                          uint64_t now_nsec)
{
    struct sched_session *session = item->session;
    session->priority = list_is_empty(&session->in_active) ? item->priority : session->priority;
    session->hold_nsec_max = item->hold_nsec_max;
    session->class_key = item->class_key;
    session->n_rows = item->n_rows;
    route_arrive(sched->routes, &session->walker, is_prefill(sched, item) ? NULL : node, now_nsec);
    if (session->walker.ring != NULL && sched->limits.mode == SCHED_RENDEZVOUS) {
        rendezvous_plan(session->walker.ring);
    }
}

enum sched_push sched_push(struct sched *sched, struct sched_item *item, uint64_t now_nsec)
{
    GD_ASSERT(item->state == SCHED_OUTSIDE && item->n_rows > 0);
    if (sched->n_queued == sched->limits.items_max) {
        return SCHED_FULL;
    }
    struct route_node *node = node_of(sched, item->weight_key);
    learn_arrival(sched, item, node, now_nsec);
    item->stream = NULL;
    list_init(&item->in_session);
    if (is_prefill(sched, item)) {
        prefill_add(sched, item, false);
    } else {
        sched_enqueue(sched, item, node);
        prefill_seen(sched, now_nsec);
    }
    item->deadline = (struct deadline){item->deadline_nsec, DEADLINES_NOWHERE};
    if (item->deadline_nsec != 0) {
        deadlines_add(&sched->deadlines, &item->deadline);
    }
    item->arrival_nsec = now_nsec;
    item->state = SCHED_QUEUED;
    sched->n_queued++;
    sched->hold_until_nsec = 0;
    return SCHED_PUSHED;
}

void sched_done(struct sched *sched, struct sched_item *item, uint64_t now_nsec)
{
    GD_ASSERT(item->state == SCHED_TAKEN);
    item->state = SCHED_OUTSIDE;
    route_complete(&item->session->walker, now_nsec);
    sched->hold_until_nsec = 0;
}

void sched_again(struct sched *sched, struct sched_item *item)
{
    GD_ASSERT(item->state == SCHED_TAKEN && is_prefill(sched, item));
    item->state = SCHED_QUEUED;
    prefill_add(sched, item, false);
    sched->n_queued++;
    sched->hold_until_nsec = 0;
}

bool sched_cancel(struct sched *sched, struct sched_item *item, uint64_t now_nsec)
{
    if (item->state != SCHED_QUEUED) {
        return false;
    }
    sched_unlink(sched, item, SCHED_OUTSIDE);
    route_complete(&item->session->walker, now_nsec);
    sched->hold_until_nsec = 0;
    if (sched->n_queued == 0) {
        end_idleness(sched, now_nsec);
    }
    return true;
}

struct sched_item *sched_expired(struct sched *sched, uint64_t now_nsec)
{
    struct deadline *first = deadlines_first(&sched->deadlines);
    if (first == NULL || first->at_nsec > now_nsec) {
        return NULL;
    }
    struct sched_item *item = LIST_OWNER(first, struct sched_item, deadline);
    (void)sched_cancel(sched, item, now_nsec);
    return item;
}

uint64_t sched_deadline(const struct sched *sched)
{
    const struct deadline *first = deadlines_first(&sched->deadlines);
    return first == NULL ? UINT64_MAX : first->at_nsec;
}

struct sched_item *sched_any(struct sched *sched, uint64_t now_nsec)
{
    struct sched_item *item = prefill_next(sched);
    if (item == NULL && !list_is_empty(&sched->all_queues)) {
        struct sched_queue *queue = LIST_OWNER(sched->all_queues.next, struct sched_queue, in_all);
        struct sched_stream *stream =
            LIST_OWNER(queue->streams.next, struct sched_stream, in_queue);
        item = LIST_OWNER(stream->items.next, struct sched_item, in_stream);
    }
    if (item != NULL) {
        (void)sched_cancel(sched, item, now_nsec);
    }
    return item;
}

uint32_t sched_queued(const struct sched *sched)
{
    return sched->n_queued;
}

/* ---- launches ---- */

static void take_off(struct sched *sched, const struct sched_flight *flight, uint64_t now_nsec)
{
    GD_ASSERT(sched->n_flights < SCHED_FLIGHTS_MAX);
    uint32_t i = (sched->i_first_flight + sched->n_flights++) % SCHED_FLIGHTS_MAX;
    sched->flights[i] = *flight;
    sched->free_nsec = num_max(sched->free_nsec, now_nsec) + flight->expected_nsec;
}

/* The launches in flight have changed: when should the device be through with them? */
static void expect_free(struct sched *sched, uint64_t now_nsec)
{
    sched->free_nsec = now_nsec;
    for (uint32_t i = 0; i < sched->n_flights; i++) {
        sched->free_nsec +=
            sched->flights[(sched->i_first_flight + i) % SCHED_FLIGHTS_MAX].expected_nsec;
    }
    sched->hold_until_nsec = 0;
}

void sched_ended(struct sched *sched, uint64_t now_nsec, uint64_t run_nsec)
{
    GD_ASSERT(sched->n_flights > 0);
    const struct sched_flight *flight = &sched->flights[sched->i_first_flight];
    if (run_nsec > 0 && flight->node != NULL) {
        cost_learn(&flight->node->cost, flight->n_rows, run_nsec);
    }
    if (flight->is_chunk) {
        prefill_ended(sched, flight, now_nsec, run_nsec);
    } else {
        prefill_seen(sched, now_nsec);
    }
    sched->i_first_flight = (sched->i_first_flight + 1) % SCHED_FLIGHTS_MAX;
    sched->n_flights--;
    expect_free(sched, now_nsec);
}

void sched_failed(struct sched *sched, uint64_t now_nsec)
{
    GD_ASSERT(sched->n_flights > 0);
    sched->n_flights--;
    expect_free(sched, now_nsec);
}

void sched_postponed(struct sched *sched, uint64_t now_nsec)
{
    GD_ASSERT(sched->n_flights > 0);
    struct sched_flight flight = sched->flights[sched->i_first_flight];
    sched->i_first_flight = (sched->i_first_flight + 1) % SCHED_FLIGHTS_MAX;
    sched->flights[(sched->i_first_flight + sched->n_flights - 1) % SCHED_FLIGHTS_MAX] = flight;
    expect_free(sched, now_nsec);
}

/* ---- decisions ---- */

/* May that item go before its turn? What it takes is charged as ever, so in the long run no
 * deadlines are short enough to gain anything. */
static bool may_jump(const struct sched *sched, const struct sched_item *item)
{
    const struct sched_session *session = item->session;
    return item->stream == NULL
               ? prefill_may_jump(sched, session)
               : !session->has_jumped &&
                     session->deficit_nsec > -sched_quantum_nsec(session->priority);
}

static bool is_owed(struct deadline *deadline, const void *context)
{
    const struct sched_item *item = LIST_OWNER(deadline, struct sched_item, deadline);
    const struct sched_session *session = item->session;
    return session->deficit_nsec >= 0 && may_jump(context, item);
}

/* Of the items that would miss their deadlines by waiting for another launch, the first whose
 * session owes nothing: whoever has always something urgent, and is in debt, is in nobody's way.
 * Once between two turns of a session, which has other things to do as well. Else the first of all,
 * if it may jump. *ret_next_nsec: when one more becomes urgent. */
static struct sched_item *urgent(const struct sched *sched, uint64_t free_nsec,
                                 uint64_t *ret_next_nsec)
{
    uint64_t until_nsec = free_nsec + SCHED_URGENT_NSEC;
    uint64_t later_nsec;
    struct deadline *deadline =
        deadlines_find(&sched->deadlines, until_nsec, is_owed, sched, &later_nsec);
    *ret_next_nsec = later_nsec == UINT64_MAX ? UINT64_MAX : later_nsec - SCHED_URGENT_NSEC;
    if (deadline != NULL) {
        return LIST_OWNER(deadline, struct sched_item, deadline);
    }
    deadline = deadlines_first(&sched->deadlines);
    if (deadline == NULL || deadline->at_nsec > until_nsec) {
        return NULL;
    }
    struct sched_item *item = LIST_OWNER(deadline, struct sched_item, deadline);
    return may_jump(sched, item) ? item : NULL;
}

/* A launch of decode begins: flight's node and rows are those of the items. */
static void begin_flight(struct sched *sched, struct sched_flight *flight,
                         struct sched_item *const *items, uint32_t n_items, uint64_t now_nsec)
{
    struct route_node *node = flight->node;
    flight->expected_nsec = node != NULL ? cost_nsec(&node->cost, flight->n_rows) : 0;
    take_off(sched, flight, now_nsec);
    turns_charge(sched, items, n_items, flight->n_rows, flight->expected_nsec);
    for (uint32_t i = 0; i < n_items; i++) {
        items[i]->session->run_end_nsec = sched->free_nsec;
    }
    if (node != NULL && node->ring != NULL) {
        ahead_launched(&node->ring->ahead, node->ring->n_nodes, now_nsec);
    }
}

static uint32_t launch_queue(struct sched *sched, const struct rendezvous *choice,
                             uint64_t now_nsec, struct sched_item **ret_items,
                             struct sched_verdict *ret_verdict)
{
    struct sched_flight flight = {.node = choice->queue->node};
    uint32_t n_items = sched_fill(sched, choice->queue, ret_items, &flight.n_rows);
    bool is_full =
        n_items == sched->limits.batch_items_max || flight.n_rows >= sched->limits.rows_max;
    ret_items[0]->session->has_jumped = false;
    begin_flight(sched, &flight, ret_items, n_items, now_nsec);
    ret_verdict->n_rows = flight.n_rows;
    ret_verdict->close = is_full ? SCHED_CLOSE_FULL : choice->close;
    sched->stats.n_closed[ret_verdict->close]++;
    return n_items;
}

void sched_taken(struct sched *sched, struct sched_item *const *items, uint32_t n_items,
                 uint64_t now_nsec)
{
    struct sched_flight flight = {.node = items[0]->stream->queue->node};
    end_idleness(sched, now_nsec);
    turns_pass(sched);
    for (uint32_t i = 0; i < n_items; i++) {
        GD_ASSERT(items[i]->state == SCHED_QUEUED && items[i]->weight_key == items[0]->weight_key);
        flight.n_rows += items[i]->n_rows;
        sched_unlink(sched, items[i], SCHED_TAKEN);
    }
    begin_flight(sched, &flight, items, n_items, now_nsec);
    sched->stats.n_closed[n_items > 1 ? SCHED_CLOSE_COMPLETE : SCHED_CLOSE_IDLE]++;
}

static uint32_t launch_chunk(struct sched *sched, bool is_alone, uint64_t now_nsec,
                             struct sched_item **ret_items, struct sched_verdict *ret_verdict)
{
    const struct sched_item *item = prefill_next(sched);
    struct route_node *node = route_node(sched->routes, item->weight_key);
    uint32_t n_rows = prefill_chunk_rows(sched, item, now_nsec);
    uint64_t expected_nsec = node != NULL ? cost_nsec(&node->cost, n_rows) : 0;
    ret_items[0] = prefill_take(sched, expected_nsec);
    struct sched_flight flight = {
        .node = node,
        .n_rows = n_rows,
        .expected_nsec = expected_nsec,
        .is_chunk = true,
        .was_waited_for = !is_alone,
    };
    take_off(sched, &flight, now_nsec);
    turns_charge(sched, ret_items, 1, ret_items[0]->n_rows, flight.expected_nsec);
    ret_verdict->n_rows = flight.n_rows;
    ret_verdict->close = SCHED_CLOSE_FULL;
    sched->stats.n_closed[SCHED_CLOSE_FULL]++;
    return 1;
}

static void hold(struct sched *sched, enum sched_hold why, uint64_t now_nsec, uint64_t until_nsec)
{
    sched->stats.n_holds[why]++;
    sched->hold_until_nsec = until_nsec;
    if (sched->n_flights == 0 && sched->idle_since_nsec == 0) {
        sched->idle_since_nsec = now_nsec;
        sched->idle_hold = why;
    }
}

/* Of the item whose deadline is near, if there is one; *ret_next_nsec as above. */
static uint32_t launch_urgent(struct sched *sched, uint64_t now_nsec, uint64_t free_nsec,
                              struct sched_item **ret_items, struct sched_verdict *ret_verdict,
                              uint64_t *ret_next_nsec)
{
    struct sched_item *item = urgent(sched, free_nsec, ret_next_nsec);
    if (item == NULL) {
        return 0;
    }
    struct sched_session *session = item->session;
    end_idleness(sched, now_nsec);
    if (item->stream != NULL) {
        list_remove(&item->stream->in_queue); /* the launch begins with it */
        list_insert_before(item->stream->queue->streams.next, &item->stream->in_queue);
        struct rendezvous choice = {item->stream->queue, .close = SCHED_CLOSE_DEADLINE};
        uint32_t n_items = launch_queue(sched, &choice, now_nsec, ret_items, ret_verdict);
        session->has_jumped = true;
        return n_items;
    }
    list_remove(&item->in_stream);
    prefill_add(sched, item, true);
    return launch_chunk(sched, false, now_nsec, ret_items, ret_verdict);
}

static uint32_t decide(struct sched *sched, uint64_t now_nsec, struct sched_item **ret_items,
                       struct sched_verdict *ret_verdict)
{
    uint64_t free_nsec = num_max(now_nsec, sched->n_flights > 0 ? sched->free_nsec : 0);
    uint64_t urgent_nsec;
    uint32_t n_items =
        launch_urgent(sched, now_nsec, free_nsec, ret_items, ret_verdict, &urgent_nsec);
    if (n_items > 0) {
        return n_items;
    }
    struct rendezvous choice;
    (void)turns_next(sched, now_nsec, free_nsec, &choice);
    bool is_alone = choice.queue == NULL;
    /* Rounds have passed meanwhile, and nobody owes anything. */
    if (is_alone) {
        n_items = launch_urgent(sched, now_nsec, free_nsec, ret_items, ret_verdict, &urgent_nsec);
    }
    if (n_items > 0) {
        return n_items;
    }
    uint64_t prefill_nsec = UINT64_MAX;
    if (prefill_may_run(sched, now_nsec, is_alone, &prefill_nsec)) {
        end_idleness(sched, now_nsec);
        return launch_chunk(sched, is_alone, now_nsec, ret_items, ret_verdict);
    }
    if (!is_alone) {
        end_idleness(sched, now_nsec);
        return launch_queue(sched, &choice, now_nsec, ret_items, ret_verdict);
    }
    bool is_for_prefill = prefill_nsec < choice.until_nsec;
    /* A prefill that is urgent already waits for what prefill is due, as the others do. */
    hold(sched, is_for_prefill ? SCHED_HOLD_PREFILL : choice.hold, now_nsec,
         num_min(urgent_nsec, num_min(prefill_nsec, choice.until_nsec)));
    return 0;
}

uint32_t sched_next(struct sched *sched, uint64_t now_nsec, struct sched_item **ret_items,
                    struct sched_verdict *ret_verdict)
{
    *ret_verdict = (struct sched_verdict){.until_nsec = UINT64_MAX};
    if (sched->n_queued == 0) {
        return 0;
    }
    if (sched->n_flights > 0 && sched->free_nsec > now_nsec + COMMIT_NSEC) {
        ret_verdict->until_nsec = sched->free_nsec - COMMIT_NSEC;
        return 0;
    }
    uint32_t n_items = 0;
    if (now_nsec >= sched->hold_until_nsec) {
        n_items = decide(sched, now_nsec, ret_items, ret_verdict);
    }
    ret_verdict->until_nsec = n_items == 0 ? sched->hold_until_nsec : now_nsec;
    return n_items;
}

void sched_stats(const struct sched *sched, struct sched_stats *ret_stats)
{
    *ret_stats = sched->stats;
    ret_stats->n_rings = route_rings(sched->routes);
    ret_stats->n_in_step = route_in_step(sched->routes);
}
