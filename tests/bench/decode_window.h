/* decode_window.h - what the clients of one scenario of bench-decode-stream did while all of them
 * were at it, out of the stamps that they wrote. */
#pragma once

#include "tests/bench/decode_stream.h"

/* Their first steps, in which the daemon learns who they are, do not count. */
#define DECODE_WARM_UP_SECONDS 0.15

/* What a pass is compared with: one of a client that is alone, and thinks so long a step. */
struct decode_unit {
    double pass_usec; /* 0: not known */
    double think_usec;
};

struct decode_values {
    double *at;
    uint64_t n;
};

struct decode_window {
    uint64_t begin_nsec;
    uint64_t end_nsec;
    double n_products;
    double fewest; /* of one client */
    double most;
    struct decode_values passes; /* us */
    struct decode_values ratios; /* over that client's alone */
    struct decode_values turns;  /* from x being ready until y is there, us */
    struct decode_values slow;   /* as ratios, of the last client only */
};

/* decode_window_init() - of the scenario that has just ended. decode_window_finish() - frees it. */
void decode_window_init(struct decode_window *window, const struct decode_run *run,
                        const struct decode_scenario *scenario, const struct decode_unit *unit);
void decode_window_finish(struct decode_window *window);

/* decode_percentile() - 0 of no values; they are sorted by it. */
double decode_percentile(struct decode_values *values, uint32_t percent);
