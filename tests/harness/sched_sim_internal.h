/* sched_sim_internal.h - what the files of the simulation share: clients, a device and a clock are
 * one machine, whose parts look at each other's state.
 *
 * Floors, lowest first: sched_sim_clients.c, sched_sim_device.c, sched_sim.c. */
#pragma once

#include "tests/harness/sched_sim.h"

#define SIM_ROWS_MAX    64u
#define SIM_BURST_MAX   4u
#define SIM_SAMPLES_MAX 400000u
#define SIM_FLIGHTS_MAX 4u
#define SIM_NEVER       UINT64_MAX
#define SIM_USEC        1000.0 /* nsec */

struct asked {
    struct sched_item item; /* first: the scheduler gives its address back */
    uint32_t i_client;
    uint32_t n_rows_left;
    bool is_started;
};

struct walker {
    const struct sim_client *client;
    struct sched_session session;
    struct asked asked[SIM_BURST_MAX];
    uint32_t n_open;
    uint64_t next_nsec; /* when it asks again; SIM_NEVER: it waits */
    uint32_t i_layer;
    uint32_t i_step; /* of a trace */
    bool is_prefilling;
    bool is_here;
    uint64_t pass_nsec; /* when its pass began; 0: in its first, which it may have begun half-way */
    uint64_t n_done;
    double alone_usec; /* what a pass takes it alone */
};

struct flight {
    struct asked *asked[SIM_ROWS_MAX];
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
    struct flight flights[SIM_FLIGHTS_MAX]; /* oldest first */
    uint32_t n_flights;
    bool is_armed;
    struct sched_ahead armed_for;
    uint64_t armed_until_nsec; /* SIM_NEVER: the flight before has not ended */
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

/* ---- sched_sim_clients.c ---- */

/* sim_broken() - a promise is: say so on stderr and end the program.
 * sim_random() - a number in [0, 1).
 * sim_add_sample() - if it is of the second half of the time. */
void sim_broken(const struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
double sim_random(struct sim *sim);
void sim_add_sample(const struct sim *sim, struct samples *samples, double value);

/* sim_ask() - all that the client asks for at once, and it waits from then on.
 * sim_answer() - a request of its has ended: it thinks, waits for the others, or leaves. */
void sim_ask(struct sim *sim, struct walker *walker);
void sim_answer(struct sim *sim, struct asked *asked);

/* ---- sched_sim_device.c ---- */

/* sim_launch() - behind what is in flight, or with the launch that is armed, if that fits.
 * sim_arm() - queue the next one ahead, if the scheduler tells which.
 * sim_expire_armed() - nobody came for it in time.
 * sim_land() - the oldest flight ends now. */
void sim_launch(struct sim *sim, struct flight *flight);
void sim_arm(struct sim *sim);
void sim_expire_armed(struct sim *sim);
void sim_land(struct sim *sim);
