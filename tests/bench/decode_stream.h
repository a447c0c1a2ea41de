/* decode_stream.h - clients of bench-decode-stream: processes that walk over the model of
 * decode_model.h in stream order, and write down what they saw. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/bench/cuda/think.h"
#include "tests/bench/decode_model.h"
#include "tests/harness/fixture.h"

#define DECODE_CLIENTS_MAX  16u
#define DECODE_STEPS_MAX    32768u
#define DECODE_PREFILL_ROWS 4096u

/* Who batches: OWN are processes without a daemon, which launch themselves. */
enum decode_policy { DECODE_OWN, DECODE_OFF, DECODE_NATURAL, DECODE_RENDEZVOUS, DECODE_POLICIES };

struct decode_scenario {
    const char *name;
    float usec_min; /* client 0 thinks */
    float usec_max; /* the last one */
    float
        usec_slow; /* if not 0: the last one thinks so long instead, and the others as the first */
    bool has_prefill; /* the last one asks for DECODE_PREFILL_ROWS rows at a time, and does not
                         think */
};

/* What one client saw in one scenario: stamps[i] is of the thought before its i-th product. */
struct decode_record {
    uint32_t i_first; /* weight of product 0 */
    uint32_t n_steps;
    struct think_stamp stamps[DECODE_STEPS_MAX];
};

enum decode_state { DECODE_RUNS, DECODE_IS_OVER };

/* Shared by all processes. */
struct decode_board {
    atomic_uint n_arrived;   /* at all meetings so far */
    atomic_uint state;       /* of the scenario */
    atomic_bool has_weights; /* of those who launch themselves; client 0's */
    cudaIpcMemHandle_t weights;
    struct decode_record records[DECODE_CLIENTS_MAX];
};

/* What all processes of one run know. */
struct decode_run {
    struct decode_board *board;
    const struct fixture *fixture; /* the daemon; not of OWN */
    const struct decode_shape *shape;
    enum decode_policy policy;
    uint32_t n_clients;
    uint32_t n_thoughts; /* of a kernel: 1 to THOUGHTS_MAX; not of OWN */
    bool is_early;       /* each kernel of a client is in its place in time */
    const struct decode_scenario *scenarios;
    uint32_t n_scenarios;
};

/* decode_think_usec() - how long that client thinks. decode_is_prefilling() - or does it not? */
float decode_think_usec(const struct decode_run *run, const struct decode_scenario *scenario,
                        uint32_t i_client);
bool decode_is_prefilling(const struct decode_run *run, const struct decode_scenario *scenario,
                          uint32_t i_client);

/* decode_meet() - all clients and the parent, before and after each scenario: returns when all have
 * come. *n_meetings: 0 at first. */
void decode_meet(const struct decode_run *run, uint32_t *n_meetings);

/* decode_client_run() - one client's life, in a process of its own. Exit status. */
int decode_client_run(const struct decode_run *run, uint32_t i_client);
