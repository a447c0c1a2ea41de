/* bench-service.c - what the service costs and brings, through the real daemon with its default
 * configuration.
 *
 *   round trips   one row of a tiny weight, one at a time: what is measured is the way there and
 *                 back. Both paths take turns of TURN_ROUNDS, so that whatever else the machine
 *                 does falls on both. The client pauses between two requests: not at all, as a
 *                 thinking decoder (busy), or so long that everybody sleeps.
 *   throughput    1, 4 and 16 client processes, each one row at a time on one int4 weight. Two
 *                 daemons, batching on and off, take turns as well; an idle one uses no CPU.
 *
 * Usage: bench-service [--quick] [--device-memory]. Prints tables; tests/bench/run keeps them with
 * date and machine. On a GPU, x and y lie in host memory unless --device-memory says otherwise. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/base/num.h"
#include "tests/harness/fixture.h"
#include "tests/harness/model.h"
#include "tests/harness/percentile.h"
#include "tests/harness/status_document.h"

#define TINY_N        64u
#define TINY_K        128u
#define BIG_N         4096u
#define BIG_K         4096u
#define N_WARM_UP     200u
#define N_CLIENTS_MAX 16u
#define TURN_ROUNDS   100u
#define SPANS_MAX     9u /* of one throughput figure, which is their median */

struct span { /* of the clients of one measurement */
    atomic_uint n_ready;
    atomic_bool is_started;
    atomic_bool is_over;
    _Atomic uint64_t n_products;
};

struct request {
    gemmd_client_t *client;
    gemmd_weight_t weight;
    struct gemmd_gemm gemm;
};

static int (*alloc)(gemmd_client_t *client, uint32_t device_index, uint64_t size_bytes,
                    gemmd_buffer_t **ret_buffer) = gemmd_buffer_alloc_host;

static void request_init(struct request *request, const struct fixture *fixture,
                         enum gemmd_path path)
{
    memset(request, 0, sizeof(*request));
    request->client = fixture_open(fixture, path);
    request->weight = (gemmd_weight_t)GEMMD_WEIGHT_INIT;
    request->gemm = (struct gemmd_gemm)GEMMD_GEMM_INIT;
    request->gemm.m = 1;
    request->gemm.x_dtype = request->gemm.y_dtype = GEMMD_BF16;
    if (gemmd_find_weight(request->client, "bench/w", &request->weight) != GEMMD_OK ||
        alloc(request->client, 0, request->weight.k * 2ull, &request->gemm.x) != GEMMD_OK ||
        alloc(request->client, 0, request->weight.n * 2ull, &request->gemm.y) != GEMMD_OK) {
        fixture_fail(fixture, "preparing: %s", gemmd_last_error());
    }
    request->gemm.weight = &request->weight;
}

/* What the daemon says of it, in *ret_result, is part of the round trip's table. */
static void request_run(struct request *request, const struct fixture *fixture,
                        struct gemmd_result *ret_result)
{
    gemmd_ticket_t ticket;
    if (gemmd_submit(request->client, &request->gemm, 1, &ticket) != GEMMD_OK ||
        gemmd_wait(request->client, ticket, GEMMD_WAIT_FOREVER, ret_result) != GEMMD_OK) {
        fixture_fail(fixture, "a product: %s", gemmd_last_error());
    }
}

static void start(struct fixture *fixture, uint32_t n, uint32_t k, const char *config)
{
    char argument[512];
    fixture_init(fixture);
    test_gptq_write(&fixture->folder, "w", n, k, 1);
    (void)snprintf(argument, sizeof(argument), "bench=%s", temp_path(&fixture->folder, "w"));
    const struct fixture_options options = {.model = argument, .config = config};
    fixture_start(fixture, &options);
}

static void stop(struct fixture *fixture)
{
    int code = fixture_stop(fixture);
    if (code != 0) {
        fixture_fail(fixture, "the daemon ended with %d", code);
    }
    fixture_finish(fixture);
}

/* ---- round trips ---- */

struct pause {
    double seconds;
    bool is_busy; /* the client computes meanwhile; else it sleeps */
};

/* One path's times for one pause. */
struct trips {
    struct request request;
    uint32_t n;
    double *usec;
    double *run_usec; /* the daemon's launch alone */
};

