/* sched_sim.c - see sched_sim.h. Events are found by looking at all clients and flights: there are
 * few, and the scheduler is what is measured. */
#include <math.h>
#include <stdlib.h>

#include "tests/harness/percentile.h"
#include "tests/harness/sched_sim_internal.h"

#define ITEMS_MAX 512u
#define SLOP_USEC 1000.0 /* what a pass takes is only estimated by the scheduler */

/* ---- the loop ---- */

/* With the device free, what waits is held, and none of it for longer than it may be. */
static void check_idle(struct sim *sim)
{
    if (sim->n_flights > 0 || sched_queued(sim->sched) == 0) {
        return;
    }
    if (sim->wake_nsec == SIM_NEVER) {
        sim_broken(sim, "the device is idle, and %u requests wait for ever",
                   sched_queued(sim->sched));
    }
    for (uint32_t i = 0; i < sim->setup->n_clients; i++) {
        const struct walker *walker = &sim->walkers[i];
        for (uint32_t j = 0; j < SIM_BURST_MAX; j++) {
            const struct sched_item *item = &walker->asked[j].item;
            if (item->state != SCHED_QUEUED || item->n_rows > SIM_ROWS_MAX) {
                continue;
            }
            double held_usec = (double)(sim->now_nsec - item->arrival_nsec) / SIM_USEC;
            double bound_usec = 1.5 * walker->alone_usec + SLOP_USEC;
            if ((double)item->hold_nsec_max / SIM_USEC < bound_usec) {
                bound_usec = (double)item->hold_nsec_max / SIM_USEC + SLOP_USEC;
            }
            if (held_usec > bound_usec) {
                sim_broken(sim, "client %u is held for %.1f us with the device free, %.1f at most",
                           i, held_usec, bound_usec);
            }
            if (held_usec > sim->result->held_max_usec) {
                sim->result->held_max_usec = held_usec;
            }
        }
    }
}

static void expire(struct sim *sim)
{
    for (struct sched_item *item; (item = sched_expired(sim->sched, sim->now_nsec)) != NULL;) {
        sim->result->n_refused++;
        sim_answer(sim, (struct asked *)item);
    }
}

/* Ask the scheduler until it has nothing to start. */
static void start(struct sim *sim)
{
    sim->wake_nsec = SIM_NEVER;
    while (sim->n_flights < sim->setup->n_ahead) {
        struct sched_item *items[SIM_ROWS_MAX];
        struct sched_verdict verdict;
        struct flight flight = {.n_asked = sched_next(sim->sched, sim->now_nsec, items, &verdict)};
        if (flight.n_asked == 0) {
            sim->wake_nsec = verdict.until_nsec;
            if (sim->wake_nsec <= sim->now_nsec) {
                sim_broken(sim, "the scheduler wants to be asked again at once");
            }
            break;
        }
        flight.n_rows = verdict.n_rows;
        for (uint32_t i = 0; i < flight.n_asked; i++) {
            flight.asked[i] = (struct asked *)items[i];
        }
        if (items[0]->n_rows > SIM_ROWS_MAX && flight.asked[0]->n_rows_left < flight.n_rows) {
            flight.n_rows = flight.asked[0]->n_rows_left;
        }
        sim_launch(sim, &flight);
        sim_arm(sim);
    }
    check_idle(sim);
}

static uint64_t next_event(const struct sim *sim)
{
    uint64_t next_nsec = sim->wake_nsec;
    if (sim->n_flights > 0 && sim->flights[0].end_nsec < next_nsec) {
        next_nsec = sim->flights[0].end_nsec;
    }
    if (sim->is_armed && sim->armed_until_nsec < next_nsec) {
        next_nsec = sim->armed_until_nsec;
    }
    if (sched_deadline(sim->sched) < next_nsec) {
        next_nsec = sched_deadline(sim->sched);
    }
    for (uint32_t i = 0; i < sim->setup->n_clients; i++) {
        if (sim->walkers[i].next_nsec < next_nsec) {
            next_nsec = sim->walkers[i].next_nsec;
        }
    }
    return next_nsec;
}

static void step(struct sim *sim)
{
    uint64_t next_nsec = next_event(sim);
    if (next_nsec < sim->now_nsec) {
        next_nsec = sim->now_nsec;
    }
    sim->now_nsec = next_nsec;
    while (sim->n_flights > 0 && sim->flights[0].end_nsec <= sim->now_nsec) {
        sim_land(sim);
    }
    for (uint32_t i = 0; i < sim->setup->n_clients; i++) {
        if (sim->walkers[i].next_nsec <= sim->now_nsec) {
            sim_ask(sim, &sim->walkers[i]);
        }
    }
    expire(sim);
    start(sim);
    sim_expire_armed(sim);
}

/* ---- from start to end ---- */

static double traced_alone_usec(const struct sim_setup *setup, uint32_t i_client)
{
    const struct sched_trace *trace = setup->trace;
    const uint32_t *bounds = &trace->first_step[i_client];
    double usec = 0;
    for (uint32_t i = bounds[0]; i < bounds[1]; i++) {
        usec += trace->run_usec[trace->steps[i].i_weight] + trace->steps[i].think_usec +
                setup->gap_usec;
    }
    return usec / (bounds[1] - bounds[0]) * trace->n_weights;
}

double sim_alone_usec(const struct sim_setup *setup, const struct sim_client *client)
{
    if (setup->trace != NULL) {
        return traced_alone_usec(setup, (uint32_t)(client - setup->clients));
    }
    uint32_t n_burst = client->n_burst == 0 ? 1 : client->n_burst;
    double n_thoughts = (double)setup->n_layers / n_burst;
    double stalls_usec = client->stall_share * client->stall_usec;
    return setup->n_layers * (setup->run_usec + setup->queue_usec) +
           n_thoughts * (client->think_usec + stalls_usec + setup->gap_usec - setup->queue_usec) +
           client->pass_think_usec;
}

