/* bench-service.c - what the service costs and brings, through the real daemon.
 *
 *   round trips   one row of a tiny weight, one at a time: what is measured is the way there and
 * back throughput    1, 4 and 16 client processes, each one row at a time on one int4 weight,
 * batching on against off
 *
 * Usage: bench-service [--quick]. Prints a table; tests/bench/run keeps it with date and machine.
 */
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
#include "tests/harness/status_document.h"

#define TINY_N        64u
#define TINY_K        128u
#define BIG_N         4096u
#define BIG_K         4096u
#define N_WARM_UP     200u
#define N_CLIENTS_MAX 16u

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

static void request_init(struct request *request, const struct fixture *fixture,
                         enum gemmd_path path)
{
    memset(request, 0, sizeof(*request));
    request->client = fixture_open(fixture, path);
    request->weight.struct_bytes = sizeof(request->weight);
    request->gemm = (struct gemmd_gemm)GEMMD_GEMM_INIT;
    request->gemm.m = 1;
    request->gemm.x_dtype = request->gemm.y_dtype = GEMMD_BF16;
    if (gemmd_find_weight(request->client, "bench/w", &request->weight) != GEMMD_OK ||
        gemmd_buffer_alloc(request->client, 0, request->weight.k * 2ull, &request->gemm.x) !=
            GEMMD_OK ||
        gemmd_buffer_alloc(request->client, 0, request->weight.n * 2ull, &request->gemm.y) !=
            GEMMD_OK) {
        fixture_fail(fixture, "preparing: %s", gemmd_last_error());
    }
    request->gemm.weight = &request->weight;
}

/* What the daemon says of it, in *ret_result, is part of the round trip's table. */
static void request_run(struct request *request, const struct fixture *fixture,
                        struct gemmd_result *ret_result)
{
    gemmd_ticket_t ticket;
    ret_result->struct_bytes = sizeof(*ret_result);
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

/* ---- round trips -------------------------------------------------------------------------------
 */

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static double percentile(double *values, uint32_t n, uint32_t percent)
{
    qsort(values, n, sizeof(*values), compare_doubles);
    return values[(uint64_t)(n - 1) * percent / 100];
}

static void measure_round_trip(const struct fixture *fixture, enum gemmd_path path,
                               const char *label, uint32_t n_rounds)
{
    struct request request;
    struct gemmd_result result;
    double *usec = calloc(n_rounds, sizeof(*usec));
    double *run_usec = calloc(n_rounds, sizeof(*run_usec));
    if (usec == NULL || run_usec == NULL) {
        fixture_fail(fixture, "out of memory");
    }
    request_init(&request, fixture, path);
    for (uint32_t i = 0; i < N_WARM_UP; i++) {
        request_run(&request, fixture, &result);
    }
    for (uint32_t i = 0; i < n_rounds; i++) {
        double begin = fixture_now();
        request_run(&request, fixture, &result);
        usec[i] = (fixture_now() - begin) * 1e6;
        run_usec[i] = (double)result.run_nsec / 1e3;
    }
    (void)printf("%-10s %8u %10.2f %10.2f %10.2f %12.2f\n", label, n_rounds,
                 percentile(usec, n_rounds, 0), percentile(usec, n_rounds, 50),
                 percentile(usec, n_rounds, 99), percentile(run_usec, n_rounds, 50));
    free(usec);
    free(run_usec);
    gemmd_close(request.client);
}

/* The worker polls for 1 ms before it sleeps, so that it is awake whenever the next request comes.
 */
static void bench_round_trips(uint32_t n_rounds)
{
    struct fixture fixture;
    start(&fixture, TINY_N, TINY_K, "spin_usec = 1000\n");
    (void)printf("round trip, one row of int4 %ux%u\n%-10s %8s %10s %10s %10s %12s\n", TINY_N,
                 TINY_K, "path", "rounds", "min us", "p50 us", "p99 us", "launch p50");
    measure_round_trip(&fixture, GEMMD_PATH_RING, "ring", n_rounds);
    measure_round_trip(&fixture, GEMMD_PATH_ZEROMQ, "zeromq", n_rounds);
    stop(&fixture);
}

/* ---- throughput --------------------------------------------------------------------------------
 */

static void run_client(const struct fixture *fixture, struct span *span)
{
    struct request request;
    struct gemmd_result result;
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

static void bench_throughput(struct span *span, bool is_batching, double seconds)
{
    static const uint32_t counts[] = {1, 4, N_CLIENTS_MAX};
    struct fixture fixture;
    start(&fixture, BIG_N, BIG_K, is_batching ? "batching = yes\n" : "batching = no\n");
    for (uint32_t i = 0; i < ARRAY_LENGTH(counts); i++) {
        struct status_counts before;
        struct status_counts after;
        status_counts_read(&fixture, &before);
        double rate = run_clients(&fixture, span, counts[i], seconds);
        status_counts_read(&fixture, &after);
        double n_launches = (double)(after.n_launches - before.n_launches);
        (void)printf("%-10s %8u %12.1f %12.2f %16.2f\n", is_batching ? "on" : "off", counts[i],
                     rate, rate * 2 * BIG_N * BIG_K / 1e9,
                     (rate * seconds + counts[i]) / n_launches);
        (void)fflush(stdout);
    }
    stop(&fixture);
}

int main(int argc, char **argv)
{
    bool is_quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    if (argc > 1 && !is_quick) {
        (void)fprintf(stderr, "usage: bench-service [--quick]\n");
        return 2;
    }
    struct span *span =
        mmap(NULL, sizeof(*span), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (span == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    bench_round_trips(is_quick ? 500 : 10000);
    (void)printf("\none row at a time on int4 g128 %ux%u\n%-10s %8s %12s %12s %16s\n", BIG_N, BIG_K,
                 "batching", "clients", "products/s", "GFLOP/s", "requests/launch");
    bench_throughput(span, true, is_quick ? 0.2 : 3.0);
    bench_throughput(span, false, is_quick ? 0.2 : 3.0);
    (void)munmap(span, sizeof(*span));
    return 0;
}
