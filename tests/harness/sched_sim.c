/* sched_sim.c - see sched_sim.h. Events are found by looking at all clients and flights: there are
 * few, and the scheduler is what is measured. long because clients, device and clock are one
 * machine, whose parts look at each other's state. */
#include "tests/harness/sched_sim.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/percentile.h"
#include "tests/harness/random.h"

#define ROWS_MAX       64u
#define ITEMS_MAX      512u
#define BURST_MAX      4u
#define SAMPLES_MAX    400000u
#define NEVER          UINT64_MAX
#define USEC           1000.0
#define FLIGHTS_MAX    4u
#define SLOP_USEC      1000.0 /* what a pass takes is only estimated by the scheduler */
#define EXPERT_EVERY   3u
#define MOST_WAIT_NSEC 250000u /* that a launch ahead may be queued behind the one before */

struct asked {
    struct sched_item item; /* first: the scheduler gives its address back */
    uint32_t i_client;
    uint32_t n_rows_left;
    bool is_started;
};

struct walker {
    const struct sim_client *client;
    struct sched_session session;
    struct asked asked[BURST_MAX];
    uint32_t n_open;
    uint64_t next_nsec; /* when it asks again; NEVER: it waits */
    uint32_t i_layer;
    uint32_t i_step; /* of a trace */
    bool is_prefilling;
    bool is_here;
    uint64_t pass_nsec; /* when its pass began; 0: in its first, which it may have begun half-way */
    uint64_t n_done;
    double alone_usec; /* what a pass takes it alone */
};

struct flight {
    struct asked *asked[ROWS_MAX];
    uint32_t n_asked;
    uint32_t n_rows;
    uint64_t start_nsec;
    uint64_t end_nsec;
};

struct samples {
    double *values;
    uint32_t n;
};

struct sim {
    const struct sim_setup *setup;
    struct sched *sched;
    uint64_t random;
    uint64_t now_nsec;
    uint64_t half_nsec;
    struct walker walkers[SIM_CLIENTS_MAX];
    struct flight flights[FLIGHTS_MAX]; /* oldest first */
    uint32_t n_flights;
    bool is_armed;
    struct sched_ahead armed_for;
    uint64_t armed_until_nsec; /* NEVER: the flight before has not ended */
    uint64_t disarmed_nsec;    /* the device is busy with what was disarmed until then */
    uint64_t last_end_nsec;    /* of the flight that ended last */
    uint64_t wake_nsec;        /* when the scheduler wants to be asked again */
    uint64_t n_asked;
    uint64_t n_answered;
    uint64_t n_rows_run; /* in the second half */
    uint64_t n_launches;
    struct samples passes;
    struct samples stalls;
    struct sim_result *result;
};

