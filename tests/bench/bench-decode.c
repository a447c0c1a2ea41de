/* bench-decode.c - processes that decode the same model, each for itself: what they get together,
 * and what each notices of the others.
 *
 * Every client walks over the weights of a decoder (four linear layers a block, int4 g128), one row
 * at a time, from a place of its own, and thinks between two products: computing, on its CPU. The
 * daemon runs with batching off, natural and rendezvous in turn. Columns:
 *
 *   per run      products finished in the time that one launch keeps the device busy
 *   per launch   products that shared a launch, mean
 *   pass         time of a pass over the same client's with the daemon to itself: p50, p99
 *   stall        from request to launch, us: p50, p99
 *   in step      sessions that the scheduler lets share launches
 *   slow/fast    passes of the slowest client over those of the fastest
 *
 * Usage: bench-decode [--clients N,N,...] [--seconds S] [--trace FILE]. --trace writes what the
 * first N clients did under rendezvous, thinking at random, for bench-sched to do again, and prints
 * no table. On a GPU ($GEMMD_TEST_GPU) the shapes are those of Llama-3-8B, 8 of its 32 blocks, and
 * x and y lie in device memory; elsewhere they are a hundredth of it. */
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/base/num.h"
#include "tests/bench/decode_model.h"
#include "tests/bench/decode_trace.h"
#include "tests/harness/fixture.h"
#include "tests/harness/percentile.h"
#include "tests/harness/random.h"
#include "tests/harness/status_document.h"

#define CLIENTS_MAX     16u
#define PREFILL_ROWS    4096u
#define PASSES_MAX      4096u
#define STALLS_MAX      65536u
#define TRACED_PASSES   2u
#define WARM_UP_SECONDS 0.1

static const struct decode_shape on_gpu = {8, 4096, 6144, 14336};
static const struct decode_shape on_host = {4, 512, 768, 1792};

/* How long clients think. */
struct scenario {
    const char *name;
    double usec_min;  /* client 0's */
    double usec_max;  /* the last client's */
    bool is_random;   /* or anything in between, at each step */
    bool has_prefill; /* the last client asks for PREFILL_ROWS rows at a time, and does not think */
};

static const struct scenario scenarios[] = {
    {"5 us", 5, 5, false, false},
    {"20 us", 20, 20, false, false},
    {"5..40 us by client", 5, 40, false, false},
    {"5..40 us at random", 5, 40, true, false},
    {"20 us, one prefills", 20, 20, false, true},
};
#define TRACED_SCENARIO 3u

/* What one client saw in one scenario. */
struct record {
    uint32_t n_passes;
    uint32_t n_stalls;
    uint64_t n_products;
    uint64_t n_launch_shares; /* sum of 1e6 / products in the same launch */
    double run_usec;          /* sum */
    double pass_usec[PASSES_MAX];
    float stall_usec[STALLS_MAX];
    uint32_t n_samples; /* the first TRACED_PASSES passes */
    struct decode_sample samples[TRACED_PASSES * DECODE_WEIGHTS_MAX];
};

/* Shared by all processes. */
struct board {
    atomic_uint n_arrived;
    atomic_uint state; /* of the scenario that runs: see run_scenario() */
    struct record records[CLIENTS_MAX];
    double alone_usec; /* a pass of one client that thinks as in the first scenario */
    double run_usec;   /* one of its launches, mean */
};

enum { STATE_WARM, STATE_MEASURE, STATE_OVER };

struct client {
    gemmd_client_t *gemmd;
    gemmd_weight_t weights[DECODE_WEIGHTS_MAX];
    struct gemmd_gemm gemms[DECODE_WEIGHTS_MAX];
    gemmd_buffer_t *x;
    gemmd_buffer_t *y;
    uint32_t n_weights;
    uint64_t random;
};

static struct board *board;
static const struct decode_shape *shape;
static double span_seconds = 0.3;

/* ---- a client ---- */

