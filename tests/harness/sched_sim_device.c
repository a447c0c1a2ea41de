/* sched_sim_device.c - the device of the simulation: a stream of launches, and what is queued ahead
 * of its rows. */
#include <string.h>

#include "tests/harness/sched_sim_internal.h"

#define MOST_WAIT_NSEC 250000u /* that a launch ahead may be queued behind the one before */

static uint64_t run_nsec(const struct sim_setup *setup, uint64_t weight_key, uint32_t n_rows)
{
    const struct sched_trace *trace = setup->trace;
    double run_usec = trace != NULL ? trace->run_usec[weight_key - 1] : setup->run_usec;
    double row_usec = trace != NULL ? trace->row_usec : setup->row_usec;
    return (uint64_t)((run_usec + row_usec * (n_rows - 1)) * SIM_USEC);
}

static void check_launch(const struct sim *sim, const struct flight *flight)
{
    const struct sched_item *first = &flight->asked[0]->item;
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < flight->n_asked; i++) {
        const struct sched_item *item = &flight->asked[i]->item;
        n_rows += item->n_rows;
        if (item->weight_key != first->weight_key || item->class_key != first->class_key) {
            sim_broken(sim, "a launch of two weights");
        }
        if (item->state != SCHED_TAKEN) {
            sim_broken(sim, "a launch of what is not queued");
        }
        if (item->deadline_nsec != 0 && item->deadline_nsec < sim->now_nsec &&
            !flight->asked[i]->is_started) {
            sim_broken(sim, "launched after its deadline");
        }
    }
    if (first->n_rows <= SIM_ROWS_MAX && (n_rows > SIM_ROWS_MAX || n_rows != flight->n_rows)) {
        sim_broken(sim, "a launch of %u rows", n_rows);
    }
    if (sim->setup->mode == SCHED_OFF && flight->n_asked != 1) {
        sim_broken(sim, "a shared launch with batching off");
    }
}

static void disarm(struct sim *sim)
{
    uint64_t free_nsec =
        sim->n_flights > 0 ? sim->flights[sim->n_flights - 1].end_nsec : sim->now_nsec;
    sim->disarmed_nsec = free_nsec + (uint64_t)(sim->setup->disarm_usec * SIM_USEC);
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

void sim_arm(struct sim *sim)
{
    bool is_full = sim->n_flights == sim->setup->n_ahead;
    if (!sim->setup->may_arm || is_full ||
        !sched_ahead(sim->sched, sim->now_nsec, &sim->armed_for)) {
        return;
    }
    if (sim->armed_for.n_rows == 0 || sim->armed_for.n_rows > SIM_ROWS_MAX ||
        sim->armed_for.wait_nsec > MOST_WAIT_NSEC) {
        sim_broken(sim, "a launch ahead of %u rows", sim->armed_for.n_rows);
    }
    sim->is_armed = true;
    sim->armed_until_nsec = SIM_NEVER;
    sim->result->n_armed++;
}

void sim_launch(struct sim *sim, struct flight *flight)
{
    check_launch(sim, flight);
    bool is_fired = fire(sim, flight);
    bool is_behind = sim->n_flights > 0;
    uint64_t free_nsec = is_behind ? sim->flights[sim->n_flights - 1].end_nsec : sim->now_nsec;
    free_nsec = free_nsec > sim->disarmed_nsec ? free_nsec : sim->disarmed_nsec;
    double gap_usec = is_behind ? sim->setup->queue_usec : sim->setup->gap_usec;
    gap_usec = is_fired && sim->setup->fired_usec > 0 ? sim->setup->fired_usec : gap_usec;
    flight->start_nsec = free_nsec + (uint64_t)(gap_usec * SIM_USEC);
    flight->end_nsec = flight->start_nsec +
                       run_nsec(sim->setup, flight->asked[0]->item.weight_key, flight->n_rows);
    for (uint32_t i = 0; i < flight->n_asked; i++) {
        struct asked *asked = flight->asked[i];
        if (!asked->is_started) {
            asked->is_started = true;
            uint64_t stall_nsec = flight->start_nsec - asked->item.arrival_nsec;
            sim_add_sample(sim, &sim->stalls, (double)stall_nsec / SIM_USEC);
        }
    }
    sim->flights[sim->n_flights++] = *flight;
    if (sim->now_nsec >= sim->half_nsec) {
        sim->n_launches++;
        sim->n_rows_run += flight->n_asked;
    }
}

void sim_land(struct sim *sim)
{
    struct flight flight = sim->flights[0];
    memmove(sim->flights, sim->flights + 1, --sim->n_flights * sizeof(flight));
    uint64_t begin_nsec = flight.start_nsec; /* as a device counts it: from the end before */
    sim->last_end_nsec = flight.end_nsec;
    sched_ended(sim->sched, sim->now_nsec, flight.end_nsec - begin_nsec);
    for (uint32_t i = 0; i < flight.n_asked; i++) {
        struct asked *asked = flight.asked[i];
        if (asked->n_rows_left > SIM_ROWS_MAX) {
            asked->n_rows_left -= SIM_ROWS_MAX;
            sched_again(sim->sched, &asked->item);
            continue;
        }
        sched_done(sim->sched, &asked->item, sim->now_nsec);
        sim->walkers[asked->i_client].n_done += sim->now_nsec >= sim->half_nsec;
        sim_answer(sim, asked);
    }
}

void sim_expire_armed(struct sim *sim)
{
    if (!sim->is_armed || sim->n_flights > 0) {
        return;
    }
    if (sim->armed_until_nsec == SIM_NEVER) {
        sim->armed_until_nsec = sim->now_nsec + sim->armed_for.wait_nsec;
    }
    if (sim->now_nsec > sim->armed_until_nsec) {
        sim_broken(sim, "a launch ahead stays beyond its time");
    }
    if (sim->now_nsec == sim->armed_until_nsec) {
        disarm(sim);
    }
}