static void broken(const struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

static void broken(const struct sim *sim, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fprintf(stderr, "seed %llu, mode %d, %.3f us: ", (unsigned long long)sim->setup->seed,
                  (int)sim->setup->mode, (double)sim->now_nsec / USEC);
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
    va_end(arguments);
    abort();
}

static double random_unit(struct sim *sim) /* in [0, 1) */
{
    return (double)(test_random(&sim->random) % (1u << 20)) / (1u << 20);
}

static void add_sample(const struct sim *sim, struct samples *samples, double value)
{
    if (sim->now_nsec >= sim->half_nsec && samples->n < SAMPLES_MAX) {
        samples->values[samples->n++] = value;
    }
}

/* ---- clients ---- */

/* The step of the trace that the walker is about to make; NULL without one. */
static const struct sched_trace_step *traced_step(const struct sim *sim,
                                                  const struct walker *walker)
{
    const struct sched_trace *trace = sim->setup->trace;
    return trace != NULL ? &trace->steps[walker->i_step] : NULL;
}

static void step_trace(const struct sim *sim, struct walker *walker)
{
    const uint32_t *bounds = &sim->setup->trace->first_step[walker - sim->walkers];
    walker->i_step = walker->i_step + 1 < bounds[1] ? walker->i_step + 1 : bounds[0];
    walker->i_layer = sim->setup->trace->steps[walker->i_step].i_weight;
}

static uint64_t think_nsec(struct sim *sim, const struct walker *walker)
{
    const struct sim_client *client = walker->client;
    const struct sched_trace_step *traced = traced_step(sim, walker);
    if (traced != NULL) {
        return (uint64_t)(traced->think_usec * USEC);
    }
    double usec = client->think_usec * (1 + client->jitter * (2 * random_unit(sim) - 1));
    usec += walker->i_layer == 0 ? client->pass_think_usec : 0;
    if (client->stall_share > 0 && random_unit(sim) < client->stall_share) {
        usec += client->stall_usec;
    }
    return (uint64_t)(usec * USEC);
}

/* The weight of its next request; steps on. */
static uint64_t next_weight(struct sim *sim, struct walker *walker)
{
    const struct sim_client *client = walker->client;
    uint64_t model = (uint64_t)client->model << 32;
    uint32_t i_layer = walker->i_layer;
    if (sim->setup->trace != NULL) {
        step_trace(sim, walker);
        return i_layer + 1;
    }
    walker->i_layer = (i_layer + 1) % sim->setup->n_layers;
    if (client->is_random) {
        i_layer = (uint32_t)(random_unit(sim) * sim->setup->n_layers);
    }
    uint64_t weight = model | (i_layer + 1);
    if (client->n_experts > 0 && i_layer % EXPERT_EVERY == EXPERT_EVERY - 1) {
        weight |= (uint64_t)(1 + random_unit(sim) * client->n_experts) << 16;
    }
    return weight;
}

static void begin_pass(struct sim *sim, struct walker *walker)
{
    if (walker->pass_nsec != 0 && !walker->is_prefilling) {
        double usec = (double)(sim->now_nsec - walker->pass_nsec) / USEC;
        add_sample(sim, &sim->passes, usec / walker->alone_usec);
    }
    walker->pass_nsec = sim->now_nsec;
    const struct sim_client *client = walker->client;
    walker->is_prefilling = client->prefill_share > 0 && random_unit(sim) < client->prefill_share;
}

static void ask(struct sim *sim, struct walker *walker, struct asked *asked)
{
    const struct sim_client *client = walker->client;
    if (asked->item.state != SCHED_OUTSIDE) {
        broken(sim, "a client asks again for what it waits for");
    }
    if (walker->i_layer == 0) {
        begin_pass(sim, walker);
    }
    uint32_t n_rows = walker->is_prefilling ? client->prefill_rows : 1;
    *asked = (struct asked){.i_client = (uint32_t)(walker - sim->walkers), .n_rows_left = n_rows};
    asked->item.weight_key = next_weight(sim, walker);
    asked->item.session = &walker->session;
    asked->item.n_rows = n_rows;
    asked->item.priority = client->priority;
    asked->item.hold_nsec_max =
        client->hold_usec_max < 0 ? UINT64_MAX : (uint64_t)(client->hold_usec_max * USEC);
    asked->item.deadline_nsec =
        client->timeout_usec > 0 ? sim->now_nsec + (uint64_t)(client->timeout_usec * USEC) : 0;
    if (sched_push(sim->sched, &asked->item, sim->now_nsec) != SCHED_PUSHED) {
        broken(sim, "the queue is full");
    }
    walker->n_open++;
    sim->n_asked++;
}

static void ask_burst(struct sim *sim, struct walker *walker)
{
    if (!walker->is_here) {
        walker->is_here = true;
        sched_join(sim->sched, &walker->session);
    }
    uint32_t n_burst = walker->client->n_burst == 0 ? 1 : walker->client->n_burst;
    for (uint32_t i = 0; i < n_burst; i++) {
        ask(sim, walker, &walker->asked[i]);
    }
    walker->next_nsec = NEVER;
}

static void leave(struct sim *sim, struct walker *walker)
{
    sched_leave(sim->sched, &walker->session);
    walker->session = (struct sched_session){.deficit_nsec = 0};
    walker->is_here = false;
    walker->next_nsec = NEVER;
}

/* A request of its has ended. */
static void answer(struct sim *sim, struct asked *asked)
{
    struct walker *walker = &sim->walkers[asked->i_client];
    if (walker->n_open == 0) {
        broken(sim, "client %u is answered twice", asked->i_client);
    }
    walker->n_open--;
    sim->n_answered++;
    if (walker->n_open > 0) {
        return;
    }
    const struct sim_client *client = walker->client;
    if (client->leave_usec > 0 && (double)sim->now_nsec / USEC >= client->leave_usec) {
        leave(sim, walker);
        return;
    }
    walker->next_nsec = sim->now_nsec + think_nsec(sim, walker);
}

/* ---- device ---- */

static uint64_t run_nsec(const struct sim_setup *setup, uint64_t weight_key, uint32_t n_rows)
{
    const struct sched_trace *trace = setup->trace;
    double run_usec = trace != NULL ? trace->run_usec[weight_key - 1] : setup->run_usec;
    double row_usec = trace != NULL ? trace->row_usec : setup->row_usec;
    return (uint64_t)((run_usec + row_usec * (n_rows - 1)) * USEC);
}

static void check_launch(const struct sim *sim, const struct flight *flight)
{
    const struct sched_item *first = &flight->asked[0]->item;
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < flight->n_asked; i++) {
        const struct sched_item *item = &flight->asked[i]->item;
        n_rows += item->n_rows;
        if (item->weight_key != first->weight_key || item->class_key != first->class_key) {
            broken(sim, "a launch of two weights");
        }
        if (item->state != SCHED_TAKEN) {
            broken(sim, "a launch of what is not queued");
        }
        if (item->deadline_nsec != 0 && item->deadline_nsec < sim->now_nsec &&
            !flight->asked[i]->is_started) {
            broken(sim, "launched after its deadline");
        }
    }
    if (first->n_rows <= ROWS_MAX && (n_rows > ROWS_MAX || n_rows != flight->n_rows)) {
        broken(sim, "a launch of %u rows", n_rows);
    }
    if (sim->setup->mode == SCHED_OFF && flight->n_asked != 1) {
        broken(sim, "a shared launch with batching off");
    }
}