static void client_init(struct client *client, const struct fixture *fixture, uint32_t i_client,
                        uint32_t n_rows)
{
    char name[64] = "bench/";
    uint32_t i_device = 0;
    *client = (struct client){.n_weights = shape->n_blocks * DECODE_LINEARS,
                              .random = i_client * 7919 + 17};
    client->gemmd = fixture_open(fixture, GEMMD_PATH_RING);
    uint64_t x_bytes = 2ull * n_rows * num_max(shape->hidden, shape->intermediate);
    uint64_t y_bytes = 2ull * n_rows * num_max(shape->qkv, 2 * shape->intermediate);
    if (gemmd_buffer_alloc(client->gemmd, i_device, x_bytes, &client->x) != GEMMD_OK ||
        gemmd_buffer_alloc(client->gemmd, i_device, y_bytes, &client->y) != GEMMD_OK) {
        fixture_fail(fixture, "a buffer: %s", gemmd_last_error());
    }
    for (uint32_t i = 0; i < client->n_weights; i++) {
        decode_weight_name(i, name + 6, sizeof(name) - 6);
        client->weights[i] = (gemmd_weight_t)GEMMD_WEIGHT_INIT;
        if (gemmd_find_weight(client->gemmd, name, &client->weights[i]) != GEMMD_OK) {
            fixture_fail(fixture, "%s: %s", name, gemmd_last_error());
        }
        client->gemms[i] = (struct gemmd_gemm)GEMMD_GEMM_INIT;
        client->gemms[i].weight = &client->weights[i];
        client->gemms[i].m = 1;
        client->gemms[i].x = client->x;
        client->gemms[i].y = client->y;
        client->gemms[i].x_dtype = client->gemms[i].y_dtype = GEMMD_BF16;
    }
}

static double random_unit(struct client *client)
{
    return (double)(test_random(&client->random) % 65536) / 65536;
}

static void think(struct client *client, const struct scenario *scenario, double share)
{
    double at = scenario->is_random ? random_unit(client) : share;
    double usec = scenario->usec_min + (scenario->usec_max - scenario->usec_min) * at;
    double end = fixture_now() + usec * 1e-6;
    while (fixture_now() < end) {
    }
}

static void product(struct client *client, const struct fixture *fixture, uint32_t i_weight,
                    struct gemmd_result *ret_result)
{
    gemmd_ticket_t ticket;
    if (gemmd_submit(client->gemmd, &client->gemms[i_weight], 1, &ticket) != GEMMD_OK ||
        gemmd_wait(client->gemmd, ticket, GEMMD_WAIT_FOREVER, ret_result) != GEMMD_OK) {
        fixture_fail(fixture, "a product: %s", gemmd_last_error());
    }
}

/* From the start of a pass on. */
static void sample_product(struct record *record, uint32_t i_weight, uint32_t n_weights,
                           double think_usec, const struct gemmd_result *result)
{
    if (record->n_samples == TRACED_PASSES * n_weights ||
        (record->n_samples == 0 && i_weight != 0)) {
        return;
    }
    record->samples[record->n_samples++] =
        (struct decode_sample){.i_weight = i_weight,
                               .n_rows = result->batch_requests, /* of one row each */
                               .think_usec = (float)think_usec,
                               .run_usec = (float)result->run_nsec / 1e3f};
}

static void count_product(struct record *record, const struct gemmd_result *result)
{
    record->n_products++;
    record->n_launch_shares += 1000000 / result->batch_requests;
    record->run_usec += (double)result->run_nsec / 1e3;
    if (record->n_stalls < STALLS_MAX) {
        record->stall_usec[record->n_stalls++] = (float)result->queue_nsec / 1e3f;
    }
}

static bool is_prefilling(const struct scenario *scenario, uint32_t i_client, uint32_t n_clients)
{
    return scenario->has_prefill && n_clients > 1 && i_client == n_clients - 1;
}

/* A pass of many rows after the other, until the scenario is over. */
static void prefill(struct client *client, const struct fixture *fixture)
{
    struct gemmd_result result = GEMMD_RESULT_INIT;
    for (uint32_t i = 0; atomic_load(&board->state) != STATE_OVER;
         i = (i + 1) % client->n_weights) {
        client->gemms[i].m = PREFILL_ROWS;
        product(client, fixture, i, &result);
        client->gemms[i].m = 1;
    }
}