/* Gaps as a GPU behind a daemon has them are in what its launches took. */
void sim_setup_trace(const struct sched_trace *trace, struct sim_setup *ret_setup)
{
    *ret_setup = (struct sim_setup){
        .trace = trace, .n_layers = trace->n_weights, .n_clients = trace->n_clients};
    for (uint32_t i = 0; i < trace->n_weights; i++) {
        ret_setup->run_usec += trace->run_usec[i] / trace->n_weights;
    }
    for (uint32_t i = 0; i < trace->n_clients; i++) {
        ret_setup->clients[i] = (struct sim_client){.hold_usec_max = -1, .priority = SCHED_NORMAL};
    }
}

static void begin(struct sim *sim, const struct sim_setup *setup, struct sim_result *result)
{
    *sim = (struct sim){.setup = setup, .random = setup->seed * 2654435761u + 1, .result = result};
    *result = (struct sim_result){.per_run = 0};
    const struct sched_limits limits = {.items_max = ITEMS_MAX,
                                        .rows_max = SIM_ROWS_MAX,
                                        .batch_items_max = SIM_ROWS_MAX,
                                        .weights_max = 16384,
                                        .edges_max = 32768,
                                        .mode = setup->mode};
    sim->passes.values = calloc(SIM_SAMPLES_MAX, sizeof(double));
    sim->stalls.values = calloc(SIM_SAMPLES_MAX, sizeof(double));
    if (sched_new(&limits, &sim->sched) != 0 || sim->passes.values == NULL ||
        sim->stalls.values == NULL) {
        sim_broken(sim, "out of memory");
    }
    sim->now_nsec = 1;
    sim->wake_nsec = SIM_NEVER;
    sim->half_nsec = (uint64_t)(setup->seconds * 1e9 / 2);
    for (uint32_t i = 0; i < setup->n_clients; i++) {
        struct walker *walker = &sim->walkers[i];
        walker->client = &setup->clients[i];
        walker->alone_usec = sim_alone_usec(setup, walker->client);
        walker->next_nsec =
            (uint64_t)((walker->client->join_usec + sim_random(sim) * walker->alone_usec) *
                       SIM_USEC) +
            1;
        uint32_t n_burst = walker->client->n_burst == 0 ? 1 : walker->client->n_burst;
        walker->i_layer = walker->client->join_usec > 0
                              ? 0
                              : (uint32_t)(sim_random(sim) * setup->n_layers / n_burst) * n_burst;
        if (setup->trace != NULL) {
            walker->i_step = setup->trace->first_step[i];
            walker->i_layer = setup->trace->steps[walker->i_step].i_weight;
        }
    }
}

static double percentile_of(struct samples *samples, uint32_t percent)
{
    return percentile(samples->values, samples->n, percent);
}

static void conclude(struct sim *sim)
{
    struct sim_result *result = sim->result;
    double n_done = 0;
    double fewest = HUGE_VAL;
    double most = 0;
    for (uint32_t i = 0; i < sim->setup->n_clients; i++) {
        double n = (double)sim->walkers[i].n_done;
        result->n_done[i] = sim->walkers[i].n_done;
        n_done += n;
        fewest = n < fewest ? n : fewest;
        most = n > most ? n : most;
    }
    double usec = (double)(sim->now_nsec - sim->half_nsec) / SIM_USEC;
    result->per_run = n_done / (usec / sim->setup->run_usec);
    result->per_launch =
        (double)sim->n_rows_run / (double)(sim->n_launches + (sim->n_launches == 0));
    result->slow_to_fast = most > 0 ? fewest / most : 0;
    result->pass_p50 = percentile_of(&sim->passes, 50);
    result->pass_p99 = percentile_of(&sim->passes, 99);
    result->stall_p50_usec = percentile_of(&sim->stalls, 50);
    result->stall_p99_usec = percentile_of(&sim->stalls, 99);
    sched_stats(sim->sched, &result->stats);
}

/* Let everything in flight or queued end: nothing may be left over. */
static void drain(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->setup->n_clients; i++) {
        sim->walkers[i].next_nsec = SIM_NEVER;
    }
    sim->half_nsec = SIM_NEVER;
    for (uint32_t i = 0; sim->n_answered < sim->n_asked; i++) {
        if (next_event(sim) == SIM_NEVER || i > 100000) {
            sim_broken(sim, "%llu requests are never answered",
                       (unsigned long long)(sim->n_asked - sim->n_answered));
        }
        step(sim);
        for (uint32_t j = 0; j < sim->setup->n_clients; j++) {
            sim->walkers[j].next_nsec = SIM_NEVER;
        }
    }
    if (sched_queued(sim->sched) != 0) {
        sim_broken(sim, "%u requests are left over", sched_queued(sim->sched));
    }
}

void sim_run(const struct sim_setup *setup, struct sim_result *ret_result)
{
    struct sim *sim = malloc(sizeof(*sim));
    if (sim == NULL) {
        abort();
    }
    begin(sim, setup, ret_result);
    uint64_t end_nsec = (uint64_t)(setup->seconds * 1e9);
    while (next_event(sim) < end_nsec) {
        step(sim);
    }
    sim->now_nsec = end_nsec > sim->now_nsec ? end_nsec : sim->now_nsec;
    conclude(sim);
    drain(sim);
    (void)sched_free(sim->sched);
    free(sim->passes.values);
    free(sim->stalls.values);
    free(sim);
}