static void trips_init(struct trips *trips, const struct fixture *fixture, enum gemmd_path path,
                       uint32_t n_max)
{
    *trips = (struct trips){0};
    trips->usec = calloc(n_max, sizeof(*trips->usec));
    trips->run_usec = calloc(n_max, sizeof(*trips->run_usec));
    if (trips->usec == NULL || trips->run_usec == NULL) {
        fixture_fail(fixture, "out of memory");
    }
    request_init(&trips->request, fixture, path);
}

static void trips_finish(struct trips *trips)
{
    gemmd_close(trips->request.client);
    free(trips->usec);
    free(trips->run_usec);
}

static void rest(const struct pause *pause)
{
    double end = fixture_now() + pause->seconds;
    if (!pause->is_busy) {
        fixture_sleep(pause->seconds);
    }
    while (fixture_now() < end) {
    }
}

static void run_trip(struct trips *trips, const struct fixture *fixture, const struct pause *pause)
{
    struct gemmd_result result = GEMMD_RESULT_INIT;
    if (pause->seconds > 0) {
        rest(pause);
    }
    double begin = fixture_now();
    request_run(&trips->request, fixture, &result);
    trips->usec[trips->n] = (fixture_now() - begin) * 1e6;
    trips->run_usec[trips->n++] = (double)result.run_nsec / 1e3;
}

static void print_trips(struct trips *trips, const char *label, const struct pause *pause)
{
    (void)printf("%-8s %7.0f us %-5s %8u %9.2f %9.2f %9.2f %11.2f\n", label, pause->seconds * 1e6,
                 pause->is_busy ? "busy" : "", trips->n, percentile(trips->usec, trips->n, 0),
                 percentile(trips->usec, trips->n, 50), percentile(trips->usec, trips->n, 99),
                 percentile(trips->run_usec, trips->n, 50));
}

static void compare_paths(const struct fixture *fixture, const struct pause *pause,
                          uint32_t n_rounds)
{
    static const struct pause none = {0};
    struct trips ring;
    struct trips zeromq;
    trips_init(&ring, fixture, GEMMD_PATH_RING, n_rounds + TURN_ROUNDS);
    trips_init(&zeromq, fixture, GEMMD_PATH_ZEROMQ, n_rounds + TURN_ROUNDS);
    for (uint32_t i = 0; i < TURN_ROUNDS; i++) { /* caches, and what the waits learn */
        run_trip(&ring, fixture, &none);
        run_trip(&zeromq, fixture, &none);
    }
    ring.n = zeromq.n = 0;
    while (ring.n < n_rounds) {
        for (uint32_t i = 0; i < TURN_ROUNDS; i++) {
            run_trip(&ring, fixture, pause);
        }
        for (uint32_t i = 0; i < TURN_ROUNDS; i++) {
            run_trip(&zeromq, fixture, pause);
        }
    }
    print_trips(&ring, "ring", pause);
    print_trips(&zeromq, "zeromq", pause);
    (void)printf("  zeromq / ring: %.1f at p50, %.1f at p99\n",
                 percentile(zeromq.usec, zeromq.n, 50) / percentile(ring.usec, ring.n, 50),
                 percentile(zeromq.usec, zeromq.n, 99) / percentile(ring.usec, ring.n, 99));
    (void)fflush(stdout);
    trips_finish(&ring);
    trips_finish(&zeromq);
}

static void bench_round_trips(bool is_quick)
{
    static const struct pause none = {0};
    static const struct pause thought = {.seconds = 50e-6, .is_busy = true};
    static const struct pause nap = {.seconds = 5e-3};
    struct fixture fixture;
    start(&fixture, TINY_N, TINY_K, NULL);
    (void)printf("round trip, one row of int4 g128 %ux%u\n%-8s %16s %8s %9s %9s %9s %11s\n", TINY_N,
                 TINY_K, "path", "pause before", "rounds", "min us", "p50 us", "p99 us",
                 "launch p50");
    compare_paths(&fixture, &none, is_quick ? 500 : 20000);
    compare_paths(&fixture, &thought, is_quick ? 200 : 5000);
    compare_paths(&fixture, &nap, is_quick ? 100 : 500);
    stop(&fixture);
}

/* ---- throughput ---- */

static void run_client(const struct fixture *fixture, struct span *span)
{
    struct request request;
    struct gemmd_result result = GEMMD_RESULT_INIT;
    request_init(&request, fixture, GEMMD_PATH_RING);
    request_run(&request, fixture, &result);
    atomic_fetch_add(&span->n_ready, 1);
    while (!atomic_load(&span->is_started)) {
        fixture_sleep(0.001);
    }
    uint64_t n_products = 0;
    while (!atomic_load(&span->is_over)) {
        request_run(&request, fixture, &result);
        n_products++;
    }
    atomic_fetch_add(&span->n_products, n_products);
    gemmd_close(request.client);
}