static void disarm(struct sim *sim)
{
    uint64_t free_nsec =
        sim->n_flights > 0 ? sim->flights[sim->n_flights - 1].end_nsec : sim->now_nsec;
    sim->disarmed_nsec = free_nsec + (uint64_t)(sim->setup->disarm_usec * USEC);
    sim->is_armed = false;
    sched_ahead_missed(sim->sched);
}

/* Of the one that is armed, if there is one: does it take this launch? */
static bool fire(struct sim *sim, const struct flight *flight)
{
    const struct sched_item *first = &flight->asked[0]->item;
    if (!sim->is_armed) {
        return false;
    }
    if (first->weight_key != sim->armed_for.weight_key ||
        first->class_key != sim->armed_for.class_key || flight->n_rows > sim->armed_for.n_rows) {
        disarm(sim);
        return false;
    }
    sim->is_armed = false;
    sim->result->n_fired++;
    return true;
}

static void arm(struct sim *sim)
{
    bool is_full = sim->n_flights == sim->setup->n_ahead;
    if (!sim->setup->may_arm || is_full ||
        !sched_ahead(sim->sched, sim->now_nsec, &sim->armed_for)) {
        return;
    }
    if (sim->armed_for.n_rows == 0 || sim->armed_for.n_rows > ROWS_MAX ||
        sim->armed_for.wait_nsec > MOST_WAIT_NSEC) {
        broken(sim, "a launch ahead of %u rows", sim->armed_for.n_rows);
    }
    sim->is_armed = true;
    sim->armed_until_nsec = NEVER;
    sim->result->n_armed++;
}

