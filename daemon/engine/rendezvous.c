/* rendezvous.c - whom to run and whom to hold, so that sessions on one ring come into step.
 *
 * At any moment the sessions of a ring stand at different places of it, and everybody waits for a
 * different weight, so nothing can be shared. But while one is held, the others lose nothing: they
 * have the device to themselves. So somebody is chosen to be the meeting point, and everybody
 * behind it walks up to it, the last one first; who is caught up with walks along. After a pass at
 * most all share every launch. The meeting point is the place that costs the least waiting, added
 * up over all sessions: a newcomer waits for the others, not they for him.
 *
 * In step, everybody thinks a little longer or shorter, so a launch waits for those who are about
 * to come. When each is expected is known from the think times of this very step (route.h); who is
 * late beyond what he usually varies by is not waited for.
 *
 * Only a cohort takes part: the sessions of the ring for whom it pays (pace.h). The others are
 * served whenever they ask, as natural batching would.
 *
 * Costs: linear in the cohort (PACE_MAX at most) for a decision, and once in a pass the choice of
 * the cohort. */
#include "daemon/engine/sched_internal.h"

#include "ipc/base/clock.h"
#include "ipc/base/num.h"

#include "daemon/engine/pace.h"

#define PATIENCE_NSEC  (3.0f * CLOCK_NSEC_PER_USEC) /* beyond what a think time varies by */
#define PLAN_STEPS_MIN 256u                         /* of all, from one choice to the next */
#define COST_SAMPLES   32u                          /* nodes looked at for the mean launch */

/* The sessions at one place of the ring: whose next launch is of that weight. */
struct place {
    uint32_t i_ring;
    uint32_t n_waiting;
    uint32_t n_coming;
    struct sched_queue *queue;
    uint64_t soonest_nsec;  /* when the first of the coming ones should be here */
    uint64_t patience_nsec; /* ... and when he is late */
    uint64_t due_nsec;      /* when the first of the waiting ones may be held no longer */
};

struct field {
    struct place places[PACE_MAX]; /* sorted by i_ring */
    uint32_t n;
    uint32_t n_sessions;
    uint32_t n_waiting;
    uint32_t n_nodes;  /* of the ring */
    uint64_t due_nsec; /* of the first that may be held no longer */
};

static struct sched_session *session_in(struct list *in_ring)
{
    return LIST_OWNER(in_ring, struct sched_session, walker.in_ring);
}

/* ---- the cohort ---- */

static void mean_runs(const struct route_ring *ring, struct pace_runs *ret_runs)
{
    *ret_runs = (struct pace_runs){{0}};
    const struct route_node *node = ring->first;
    uint32_t n = ring->n_nodes < COST_SAMPLES ? ring->n_nodes : COST_SAMPLES;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t bucket = 0; bucket < PACE_RUNS; bucket++) {
            ret_runs->nsec[bucket] += (double)cost_nsec(&node->cost, 1u << bucket) / n;
        }
        node = node->next;
    }
}

/* Who asks for other types than the others cannot share their launches. The vote of a majority, or
 * of somebody. */
static uint32_t common_class(const struct route_ring *ring)
{
    uint32_t class_key = 0;
    uint32_t lead = 0;
    list_for_each (node, &ring->walkers) {
        const struct sched_session *session = session_in(node);
        if (lead == 0) {
            class_key = session->class_key;
        }
        lead = session->class_key == class_key ? lead + 1 : lead - 1;
    }
    return class_key;
}

/* The sessions of the ring that may be held, quickest first, PACE_MAX at most. */
static uint32_t sort_sessions(const struct route_ring *ring, struct route_walker **ret_walkers)
{
    uint32_t n = 0;
    uint32_t class_key = common_class(ring);
    list_for_each (node, &ring->walkers) {
        struct sched_session *session = session_in(node);
        struct route_walker *walker = &session->walker;
        walker->is_in_cohort = false;
        if (session->hold_nsec_max == 0 || session->class_key != class_key || n == PACE_MAX) {
            continue;
        }
        uint32_t i = n++;
        for (; i > 0 && ret_walkers[i - 1]->think_nsec > walker->think_nsec; i--) {
            ret_walkers[i] = ret_walkers[i - 1];
        }
        ret_walkers[i] = walker;
    }
    return n;
}

static void choose_cohort(struct route_ring *ring)
{
    struct route_walker *walkers[PACE_MAX];
    struct pace_session sessions[PACE_MAX];
    struct pace_runs runs;
    ring->n_steps = 0;
    uint32_t n = sort_sessions(ring, walkers);
    for (uint32_t i = 0; i < n; i++) {
        sessions[i] = (struct pace_session){(double)walkers[i]->think_nsec,
                                            (double)walkers[i]->deviation_nsec};
    }
    mean_runs(ring, &runs);
    ring->run_nsec = runs.nsec[0];
    ring->n_cohort = n < 2 ? 0 : pace_cohort(sessions, n, &runs);
    for (uint32_t i = 0; i < ring->n_cohort; i++) {
        walkers[i]->is_in_cohort = true;
    }
}