/* Products a second of n_clients processes together. */
static double run_clients(const struct fixture *fixture, struct span *span, uint32_t n_clients,
                          double seconds)
{
    memset(span, 0, sizeof(*span));
    for (uint32_t i = 0; i < n_clients; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            run_client(fixture, span);
            _exit(0);
        }
        if (pid < 0) {
            fixture_fail(fixture, "fork failed");
        }
    }
    while (atomic_load(&span->n_ready) < n_clients) {
        fixture_sleep(0.001);
    }
    double begin = fixture_now();
    atomic_store(&span->is_started, true);
    fixture_sleep(seconds);
    atomic_store(&span->is_over, true);
    double took = fixture_now() - begin;
    for (uint32_t i = 0; i < n_clients; i++) {
        int child = 0;
        if (wait(&child) < 0 || child != 0) {
            fixture_fail(fixture, "a client failed");
        }
    }
    return (double)atomic_load(&span->n_products) / took;
}

/* One daemon's figures for one number of clients. */
struct rates {
    double products[SPANS_MAX]; /* a second */
    double n_requests;
    double n_launches;
};

static void add_span(struct rates *rates, uint32_t i_span, const struct fixture *fixture,
                     struct span *span, uint32_t n_clients, double seconds)
{
    struct status_counts before;
    struct status_counts after;
    status_counts_read(fixture, &before);
    rates->products[i_span] = run_clients(fixture, span, n_clients, seconds);
    status_counts_read(fixture, &after);
    rates->n_requests += (double)(after.n_ok - before.n_ok);
    rates->n_launches += (double)(after.n_launches - before.n_launches);
}

static void print_rates(const char *label, uint32_t n_clients, struct rates *rates,
                        uint32_t n_spans, double alone)
{
    double rate = percentile(rates->products, n_spans, 50);
    (void)printf("%-8s %8u %12.1f %9.2f %16.2f %10.2f\n", label, n_clients, rate,
                 rate * 2 * BIG_N * BIG_K / 1e9, rates->n_requests / rates->n_launches,
                 rate / alone);
}

static void bench_throughput(struct span *span, bool is_quick)
{
    static const uint32_t counts[] = {1, 4, N_CLIENTS_MAX};
    uint32_t n_spans = is_quick ? 1 : SPANS_MAX;
    double seconds = is_quick ? 0.2 : 0.5;
    double alone = 0;
    struct fixture on;
    struct fixture off;
    start(&on, BIG_N, BIG_K, "batching = rendezvous\n");
    start(&off, BIG_N, BIG_K, "batching = off\n");
    (void)printf("\none row at a time on int4 g128 %ux%u, median of %u spans of %.1f s\n"
                 "%-8s %8s %12s %9s %16s %10s\n",
                 BIG_N, BIG_K, n_spans, seconds, "batching", "clients", "products/s", "GFLOP/s",
                 "requests/launch", "vs 1 alone");
    for (uint32_t i = 0; i < ARRAY_LENGTH(counts); i++) {
        struct rates with = {0};
        struct rates without = {0};
        for (uint32_t j = 0; j < n_spans; j++) {
            add_span(&with, j, &on, span, counts[i], seconds);
            add_span(&without, j, &off, span, counts[i], seconds);
        }
        double off_rate = percentile(without.products, n_spans, 50);
        alone = i == 0 ? off_rate : alone;
        print_rates("on", counts[i], &with, n_spans, alone);
        print_rates("off", counts[i], &without, n_spans, alone);
        (void)printf("  on / off: %.2f\n", percentile(with.products, n_spans, 50) / off_rate);
        (void)fflush(stdout);
    }
    stop(&on);
    stop(&off);
}

int main(int argc, char **argv)
{
    bool is_quick = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            is_quick = true;
        } else if (strcmp(argv[i], "--device-memory") == 0) {
            alloc = gemmd_buffer_alloc;
        } else {
            (void)fprintf(stderr, "usage: bench-service [--quick] [--device-memory]\n");
            return 2;
        }
    }
    struct span *span =
        mmap(NULL, sizeof(*span), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (span == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    /* First what forks: a process that has used CUDA cannot. */
    bench_throughput(span, is_quick);
    bench_round_trips(is_quick);
    (void)munmap(span, sizeof(*span));
    return 0;
}
