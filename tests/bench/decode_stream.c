/* decode_stream.c - see decode_stream.h. */
#include "tests/bench/decode_stream.h"

#include <stdio.h>

#include "tests/bench/decode_own.h"
#include "tests/harness/random.h"

#define OWN_AHEAD 128u /* launches between two waits of a client that launches itself */

float decode_think_usec(const struct decode_run *run, const struct decode_scenario *scenario,
                        uint32_t i_client)
{
    if (scenario->usec_slow > 0) {
        bool is_slow = run->n_clients > 1 && i_client == run->n_clients - 1;
        return is_slow ? scenario->usec_slow : scenario->usec_min;
    }
    float share = run->n_clients > 1 ? (float)i_client / (float)(run->n_clients - 1) : 0;
    return scenario->usec_min + (scenario->usec_max - scenario->usec_min) * share;
}

bool decode_is_prefilling(const struct decode_run *run, const struct decode_scenario *scenario,
                          uint32_t i_client)
{
    return scenario->has_prefill && run->n_clients > 1 && i_client == run->n_clients - 1;
}

void decode_meet(const struct decode_run *run, uint32_t *n_meetings)
{
    uint32_t wanted = ++*n_meetings * (run->n_clients + 1);
    atomic_fetch_add(&run->board->n_arrived, 1);
    while (atomic_load(&run->board->n_arrived) < wanted) {
        fixture_sleep(0.0005);
    }
}

static bool is_over(const struct decode_run *run)
{
    return atomic_load(&run->board->state) == DECODE_IS_OVER;
}

static bool is_good(int error, const char *what)
{
    if (error != 0) {
        (void)fprintf(stderr, "%s: %s\n", what, cudaGetErrorString((cudaError_t)error));
    }
    return error == 0;
}

struct client {
    const struct decode_run *run;
    uint32_t i_client;
    uint32_t n_weights;
    cudaStream_t cuda_stream;
    struct think_stamp *stamps; /* memory of the device */

    struct decode_own own; /* launches itself ... */

    gemmd_client_t *gemmd; /* ... or asks the daemon */
    gemmd_weight_t weights[DECODE_WEIGHTS_MAX];
    struct gemmd_gemm gemms[DECODE_WEIGHTS_MAX];
    gemmd_buffer_t *x;
    gemmd_buffer_t *y;
    gemmd_stream_t *stream;
};

static bool find_weights(struct client *client)
{
    char name[64] = "bench/";
    for (uint32_t i = 0; i < client->n_weights; i++) {
        decode_weight_name(i, name + 6, sizeof(name) - 6);
        client->weights[i] = (gemmd_weight_t)GEMMD_WEIGHT_INIT;
        if (gemmd_find_weight(client->gemmd, name, &client->weights[i]) != GEMMD_OK) {
            return false;
        }
        client->gemms[i] = (struct gemmd_gemm)GEMMD_GEMM_INIT;
        client->gemms[i].weight = &client->weights[i];
        client->gemms[i].m = 1;
        client->gemms[i].x = client->x;
        client->gemms[i].y = client->y;
        client->gemms[i].x_dtype = client->gemms[i].y_dtype = GEMMD_BF16;
    }
    return true;
}

/* The last one's buffers have to be large where it prefills. */
static uint64_t rows_of(const struct client *client)
{
    uint64_t n_rows = 1;
    for (uint32_t i = 0; i < client->run->n_scenarios; i++) {
        if (decode_is_prefilling(client->run, &client->run->scenarios[i], client->i_client)) {
            n_rows = DECODE_PREFILL_ROWS;
        }
    }
    return n_rows;
}

static bool open_daemon(struct client *client)
{
    const struct decode_run *run = client->run;
    uint64_t intermediate = run->shape->intermediate;
    uint64_t n_rows = rows_of(client);
    client->gemmd = fixture_open(run->fixture, GEMMD_PATH_RING);
    bool is_open =
        gemmd_buffer_alloc(client->gemmd, 0, 2 * n_rows * intermediate, &client->x) == GEMMD_OK &&
        gemmd_buffer_alloc(client->gemmd, 0, 4 * n_rows * intermediate, &client->y) == GEMMD_OK &&
        find_weights(client) &&
        gemmd_stream_open(client->gemmd, 0, client->cuda_stream, GEMMD_ORDER_KERNEL,
                          &client->stream) == GEMMD_OK;
    if (!is_open) {
        (void)fprintf(stderr, "client %u: %s\n", client->i_client, gemmd_last_error());
    }
    return is_open;
}

static bool open_own(struct client *client)
{
    const struct decode_run *run = client->run;
    if (client->i_client == 0) {
        bool is_shared = decode_own_init(&client->own, run->shape, 1, NULL) &&
                         decode_own_share(&client->own, &run->board->weights);
        atomic_store(&run->board->has_weights, is_shared);
        return is_shared;
    }
    while (!atomic_load(&run->board->has_weights)) {
        fixture_sleep(0.001);
    }
    return decode_own_init(&client->own, run->shape, 1, &run->board->weights);
}

static bool client_init(struct client *client, const struct decode_run *run, uint32_t i_client)
{
    *client = (struct client){
        .run = run, .i_client = i_client, .n_weights = run->shape->n_blocks * DECODE_LINEARS};
    if (!is_good(think_load(), "kernels") ||
        !is_good(cudaStreamCreateWithFlags(&client->cuda_stream, cudaStreamNonBlocking),
                 "a stream") ||
        !is_good(cudaMalloc((void **)&client->stamps, sizeof(run->board->records[0].stamps)),
                 "stamps")) {
        return false;
    }
    return run->policy == DECODE_OWN ? open_own(client) : open_daemon(client);
}