/* Walk until the scenario is over; passes that began and ended in the measured span count. */
static void walk(struct client *client, const struct fixture *fixture, uint32_t i_client,
                 uint32_t n_clients, const struct scenario *scenario)
{
    struct record *record = &board->records[i_client];
    double share = n_clients > 1 ? (double)i_client / (n_clients - 1) : 0;
    uint32_t i_weight = (uint32_t)(random_unit(client) * client->n_weights);
    double begin = 0;
    double last_end = fixture_now();
    struct gemmd_result result = GEMMD_RESULT_INIT;
    if (is_prefilling(scenario, i_client, n_clients)) {
        prefill(client, fixture);
        return;
    }
    for (unsigned state; (state = atomic_load(&board->state)) != STATE_OVER;) {
        if (i_weight == 0) {
            double now = fixture_now();
            if (begin != 0 && record->n_passes < PASSES_MAX) {
                record->pass_usec[record->n_passes++] = (now - begin) * 1e6;
            }
            begin = state == STATE_MEASURE ? now : 0;
        }
        double think_usec = (fixture_now() - last_end) * 1e6;
        product(client, fixture, i_weight, &result);
        last_end = fixture_now();
        if (state == STATE_MEASURE) {
            count_product(record, &result);
            sample_product(record, i_weight, client->n_weights, think_usec, &result);
        }
        i_weight = (i_weight + 1) % client->n_weights;
        think(client, scenario, share);
    }
}

/* All clients and the parent: the n-th meeting is over when n times as many have come. */
static void meet(uint32_t n_clients, uint32_t *n_meetings)
{
    uint32_t wanted = ++*n_meetings * (n_clients + 1);
    atomic_fetch_add(&board->n_arrived, 1);
    while (atomic_load(&board->n_arrived) < wanted) {
        fixture_sleep(0.0005);
    }
}

static void run_client(const struct fixture *fixture, uint32_t i_client, uint32_t n_clients,
                       uint32_t i_first, uint32_t n_scenarios)
{
    static struct client client;
    uint32_t n_meetings = 0;
    client_init(&client, fixture, i_client, i_client == n_clients - 1 ? PREFILL_ROWS : 1);
    for (uint32_t i = 0; i < n_scenarios; i++) {
        meet(n_clients, &n_meetings);
        walk(&client, fixture, i_client, n_clients, &scenarios[i_first + i]);
        meet(n_clients, &n_meetings);
    }
    gemmd_close(client.gemmd);
}

/* ---- tables ---- */

/* What a pass takes that client alone: only its think times are others. */
static double alone_usec(uint32_t i_scenario, uint32_t i_client, uint32_t n_clients)
{
    const struct scenario *scenario = &scenarios[i_scenario];
    double share = n_clients > 1 ? (double)i_client / (n_clients - 1) : 0;
    share = scenario->is_random ? 0.5 : share;
    double think = scenario->usec_min + (scenario->usec_max - scenario->usec_min) * share;
    return board->alone_usec + (think - scenarios[0].usec_min) * shape->n_blocks * DECODE_LINEARS;
}

/* Every client's passes, over its own alone; a fresh array and its length. */
static double *gather_passes(uint32_t i_scenario, uint32_t n_clients, uint64_t *ret_n)
{
    double *values = calloc((uint64_t)CLIENTS_MAX * PASSES_MAX, sizeof(*values));
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_clients; i++) {
        for (uint32_t j = 0; j < board->records[i].n_passes; j++) {
            values[n++] = board->records[i].pass_usec[j] / alone_usec(i_scenario, i, n_clients);
        }
    }
    *ret_n = n;
    return values;
}

static double *gather_stalls(uint32_t n_clients, uint64_t *ret_n)
{
    double *values = calloc((uint64_t)CLIENTS_MAX * STALLS_MAX, sizeof(*values));
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_clients; i++) {
        for (uint32_t j = 0; j < board->records[i].n_stalls; j++) {
            values[n++] = (double)board->records[i].stall_usec[j];
        }
    }
    *ret_n = n;
    return values;
}

/* Sessions that the scheduler has brought into step. */
static int in_step(const struct fixture *fixture)
{
    json_t *document = status_document_read(fixture);
    const json_t *device = json_array_get(json_object_get(document, "devices"), 0);
    const json_t *scheduling = json_object_get(json_object_get(device, "worker"), "scheduling");
    int n = (int)json_integer_value(json_object_get(scheduling, "in_step"));
    json_decref(document);
    return n;
}

