/* sched_sim.h - the scheduler on a virtual clock, with clients that walk over the weights of a
 * model and a device that takes as long as it is told. No threads, no real time: a second takes
 * milliseconds.
 *
 * It checks as it goes, and ends the program with a line on stderr when a promise is broken: a
 * request lost or answered twice, launched beyond its deadline, held although it must not be, held
 * for longer than a pass while the device was free, a launch too large or of two weights, a device
 * left idle with nobody held; a launch
 * queued ahead that takes what it was not told of, or stays beyond its time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/sched.h"
#include "tests/harness/sched_trace.h"

#define SIM_CLIENTS_MAX 64u
#define SIM_LAYERS_MAX  512u

/* One client: thinks, asks, waits. Times in microseconds. */
struct sim_client {
    uint32_t model; /* clients of one model walk over the same weights */
    double think_usec;
    double jitter;          /* each think time is that much shorter or longer at most, as a share */
    double pass_think_usec; /* more of it at the end of each pass */
    double join_usec;       /* comes then */
    double leave_usec;      /* goes then; 0: stays */
    uint32_t n_burst;       /* requests asked for at once, for weights in a row; 0 means 1 */
    uint32_t n_experts;     /* every third weight is one of so many at random; 0: none */
    double prefill_share;   /* of passes that are one of prefill_rows rows each */
    uint32_t prefill_rows;
    bool is_random;     /* any weight next */
    double stall_share; /* of steps before which it thinks stall_usec */
    double stall_usec;
    double timeout_usec;  /* of each request; 0: none */
    double hold_usec_max; /* below 0: no bound */
    enum sched_priority priority;
};

struct sim_setup {
    enum sched_mode mode;
    const struct sched_trace *trace; /* NULL, or what the clients do instead, and launches take,
                                        again and again: the i-th what its i-th client did */
    uint32_t n_layers;
    uint32_t n_clients;
    struct sim_client clients[SIM_CLIENTS_MAX];
    double run_usec;   /* of a launch of one row ... */
    double row_usec;   /* ... and each further one */
    double gap_usec;   /* from the end of a launch to the start of one that was given out after */
    double queue_usec; /* ... or that was given out before */
    uint32_t n_ahead;  /* launches that the device takes at once */
    bool may_arm; /* launches are queued ahead of their rows, where the scheduler tells which */
    double fired_usec; /* gap_usec and queue_usec of a launch that was; 0: as of one that was not */
    double disarm_usec; /* the device is busy so long with one for which there were no rows */
    double seconds;
    uint64_t seed;
};

struct sim_result {
    double per_run;      /* requests of one row finished in the time of one launch */
    double per_launch;   /* ... and in one launch */
    double slow_to_fast; /* requests of the slowest client over those of the fastest */
    double pass_p50;     /* time of a pass over the same client's alone */
    double pass_p99;
    double stall_p50_usec; /* asked -> launched */
    double stall_p99_usec;
    double held_max_usec;             /* the longest that one was held with the device free */
    uint64_t n_done[SIM_CLIENTS_MAX]; /* in the second half of the time, as all of the above; not
                                         those that timed out */
    uint64_t n_refused;               /* timed out */
    uint64_t n_armed;                 /* launches queued ahead, since the start, and ... */
    uint64_t n_fired;                 /* ... those that got their rows */
    struct sched_stats stats;
};

/* sim_run() - the result, of the second half of the time. */
void sim_run(const struct sim_setup *setup, struct sim_result *ret_result);

/* sim_setup_trace() - the setup of a trace; mode, n_ahead, seconds and seed are the caller's to
 * fill in. */
void sim_setup_trace(const struct sched_trace *trace, struct sim_setup *ret_setup);

/* sim_alone_usec() - a pass of that client, one of the setup's, with the device to itself. */
double sim_alone_usec(const struct sim_setup *setup, const struct sim_client *client);