void rendezvous_plan(struct route_ring *ring)
{
    uint64_t n_steps_max = num_max((uint64_t)ring->n_nodes * ring->n_walkers, PLAN_STEPS_MIN);
    if (ring->n_steps >= n_steps_max) {
        choose_cohort(ring);
    }
}

/* ---- who is where ---- */

/* The place of that number, made where there is none. */
static struct place *place_get(struct field *field, uint32_t i_ring)
{
    uint32_t i = field->n;
    while (i > 0 && field->places[i - 1].i_ring >= i_ring) {
        i--;
    }
    if (i < field->n && field->places[i].i_ring == i_ring) {
        return &field->places[i];
    }
    for (uint32_t j = field->n++; j > i; j--) {
        field->places[j] = field->places[j - 1];
    }
    field->places[i] = (struct place){.i_ring = i_ring,
                                      .soonest_nsec = UINT64_MAX,
                                      .patience_nsec = UINT64_MAX,
                                      .due_nsec = UINT64_MAX};
    return &field->places[i];
}

/* When an item may be held no longer: one pass of its session alone, or less if it says so or would
 * miss its deadline. */
static uint64_t due_nsec(const struct route_ring *ring, const struct sched_item *item)
{
    const struct route_walker *walker = &item->session->walker;
    double pass_nsec = ring->n_nodes * (ring->run_nsec + (double)walker->think_nsec);
    uint64_t hold_nsec = num_min(item->hold_nsec_max, (uint64_t)pass_nsec);
    uint64_t at_nsec = item->arrival_nsec + hold_nsec;
    uint64_t deadline_nsec = item->deadline_nsec;
    return deadline_nsec == 0 || deadline_nsec < SCHED_URGENT_NSEC
               ? at_nsec
               : num_min(at_nsec, deadline_nsec - SCHED_URGENT_NSEC);
}

static void add_waiting(struct field *field, const struct route_ring *ring,
                        const struct sched_item *item)
{
    struct place *place = place_get(field, item->stream->queue->node->i_ring);
    place->n_waiting++;
    place->queue = item->stream->queue;
    place->due_nsec = num_min(place->due_nsec, due_nsec(ring, item));
    field->n_waiting++;
    field->n_sessions++;
    field->due_nsec = num_min(field->due_nsec, place->due_nsec);
}

void rendezvous_expect(const struct sched_session *session, uint64_t now_nsec,
                       uint64_t *ret_expected_nsec, uint64_t *ret_late_nsec)
{
    const struct route_walker *walker = &session->walker;
    uint64_t think_nsec = route_think_nsec(walker);
    uint64_t start_nsec =
        walker->n_open == 0 ? walker->idle_nsec : num_max(session->run_end_nsec, now_nsec);
    uint64_t patience_nsec = (uint64_t)(2.5f * walker->deviation_nsec + PATIENCE_NSEC);
    *ret_expected_nsec = start_nsec + think_nsec;
    *ret_late_nsec = *ret_expected_nsec + patience_nsec + think_nsec / 4;
}

static void add_coming(struct field *field, const struct sched_session *session, uint64_t now_nsec)
{
    const struct route_walker *walker = &session->walker;
    uint64_t expected_nsec, late_nsec;
    rendezvous_expect(session, now_nsec, &expected_nsec, &late_nsec);
    if (now_nsec >= late_nsec) {
        return; /* away: nobody waits for him */
    }
    struct place *place = place_get(field, (walker->at->i_ring + 1) % field->n_nodes);
    place->n_coming++;
    if (late_nsec < place->patience_nsec) {
        place->soonest_nsec = expected_nsec;
        place->patience_nsec = late_nsec;
    }
    field->n_sessions++;
}

bool rendezvous_has(const struct sched_session *session)
{
    const struct sched_item *item = sched_oldest(session);
    const struct route_node *node = item != NULL ? item->stream->queue->node : NULL;
    return session->walker.is_in_cohort && node != NULL && node->ring == session->walker.ring;
}

static void survey(const struct route_ring *ring, uint64_t now_nsec, struct field *ret_field)
{
    ret_field->n = 0;
    ret_field->n_sessions = 0;
    ret_field->n_waiting = 0;
    ret_field->n_nodes = ring->n_nodes;
    ret_field->due_nsec = UINT64_MAX;
    list_for_each (node, &ring->walkers) {
        const struct sched_session *session = session_in(node);
        if (rendezvous_has(session)) {
            add_waiting(ret_field, ring, sched_oldest(session));
        } else if (session->walker.is_in_cohort && list_is_empty(&session->queued)) {
            add_coming(ret_field, session, now_nsec);
        }
    }
}

