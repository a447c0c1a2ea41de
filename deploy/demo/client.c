/* client.c - one client process of the demo, over the public C API alone. */
#include <gemmd.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "deploy/demo/demo.h"
#include "ipc/base/half.h"

struct state {
    const struct demo *demo;
    struct tally *tally;
    gemmd_client_t *client;
    gemmd_weight_t *weights; /* (n_tasks) */
    gemmd_buffer_t *x;
    gemmd_buffer_t *y;
    uint32_t random;
};

static int fail(struct state *state, const char *what)
{
    (void)snprintf(state->tally->failure, sizeof(state->tally->failure), "%s: %s", what,
                   gemmd_last_error());
    return 1;
}

static uint32_t next_random(struct state *state)
{
    state->random ^= state->random << 13;
    state->random ^= state->random >> 17;
    state->random ^= state->random << 5;
    return state->random;
}

static double now_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int find_weights(struct state *state)
{
    const struct demo *demo = state->demo;
    state->weights = calloc(demo->n_tasks, sizeof(*state->weights));
    if (!state->weights) {
        return fail(state, "out of memory");
    }
    for (size_t i = 0; i < demo->n_tasks; i++) {
        char name[512];
        (void)snprintf(name, sizeof(name), "%s/%s", demo->model, demo->tasks[i].layer->name);
        if (gemmd_find_weight(state->client, name, &state->weights[i]) != GEMMD_OK) {
            return fail(state, name);
        }
    }
    return 0;
}

/* Buffers that fit the widest layer, reused for all. */
static int share_buffers(struct state *state)
{
    uint64_t k_max = 0;
    uint64_t n_max = 0;
    for (size_t i = 0; i < state->demo->n_tasks; i++) {
        k_max = state->weights[i].k > k_max ? state->weights[i].k : k_max;
        n_max = state->weights[i].n > n_max ? state->weights[i].n : n_max;
    }
    uint64_t row = DEMO_ROWS * sizeof(float);
    if (gemmd_buffer_alloc(state->client, 0, row * k_max, &state->x) != GEMMD_OK ||
        gemmd_buffer_alloc(state->client, 0, row * n_max, &state->y) != GEMMD_OK) {
        return fail(state, "buffers");
    }
    return 0;
}

static void write_row(void *x, enum gemmd_dtype dtype, uint32_t i_row, const float *row, uint32_t k)
{
    float *wide = (float *)x + (uint64_t)i_row * k;
    uint16_t *narrow = (uint16_t *)x + (uint64_t)i_row * k;
    for (uint32_t i = 0; i < k; i++) {
        if (dtype == GEMMD_F32) {
            wide[i] = row[i];
        } else {
            narrow[i] = dtype == GEMMD_F16 ? half_from_f32(row[i]) : bf16_from_f32(row[i]);
        }
    }
}

/* Relative Frobenius error of the m rows starting at i_first of the pool. */
static double product_error(const struct task *task, const float *y, uint32_t i_first, uint32_t m)
{
    double difference = 0;
    double size = 0;
    uint32_t n_columns = task->layer->n;
    for (uint32_t i = 0; i < m; i++) {
        const double *expected = task->y + (uint64_t)((i_first + i) % DEMO_ROWS) * n_columns;
        for (uint32_t n = 0; n < n_columns; n++) {
            double delta = (double)y[(uint64_t)i * n_columns + n] - expected[n];
            difference += delta * delta;
            size += expected[n] * expected[n];
        }
    }
    return sqrt(difference / size);
}

static void count(struct state *state, const struct task *task, const struct gemmd_result *result,
                  uint32_t m, double error)
{
    struct tally *tally = state->tally;
    uint32_t n_sessions = result->batch_sessions;
    tally->n_gemms++;
    tally->n_rows += m;
    tally->n_by_sessions[n_sessions < DEMO_CLIENTS_MAX ? n_sessions : DEMO_CLIENTS_MAX]++;
    if (!(error <= tally->error_max)) { /* catches NaN as well */
        tally->error_max = error;
        (void)snprintf(tally->worst, sizeof(tally->worst), "%s", task->layer->name);
    }
}

static int one_product(struct state *state, size_t i_task)
{
    static const enum gemmd_dtype dtypes[] = {GEMMD_BF16, GEMMD_F16, GEMMD_F32};
    const struct task *task = &state->demo->tasks[i_task];
    uint32_t i_first = next_random(state) % DEMO_ROWS;
    struct gemmd_gemm gemm = GEMMD_GEMM_INIT;
    gemm.weight = &state->weights[i_task];
    gemm.m = next_random(state) % DEMO_ROWS + 1;
    gemm.x = state->x;
    gemm.x_dtype = dtypes[next_random(state) % 3];
    gemm.y = state->y;
    gemm.y_dtype = GEMMD_F32;
    for (uint32_t i = 0; i < gemm.m; i++) {
        const float *row = task->x + (uint64_t)((i_first + i) % DEMO_ROWS) * task->layer->k;
        write_row(gemmd_buffer_data(state->x), gemm.x_dtype, i, row, task->layer->k);
    }
    gemmd_ticket_t ticket;
    struct gemmd_result result;
    if (gemmd_submit(state->client, &gemm, 1, &ticket) != GEMMD_OK ||
        gemmd_wait(state->client, ticket, GEMMD_WAIT_FOREVER, &result) != GEMMD_OK) {
        return fail(state, task->layer->name);
    }
    double error = product_error(task, gemmd_buffer_data(state->y), i_first, gemm.m);
    count(state, task, &result, gemm.m, error);
    return 0;
}

static int walk(struct state *state)
{
    double end = now_seconds() + state->demo->seconds;
    int r = 0;
    while (r == 0 && now_seconds() < end) {
        for (size_t i = 0; r == 0 && i < state->demo->n_tasks; i++) {
            r = one_product(state, i);
        }
    }
    return r;
}

int demo_client(const struct demo *demo, uint32_t i_client, struct tally *tally)
{
    struct state state = {.demo = demo, .tally = tally, .random = 0x9e3779b9u * (i_client + 1)};
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    options.socket_dir = demo->socket_dir;
    options.name = "gemmd-demo";
    if (gemmd_open(&options, &state.client) != GEMMD_OK) {
        return fail(&state, "connecting");
    }
    int r = find_weights(&state);
    r = r ? r : share_buffers(&state);
    r = r ? r : walk(&state);
    gemmd_buffer_free(state.x);
    gemmd_buffer_free(state.y);
    free(state.weights);
    gemmd_close(state.client);
    return r;
}
