/* decode_trace.h - what clients of a bench did, as a trace for the scheduler's simulation. */
#pragma once

#include "tests/harness/sched_trace.h"

/* One product of a client's. */
struct decode_sample {
    uint32_t i_weight;
    uint32_t n_rows;  /* of the launch */
    float think_usec; /* before it was asked for */
    float run_usec;   /* of the launch */
};

/* The samples of one client, in order. */
struct decode_samples {
    const struct decode_sample *at;
    uint32_t n;
};

/* decode_trace_make() - their steps, what launches for one row took, and what each row more did:
 * the line that fits best, the same slope for all weights. Of a weight that nobody used, the mean.
 * n_clients and their samples together must fit into a trace. */
void decode_trace_make(const struct decode_samples *clients, uint32_t n_clients, uint32_t n_weights,
                       struct sched_trace *ret_trace);