static void launch(struct sim *sim, struct flight *flight)
{
    check_launch(sim, flight);
    bool is_fired = fire(sim, flight);
    bool is_behind = sim->n_flights > 0;
    uint64_t free_nsec = is_behind ? sim->flights[sim->n_flights - 1].end_nsec : sim->now_nsec;
    free_nsec = free_nsec > sim->disarmed_nsec ? free_nsec : sim->disarmed_nsec;
    double gap_usec = is_behind ? sim->setup->queue_usec : sim->setup->gap_usec;
    gap_usec = is_fired && sim->setup->fired_usec > 0 ? sim->setup->fired_usec : gap_usec;
    flight->start_nsec = free_nsec + (uint64_t)(gap_usec * USEC);
    flight->end_nsec = flight->start_nsec +
                       run_nsec(sim->setup, flight->asked[0]->item.weight_key, flight->n_rows);
    for (uint32_t i = 0; i < flight->n_asked; i++) {
        struct asked *asked = flight->asked[i];
        if (!asked->is_started) {
            asked->is_started = true;
            uint64_t stall_nsec = flight->start_nsec - asked->item.arrival_nsec;
            add_sample(sim, &sim->stalls, (double)stall_nsec / USEC);
        }
    }
    sim->flights[sim->n_flights++] = *flight;
    if (sim->now_nsec >= sim->half_nsec) {
        sim->n_launches++;
        sim->n_rows_run += flight->n_asked;
    }
}

static void land(struct sim *sim)
{
    struct flight flight = sim->flights[0];
    memmove(sim->flights, sim->flights + 1, --sim->n_flights * sizeof(flight));
    uint64_t begin_nsec = flight.start_nsec; /* as a device counts it: from the end before */
    sim->last_end_nsec = flight.end_nsec;
    sched_ended(sim->sched, sim->now_nsec, flight.end_nsec - begin_nsec);
    for (uint32_t i = 0; i < flight.n_asked; i++) {
        struct asked *asked = flight.asked[i];
        if (asked->n_rows_left > ROWS_MAX) {
            asked->n_rows_left -= ROWS_MAX;
            sched_again(sim->sched, &asked->item);
            continue;
        }
        sched_done(sim->sched, &asked->item, sim->now_nsec);
        sim->walkers[asked->i_client].n_done += sim->now_nsec >= sim->half_nsec;
        answer(sim, asked);
    }
}

/* ---- the loop ---- */

/* With the device free, what waits is held, and none of it for longer than it may be. */
static void check_idle(struct sim *sim)
{
    if (sim->n_flights > 0 || sched_queued(sim->sched) == 0) {
        return;
    }
    if (sim->wake_nsec == NEVER) {
        broken(sim, "the device is idle, and %u requests wait for ever", sched_queued(sim->sched));
    }
    for (uint32_t i = 0; i < sim->setup->n_clients; i++) {
        const struct walker *walker = &sim->walkers[i];
        for (uint32_t j = 0; j < BURST_MAX; j++) {
            const struct sched_item *item = &walker->asked[j].item;
            if (item->state != SCHED_QUEUED || item->n_rows > ROWS_MAX) {
                continue;
            }
            double held_usec = (double)(sim->now_nsec - item->arrival_nsec) / USEC;
            double bound_usec = 1.5 * walker->alone_usec + SLOP_USEC;
            if ((double)item->hold_nsec_max / USEC < bound_usec) {
                bound_usec = (double)item->hold_nsec_max / USEC + SLOP_USEC;
            }
            if (held_usec > bound_usec) {
                broken(sim, "client %u is held for %.1f us with the device free, %.1f at most", i,
                       held_usec, bound_usec);
            }
            if (held_usec > sim->result->held_max_usec) {
                sim->result->held_max_usec = held_usec;
            }
        }
    }
}

static void expire_armed(struct sim *sim)
{
    if (!sim->is_armed || sim->n_flights > 0) {
        return;
    }
    if (sim->armed_until_nsec == NEVER) {
        sim->armed_until_nsec = sim->now_nsec + sim->armed_for.wait_nsec;
    }
    if (sim->now_nsec > sim->armed_until_nsec) {
        broken(sim, "a launch ahead stays beyond its time");
    }
    if (sim->now_nsec == sim->armed_until_nsec) {
        disarm(sim);
    }
}

