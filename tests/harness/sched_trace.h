/* sched_trace.h - what clients of a real daemon did, for the simulation to do again: which weight
 * each asked for, how long it had thought before, and what launches of each weight took. A text
 * file:
 *
 *   # a comment
 *   row USEC           each row of a launch but the first takes so much longer
 *   weight USEC        a launch for one row of the next weight: 0, 1, 2 ...
 *   client             what follows is the next client's
 *   WEIGHT USEC        a request, and how long its client had thought before
 *
 * bench-decode --trace writes one. How long requests waited is not in it: that is what the
 * scheduler decides. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SCHED_TRACE_CLIENTS_MAX 16u
#define SCHED_TRACE_WEIGHTS_MAX 128u
#define SCHED_TRACE_STEPS_MAX   4096u

struct sched_trace_step {
    uint32_t i_weight;
    double think_usec;
};

struct sched_trace {
    double row_usec;
    uint32_t n_weights;
    double run_usec[SCHED_TRACE_WEIGHTS_MAX];
    uint32_t n_clients;
    uint32_t n_steps; /* of all clients, which lie one after the other */
    uint32_t first_step[SCHED_TRACE_CLIENTS_MAX + 1]; /* of each client; and the end */
    struct sched_trace_step steps[SCHED_TRACE_STEPS_MAX];
};

/* sched_trace_read() - false, with one line on stderr naming the file and the line, for what is no
 * trace. sched_trace_write() - false with one line on stderr; comment: one line without its end. */
bool sched_trace_read(const char *path, struct sched_trace *ret_trace);
bool sched_trace_write(const char *path, const char *comment, const struct sched_trace *trace);
