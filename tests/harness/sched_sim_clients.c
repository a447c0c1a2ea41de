/* sched_sim_clients.c - clients of the simulation: they think, ask and wait. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/random.h"
#include "tests/harness/sched_sim_internal.h"

#define EXPERT_EVERY 3u

void sim_broken(const struct sim *sim, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fprintf(stderr, "seed %llu, mode %d, %.3f us: ", (unsigned long long)sim->setup->seed,
                  (int)sim->setup->mode, (double)sim->now_nsec / SIM_USEC);
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
    va_end(arguments);
    abort();
}

double sim_random(struct sim *sim) /* in [0, 1) */
{
    return (double)(test_random(&sim->random) % (1u << 20)) / (1u << 20);
}

void sim_add_sample(const struct sim *sim, struct samples *samples, double value)
{
    if (sim->now_nsec >= sim->half_nsec && samples->n < SIM_SAMPLES_MAX) {
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
        return (uint64_t)(traced->think_usec * SIM_USEC);
    }
    double usec = client->think_usec * (1 + client->jitter * (2 * sim_random(sim) - 1));
    usec += walker->i_layer == 0 ? client->pass_think_usec : 0;
    if (client->stall_share > 0 && sim_random(sim) < client->stall_share) {
        usec += client->stall_usec;
    }
    return (uint64_t)(usec * SIM_USEC);
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
        i_layer = (uint32_t)(sim_random(sim) * sim->setup->n_layers);
    }
    uint64_t weight = model | (i_layer + 1);
    if (client->n_experts > 0 && i_layer % EXPERT_EVERY == EXPERT_EVERY - 1) {
        weight |= (uint64_t)(1 + sim_random(sim) * client->n_experts) << 16;
    }
    return weight;
}

static void begin_pass(struct sim *sim, struct walker *walker)
{
    if (walker->pass_nsec != 0 && !walker->is_prefilling) {
        double usec = (double)(sim->now_nsec - walker->pass_nsec) / SIM_USEC;
        sim_add_sample(sim, &sim->passes, usec / walker->alone_usec);
    }
    walker->pass_nsec = sim->now_nsec;
    const struct sim_client *client = walker->client;
    walker->is_prefilling = client->prefill_share > 0 && sim_random(sim) < client->prefill_share;
}

static void ask(struct sim *sim, struct walker *walker, struct asked *asked)
{
    const struct sim_client *client = walker->client;
    if (asked->item.state != SCHED_OUTSIDE) {
        sim_broken(sim, "a client asks again for what it waits for");
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
        client->hold_usec_max < 0 ? UINT64_MAX : (uint64_t)(client->hold_usec_max * SIM_USEC);
    asked->item.deadline_nsec =
        client->timeout_usec > 0 ? sim->now_nsec + (uint64_t)(client->timeout_usec * SIM_USEC) : 0;
    if (sched_push(sim->sched, &asked->item, sim->now_nsec) != SCHED_PUSHED) {
        sim_broken(sim, "the queue is full");
    }
    walker->n_open++;
    sim->n_asked++;
}

void sim_ask(struct sim *sim, struct walker *walker)
{
    if (!walker->is_here) {
        walker->is_here = true;
        sched_join(sim->sched, &walker->session);
    }
    uint32_t n_burst = walker->client->n_burst == 0 ? 1 : walker->client->n_burst;
    for (uint32_t i = 0; i < n_burst; i++) {
        ask(sim, walker, &walker->asked[i]);
    }
    walker->next_nsec = SIM_NEVER;
}

static void leave(struct sim *sim, struct walker *walker)
{
    sched_leave(sim->sched, &walker->session);
    walker->session = (struct sched_session){.deficit_nsec = 0};
    walker->is_here = false;
    walker->next_nsec = SIM_NEVER;
}

/* A request of its has ended. */
void sim_answer(struct sim *sim, struct asked *asked)
{
    struct walker *walker = &sim->walkers[asked->i_client];
    if (walker->n_open == 0) {
        sim_broken(sim, "client %u is answered twice", asked->i_client);
    }
    walker->n_open--;
    sim->n_answered++;
    if (walker->n_open > 0) {
        return;
    }
    const struct sim_client *client = walker->client;
    if (client->leave_usec > 0 && (double)sim->now_nsec / SIM_USEC >= client->leave_usec) {
        leave(sim, walker);
        return;
    }
    walker->next_nsec = sim->now_nsec + think_nsec(sim, walker);
}