/* ---- where to meet ---- */

static uint32_t after(const struct field *field, uint32_t i)
{
    return i + 1 < field->n ? i + 1 : 0;
}

/* How far the last one has to walk to place i. */
static int64_t way_to(const struct field *field, uint32_t i)
{
    uint32_t from = field->places[after(field, i)].i_ring;
    uint32_t to = field->places[i].i_ring;
    return to >= from ? to - from : to + field->n_nodes - from;
}

/* The place where waiting costs the least. The last one, just after it on the ring, walks all the
 * way; everybody else waits as long as he is farther away. With N sessions at p[j], n[j] each, that
 * is N * way - sum of n[j] * distance(j), which the sums below tell for every place in turn. */
static uint32_t meeting_place(const struct field *field)
{
    int64_t n_all = field->n_sessions;
    int64_t sum = 0;
    for (uint32_t i = 0; i < field->n; i++) {
        const struct place *place = &field->places[i];
        sum += (int64_t)(place->n_waiting + place->n_coming) * place->i_ring;
    }
    uint32_t best = 0;
    int64_t best_cost = INT64_MAX;
    int64_t n_so_far = 0;
    for (uint32_t i = 0; i < field->n; i++) {
        const struct place *place = &field->places[i];
        n_so_far += place->n_waiting + place->n_coming;
        int64_t distances = n_all * place->i_ring - sum + field->n_nodes * (n_all - n_so_far);
        int64_t cost = n_all * way_to(field, i) - distances;
        if (cost < best_cost) {
            best = i;
            best_cost = cost;
        }
    }
    return best;
}

/* ---- decisions ---- */

static void run(const struct place *place, enum sched_close close, struct rendezvous *ret_choice)
{
    *ret_choice =
        (struct rendezvous){.queue = place->queue, .close = close, .n_running = place->n_waiting};
}

static enum sched_close close_of(const struct place *place)
{
    if (place->n_coming > 0) {
        return SCHED_CLOSE_WINDOW;
    }
    return place->n_waiting > 1 ? SCHED_CLOSE_COMPLETE : SCHED_CLOSE_IDLE;
}

/* The waiting ones that may be held no longer, if there are any. */
static const struct place *overdue(const struct field *field, uint64_t now_nsec)
{
    const struct place *first = NULL;
    for (uint32_t i = 0; i < field->n; i++) {
        const struct place *place = &field->places[i];
        if (place->n_waiting > 0 && place->due_nsec <= now_nsec &&
            (first == NULL || place->due_nsec < first->due_nsec)) {
            first = place;
        }
    }
    return first;
}

/* From the last one up to the meeting place: the first that waits runs, unless one of those behind
 * it will be here before its launch would be over. Those at the meeting place wait for all. */
static void choose_on_the_way(const struct sched *sched, const struct field *field,
                              uint64_t free_nsec, struct rendezvous *ret_choice)
{
    uint32_t target = meeting_place(field);
    uint64_t soonest_nsec = UINT64_MAX;
    uint64_t until_nsec = UINT64_MAX;
    uint32_t n_coming = 0;
    for (uint32_t i = after(field, target);; i = after(field, i)) {
        const struct place *place = &field->places[i];
        soonest_nsec = num_min(soonest_nsec, place->soonest_nsec);
        until_nsec = num_min(until_nsec, place->patience_nsec);
        n_coming += place->n_coming;
        bool is_full = place->n_waiting > 0 && place->queue->n_rows >= sched->limits.rows_max;
        bool is_target = i == target;
        if (place->n_waiting > 0) {
            uint64_t run_nsec = cost_nsec(&place->queue->node->cost, place->queue->n_rows);
            bool is_worth_it = is_target ? n_coming > 0 : soonest_nsec <= free_nsec + run_nsec;
            if (is_full || !is_worth_it) {
                run(place, close_of(place), ret_choice);
                return;
            }
            *ret_choice = (struct rendezvous){
                .hold = is_target && field->n > 1 ? SCHED_HOLD_CATCH_UP : SCHED_HOLD_ARRIVAL,
                .until_nsec = num_min(until_nsec, field->due_nsec),
            };
            return;
        }
        if (is_target) {
            break;
        }
    }
    *ret_choice = (struct rendezvous){.until_nsec = UINT64_MAX};
}

void rendezvous_choose(struct sched *sched, struct route_ring *ring, uint64_t now_nsec,
                       uint64_t free_nsec, struct rendezvous *ret_choice)
{
    struct field field;
    survey(ring, now_nsec, &field);
    const struct place *due = overdue(&field, now_nsec);
    if (due != NULL) {
        run(due, SCHED_CLOSE_DEADLINE, ret_choice);
    } else {
        choose_on_the_way(sched, &field, free_nsec, ret_choice);
    }
    sched->stats.n_held = field.n_waiting - ret_choice->n_running;
}