static void print_row(const char *mode, uint32_t i_scenario, uint32_t n_clients, int n_in_step)
{
    double n_products = 0, n_launches = 0, fewest = 1e300, most = 0;
    for (uint32_t i = 0; i < n_clients; i++) {
        const struct record *record = &board->records[i];
        if (is_prefilling(&scenarios[i_scenario], i, n_clients)) {
            continue;
        }
        n_products += (double)record->n_products;
        n_launches += (double)record->n_launch_shares / 1e6;
        fewest = fmin(fewest, (double)record->n_products);
        most = fmax(most, (double)record->n_products);
    }
    uint64_t n_passes, n_stalls;
    double *passes = gather_passes(i_scenario, n_clients, &n_passes);
    double *stalls = gather_stalls(n_clients, &n_stalls);
    (void)printf("%-19s %3u  %-10s %8.2f %8.2f %7.2f %7.2f %9.1f %9.1f %9.2f %7d\n",
                 scenarios[i_scenario].name, n_clients, mode,
                 n_products * board->run_usec / (span_seconds * 1e6), n_products / n_launches,
                 percentile(passes, n_passes, 50), percentile(passes, n_passes, 99),
                 percentile(stalls, n_stalls, 50), percentile(stalls, n_stalls, 99), fewest / most,
                 n_in_step);
    (void)fflush(stdout);
    free(passes);
    free(stalls);
}

/* ---- the parent ---- */

static void start(struct fixture *fixture, const char *mode)
{
    char model[512];
    char config[256];
    bool is_gpu = shape == &on_gpu;
    fixture_init(fixture);
    decode_model_write(&fixture->folder, "m", shape);
    (void)snprintf(model, sizeof(model), "bench=%s", temp_path(&fixture->folder, "m"));
    (void)snprintf(config, sizeof(config), "batching = %s\ntuning = no\n%s", mode,
                   is_gpu ? "devices = cuda:0\n" : "");
    const struct fixture_options options = {.model = model, .config = config};
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

static void run_scenario(const struct fixture *fixture, const char *mode, uint32_t i_scenario,
                         uint32_t n_clients, uint32_t *n_meetings)
{
    atomic_store(&board->state, STATE_WARM);
    memset(board->records, 0, sizeof(board->records));
    meet(n_clients, n_meetings);
    fixture_sleep(WARM_UP_SECONDS);
    atomic_store(&board->state, STATE_MEASURE);
    fixture_sleep(span_seconds);
    int n_in_step = in_step(fixture);
    atomic_store(&board->state, STATE_OVER);
    meet(n_clients, n_meetings);
    if (mode != NULL) {
        print_row(mode, i_scenario, n_clients, n_in_step);
    }
}

/* n_scenarios of them from i_first on. mode NULL: nothing is printed. */
static void run_clients(const struct fixture *fixture, const char *mode, uint32_t n_clients,
                        uint32_t i_first, uint32_t n_scenarios)
{
    uint32_t n_meetings = 0;
    atomic_store(&board->n_arrived, 0);
    for (uint32_t i = 0; i < n_clients; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* or it would wait for others for ever */
            run_client(fixture, i, n_clients, i_first, n_scenarios);
            _exit(0);
        }
        if (pid < 0) {
            fixture_fail(fixture, "fork failed");
        }
    }
    for (uint32_t i = 0; i < n_scenarios; i++) {
        run_scenario(fixture, mode, i_first + i, n_clients, &n_meetings);
    }
    for (uint32_t i = 0; i < n_clients; i++) {
        int child = 0;
        if (wait(&child) < 0 || child != 0) {
            fixture_fail(fixture, "a client failed");
        }
    }
}

/* The two units of the table, with batching off: a pass of one client alone, and what a launch
 * takes that has another one behind it all the time, which is what the device needs for it. */