static void expire(struct sim *sim)
{
    for (struct sched_item *item; (item = sched_expired(sim->sched, sim->now_nsec)) != NULL;) {
        sim->result->n_refused++;
        answer(sim, (struct asked *)item);
    }
}

/* Ask the scheduler until it has nothing to start. */
static void start(struct sim *sim)
{
    sim->wake_nsec = NEVER;
    while (sim->n_flights < sim->setup->n_ahead) {
        struct sched_item *items[ROWS_MAX];
        struct sched_verdict verdict;
        struct flight flight = {.n_asked = sched_next(sim->sched, sim->now_nsec, items, &verdict)};
        if (flight.n_asked == 0) {
            sim->wake_nsec = verdict.until_nsec;
            if (sim->wake_nsec <= sim->now_nsec) {
                broken(sim, "the scheduler wants to be asked again at once");
            }
            break;
        }
        flight.n_rows = verdict.n_rows;
        for (uint32_t i = 0; i < flight.n_asked; i++) {
            flight.asked[i] = (struct asked *)items[i];
        }
        if (items[0]->n_rows > ROWS_MAX && flight.asked[0]->n_rows_left < flight.n_rows) {
            flight.n_rows = flight.asked[0]->n_rows_left;
        }
        launch(sim, &flight);
        arm(sim);
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
        land(sim);
    }
    for (uint32_t i = 0; i < sim->setup->n_clients; i++) {
        if (sim->walkers[i].next_nsec <= sim->now_nsec) {
            ask_burst(sim, &sim->walkers[i]);
        }
    }
    expire(sim);
    start(sim);
    expire_armed(sim);
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
                                        .rows_max = ROWS_MAX,
                                        .batch_items_max = ROWS_MAX,
                                        .weights_max = 16384,
                                        .edges_max = 32768,
                                        .mode = setup->mode};
    sim->passes.values = calloc(SAMPLES_MAX, sizeof(double));
    sim->stalls.values = calloc(SAMPLES_MAX, sizeof(double));
    if (sched_new(&limits, &sim->sched) != 0 || sim->passes.values == NULL ||
        sim->stalls.values == NULL) {
        broken(sim, "out of memory");
    }
    sim->now_nsec = 1;
    sim->wake_nsec = NEVER;
    sim->half_nsec = (uint64_t)(setup->seconds * 1e9 / 2);
    for (uint32_t i = 0; i < setup->n_clients; i++) {
        struct walker *walker = &sim->walkers[i];
        walker->client = &setup->clients[i];
        walker->alone_usec = sim_alone_usec(setup, walker->client);
        walker->next_nsec =
            (uint64_t)((walker->client->join_usec + random_unit(sim) * walker->alone_usec) * USEC) +
            1;
        uint32_t n_burst = walker->client->n_burst == 0 ? 1 : walker->client->n_burst;
        walker->i_layer = walker->client->join_usec > 0
                              ? 0
                              : (uint32_t)(random_unit(sim) * setup->n_layers / n_burst) * n_burst;
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
    double usec = (double)(sim->now_nsec - sim->half_nsec) / USEC;
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
        sim->walkers[i].next_nsec = NEVER;
    }
    sim->half_nsec = NEVER;
    for (uint32_t i = 0; sim->n_answered < sim->n_asked; i++) {
        if (next_event(sim) == NEVER || i > 100000) {
            broken(sim, "%llu requests are never answered",
                   (unsigned long long)(sim->n_asked - sim->n_answered));
        }
        step(sim);
        for (uint32_t j = 0; j < sim->setup->n_clients; j++) {
            sim->walkers[j].next_nsec = NEVER;
        }
    }
    if (sched_queued(sim->sched) != 0) {
        broken(sim, "%u requests are left over", sched_queued(sim->sched));
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
