/* worker_bench.h - a worker on a bench, clients with lanes in the same process, and a gate that
 * holds the worker still, so that what meets in one batch is no matter of luck. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/engine/worker.h"
#include "tests/unit/engine/bench.h"

#define REPLIES_MAX 64u

struct worker_bench {
    struct bench bench;
    struct worker *worker;
    struct stats_worker stats;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct request_result replies[REPLIES_MAX]; /* of the ZeroMQ path, in order */
    uint32_t n_replies;
    uint64_t last_detached;
    uint32_t n_detached;
    uint32_t n_fatal;
    uint32_t n_gates; /* that the worker has been sent to, has reached, may pass */
    uint32_t n_gates_reached;
    uint32_t n_gates_open;
};

/* A client that works through a lane: its own end, and one buffer each for x and y. */
struct client {
    struct worker_bench *owner;
    struct worker_client identity;
    struct lane lane;
    struct place x;
    struct place y;
};

extern const struct worker_limits worker_bench_limits;

/* worker_bench_init() - a bench with a worker on it; worker_bench_init_on() - whose device has been
 * changed so. _finish() takes both down. */
void worker_bench_init(struct worker_bench *wb, const struct worker_limits *limits);
void worker_bench_init_on(struct worker_bench *wb, const struct worker_limits *limits,
                          void (*change)(struct device *device));
void worker_bench_finish(struct worker_bench *wb);

/* The gates: gate_send() puts one into the worker's inbox, where it will be held in a callback;
 * gate_close() also waits until it is. gate_open() lets it pass the next one. */
void gate_send(struct worker_bench *wb);
void gate_wait(struct worker_bench *wb); /* until it stands at the last gate that was sent */
void gate_close(struct worker_bench *wb);
void gate_open(struct worker_bench *wb);

/* wait_replies(), wait_detached() - until exactly n have come since the start. */
void wait_replies(struct worker_bench *wb, uint32_t n);
void wait_detached(struct worker_bench *wb, uint32_t n);

/* client_init() - attach a session. The buffers hold rows_max rows of either weight in f32. */
void client_init(struct client *client, struct worker_bench *wb, uint64_t session_id,
                 uint32_t n_entries, uint32_t rows_max);
/* client_finish() - detach, wait for it, free the buffers. */
void client_finish(struct client *client);
/* client_use() - lay x and y out for that weight: gap_elems between rows, types; y poisoned with
 * 0xff. */
void client_use(struct client *client, const struct weight *weight, uint32_t m, uint32_t gap_elems,
                enum dtype x_dtype, enum dtype y_dtype, uint32_t seed);

/* client_submit() - push into the lane. client_wait() - its next completion, within 20 s. */
void client_submit(struct client *client, const struct request_desc *desc);
struct request_result client_wait(struct client *client);
/* client_gemm() - submit x, y as they are laid out and wait. */
struct request_result client_gemm(struct client *client, const struct weight *weight, uint32_t m);