static void calibrate(const struct fixture *fixture, uint32_t n_clients)
{
    struct record *first = &board->records[0];
    run_clients(fixture, NULL, 1, 0, 1);
    board->alone_usec = percentile(first->pass_usec, first->n_passes, 50);
    if (first->n_passes == 0) {
        fixture_fail(fixture, "one client alone made no pass");
    }
    run_clients(fixture, NULL, n_clients, 0, 1);
    double run_usec = 0, n_products = 0;
    for (uint32_t i = 0; i < n_clients; i++) {
        run_usec += board->records[i].run_usec;
        n_products += (double)board->records[i].n_products;
    }
    board->run_usec = run_usec / n_products;
    (void)printf(
        "alone, thinking %.0f us: %.1f us a pass; a launch keeps the device busy for %.2f us\n",
        scenarios[0].usec_min, board->alone_usec, board->run_usec);
}

/* Exit status. */
static int record_trace(const char *path, uint32_t n_clients)
{
    static struct sched_trace trace;
    struct decode_samples clients[CLIENTS_MAX];
    struct fixture fixture;
    char comment[200];
    start(&fixture, "rendezvous");
    run_clients(&fixture, NULL, n_clients, TRACED_SCENARIO, 1);
    stop(&fixture);
    for (uint32_t i = 0; i < n_clients; i++) {
        clients[i] =
            (struct decode_samples){board->records[i].samples, board->records[i].n_samples};
    }
    decode_trace_make(clients, n_clients, shape->n_blocks * DECODE_LINEARS, &trace);
    (void)snprintf(comment, sizeof(comment),
                   "bench-decode --clients %u: %u blocks of hidden %u, clients that think %s",
                   n_clients, shape->n_blocks, shape->hidden, scenarios[TRACED_SCENARIO].name);
    return sched_trace_write(path, comment, &trace) ? 0 : 1;
}

static void print_head(void)
{
    (void)printf("%u blocks of hidden %u, qkv %u, intermediate %u, int4 g128; %.1f s each\n"
                 "%-19s %3s  %-10s %8s %8s %7s %7s %9s %9s %9s %7s\n",
                 shape->n_blocks, shape->hidden, shape->qkv, shape->intermediate, span_seconds,
                 "clients think", "N", "batching", "per run", "/launch", "pass50", "pass99",
                 "stall50", "stall99", "slow/fast", "in step");
}

/* "1,2,4" into numbers; how many. */
static uint32_t parse_counts(const char *text, uint32_t *ret_counts, uint32_t n_max)
{
    uint32_t n = 0;
    for (char *end; *text != '\0' && n < n_max; text = *end == ',' ? end + 1 : end) {
        unsigned long count = strtoul(text, &end, 10);
        if (end == text || count == 0 || count > CLIENTS_MAX) {
            return 0;
        }
        ret_counts[n++] = (uint32_t)count;
    }
    return n;
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"off", "natural", "rendezvous"};
    uint32_t counts[CLIENTS_MAX] = {1, 2, 4, 8, 16};
    uint32_t n_counts = 5;
    const char *trace_path = NULL;
    shape = getenv("GEMMD_TEST_GPU") != NULL ? &on_gpu : &on_host;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--clients") == 0 && i + 1 < argc) {
            n_counts = parse_counts(argv[++i], counts, CLIENTS_MAX);
        } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            span_seconds = strtod(argv[++i], NULL);
        } else if (strcmp(argv[i], "--trace") == 0 && i + 1 < argc) {
            trace_path = argv[++i];
        } else {
            n_counts = 0;
        }
    }
    if (n_counts == 0 || !(span_seconds > 0)) {
        (void)fprintf(stderr,
                      "usage: bench-decode [--clients N,N,...] [--seconds S] [--trace FILE]\n");
        return 2;
    }
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    if (trace_path != NULL) {
        return record_trace(trace_path, counts[0]);
    }
    for (uint32_t i = 0; i < ARRAY_LENGTH(modes); i++) {
        struct fixture fixture;
        start(&fixture, modes[i]);
        if (i == 0) {
            calibrate(&fixture, counts[n_counts - 1]);
            print_head();
        }
        for (uint32_t j = 0; j < n_counts; j++) {
            run_clients(&fixture, modes[i], counts[j], 0, ARRAY_LENGTH(scenarios));
        }
        stop(&fixture);
    }
    (void)munmap(board, sizeof(*board));
    return 0;
}