static void client_finish(struct client *client)
{
    if (client->run->policy == DECODE_OWN) {
        decode_own_finish(&client->own);
    } else {
        gemmd_stream_close(client->stream);
        gemmd_close(client->gemmd);
    }
    (void)cudaFree(client->stamps);
    (void)cudaStreamDestroy(client->cuda_stream);
}

/* As many as can be are in flight: sleep until some have ended. */
static bool ask(struct client *client, uint32_t i_weight, struct gemmd_signal *ret_signal)
{
    int r;
    while ((r = gemmd_submit_on_stream(client->stream, &client->gemms[i_weight], ret_signal)) ==
           GEMMD_BUSY) {
        fixture_sleep(0.001);
    }
    if (r != GEMMD_OK) {
        (void)fprintf(stderr, "a product: %s\n", gemmd_last_error());
    }
    return r == GEMMD_OK;
}

/* A kernel with as many thoughts as the run wants; false when something failed. */
static bool think_and_ask(struct client *client, struct decode_record *record,
                          struct thoughts *thoughts)
{
    bool is_right = true;
    for (thoughts->n = 0; is_right && thoughts->n < client->run->n_thoughts; thoughts->n++) {
        uint32_t i_step = record->n_steps + thoughts->n;
        is_right = ask(client, (record->i_first + i_step) % client->n_weights,
                       &thoughts->after[thoughts->n]);
    }
    thoughts->stamps = client->stamps + record->n_steps;
    is_right = is_right && is_good(think_enqueue(thoughts, client->cuda_stream), "a thought");
    thoughts->before = thoughts->after[thoughts->n - 1];
    record->n_steps += thoughts->n;
    return is_right;
}

/* The thought behind the last product ends the walk. */
static bool walk_with_daemon(struct client *client, float usec, struct decode_record *record)
{
    struct thoughts thoughts = {.nsec = (uint32_t)(usec * 1000), .is_early = client->run->is_early};
    bool is_right = true;
    while (is_right && !is_over(client->run) &&
           record->n_steps + client->run->n_thoughts < DECODE_STEPS_MAX) {
        is_right = think_and_ask(client, record, &thoughts);
    }
    thoughts.n = 1;
    thoughts.after[0] = (struct gemmd_signal){.ready = NULL};
    thoughts.stamps = client->stamps + record->n_steps;
    return is_right && is_good(think_enqueue(&thoughts, client->cuda_stream), "the last thought");
}

static bool walk_alone(struct client *client, float usec, struct decode_record *record)
{
    cudaEvent_t events[2];
    struct thoughts thought = {.n = 1,
                               .nsec = (uint32_t)(usec * 1000),
                               .stamps = client->stamps,
                               .is_early = client->run->is_early};
    bool is_right = true;
    for (uint32_t i = 0; i < 2; i++) {
        (void)cudaEventCreateWithFlags(&events[i], cudaEventBlockingSync | cudaEventDisableTiming);
    }
    for (; is_right && !is_over(client->run) && record->n_steps + 1 < DECODE_STEPS_MAX;
         record->n_steps++) {
        uint32_t n = record->n_steps;
        is_right = is_good(think_enqueue(&thought, client->cuda_stream), "a thought") &&
                   decode_own_enqueue(&client->own, (record->i_first + n) % client->n_weights,
                                      client->cuda_stream);
        thought.stamps++;
        if (n % OWN_AHEAD == 0) {
            cudaEvent_t event = events[n / OWN_AHEAD % 2];
            is_right = is_right && is_good(cudaEventSynchronize(event), "an event") &&
                       is_good(cudaEventRecord(event, client->cuda_stream), "an event");
        }
    }
    return is_right && is_good(think_enqueue(&thought, client->cuda_stream), "the last thought");
}

/* Products of many rows, one after the other. */
static bool prefill(struct client *client)
{
    bool is_right = true;
    for (uint32_t i = 0; is_right && !is_over(client->run); i = (i + 1) % client->n_weights) {
        struct gemmd_gemm gemm = client->gemms[i];
        gemm.m = DECODE_PREFILL_ROWS;
        is_right = gemmd_gemm(client->gemmd, &gemm) == GEMMD_OK;
    }
    if (!is_right) {
        (void)fprintf(stderr, "prefill: %s\n", gemmd_last_error());
    }
    return is_right;
}

static bool walk(struct client *client, const struct decode_scenario *scenario)
{
    const struct decode_run *run = client->run;
    struct decode_record *record = &run->board->records[client->i_client];
    uint64_t random = client->i_client * 7919 + 17;
    float usec = decode_think_usec(run, scenario, client->i_client);
    record->n_steps = 0;
    record->i_first = (uint32_t)(test_random(&random) % client->n_weights);
    if (decode_is_prefilling(run, scenario, client->i_client)) {
        return prefill(client);
    }
    bool is_right = run->policy == DECODE_OWN ? walk_alone(client, usec, record)
                                              : walk_with_daemon(client, usec, record);
    return is_right && is_good(cudaStreamSynchronize(client->cuda_stream), "a stream") &&
           is_good(cudaMemcpy(record->stamps, client->stamps,
                              (record->n_steps + 1) * sizeof(record->stamps[0]),
                              cudaMemcpyDeviceToHost),
                   "stamps");
}

int decode_client_run(const struct decode_run *run, uint32_t i_client)
{
    static struct client client;
    uint32_t n_meetings = 0;
    if (!client_init(&client, run, i_client)) {
        return 1;
    }
    for (uint32_t i = 0; i < run->n_scenarios; i++) {
        decode_meet(run, &n_meetings);
        if (!walk(&client, &run->scenarios[i])) {
            return 1;
        }
        decode_meet(run, &n_meetings);
    }
    client_finish(&client);
    return 0;
}
