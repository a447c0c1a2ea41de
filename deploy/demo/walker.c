/* walker.c - see walker.h. Uses nothing of gemmd but gemmd.h. */
#include "deploy/demo/walker.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "deploy/demo/values.h"

enum { ROWS_MAX = 4, START_TIMEOUT_SECONDS = 20 };

struct walker {
    const struct walk_plan *plan;
    struct walk *walk;
    gemmd_client_t *client;
    gemmd_buffer_t *x;
    gemmd_buffer_t *y;
    gemmd_weight_t *weights; /* one for each layer */
    unsigned random;
};

static double now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool complain(const char *what)
{
    fprintf(stderr, "gemmd-demo: %s: %s\n", what, gemmd_last_error());
    return false;
}

/* Looks up every layer of the checkpoint among the daemon's weights, and the room that they need.
 */
static bool find_weights(struct walker *walker, uint64_t *ret_x_elems, uint64_t *ret_y_elems)
{
    const struct checkpoint *checkpoint = walker->plan->checkpoint;
    uint64_t k_max = 0, n_max = 0;

    walker->weights = calloc(checkpoint->n_layers, sizeof(*walker->weights));
    if (!walker->weights) {
        return false;
    }
    for (size_t i = 0; i < checkpoint->n_layers; i++) {
        const struct layer *layer = &checkpoint->layers[i];
        gemmd_weight_t *weight = &walker->weights[i];
        char name[600];

        snprintf(name, sizeof(name), "%s/%s", walker->plan->model, layer->name);
        *weight = (gemmd_weight_t)GEMMD_WEIGHT_INIT;
        if (gemmd_find_weight(walker->client, name, weight) != GEMMD_OK) {
            return complain(name);
        }
        if (weight->n != layer->n || weight->k != layer->k) {
            fprintf(stderr, "gemmd-demo: %s is %u x %u in the daemon, %u x %u in the file\n", name,
                    weight->n, weight->k, layer->n, layer->k);
            return false;
        }
        k_max = layer->k > k_max ? layer->k : k_max;
        n_max = layer->n > n_max ? layer->n : n_max;
    }
    *ret_x_elems = k_max * ROWS_MAX;
    *ret_y_elems = n_max * ROWS_MAX;
    return true;
}

static bool connect_daemon(struct walker *walker)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    size_t element_bytes = value_bytes(walker->walk->dtype);
    uint64_t x_elems = 0, y_elems = 0;

    options.socket_dir = walker->plan->socket_dir;
    options.name = "gemmd-demo";
    if (gemmd_open(&options, &walker->client) != GEMMD_OK) {
        return complain("cannot connect");
    }
    if (!find_weights(walker, &x_elems, &y_elems)) {
        return false;
    }
    uint32_t device = walker->weights[0].device_index;
    if (gemmd_buffer_alloc_host(walker->client, device, x_elems * element_bytes, &walker->x) !=
            GEMMD_OK ||
        gemmd_buffer_alloc_host(walker->client, device, y_elems * element_bytes, &walker->y) !=
            GEMMD_OK) {
        return complain("no buffer");
    }
    return true;
}

static void count_result(struct walk *walk, uint32_t m, const struct gemmd_result *result)
{
    uint32_t n_sessions = result->batch_sessions;

    walk->n_gemms++;
    walk->n_rows += m;
    walk->n_launches += 1.0 / (result->batch_requests ? result->batch_requests : 1);
    walk->n_by_sessions[n_sessions <= PROCESSES_MAX ? n_sessions : PROCESSES_MAX]++;
}

/* A few rows of one layer: into x, through the daemon, out of y, checked. */
static bool multiply(struct walker *walker, size_t i_layer)
{
    const struct layer *layer = &walker->plan->checkpoint->layers[i_layer];
    const struct reference *reference = &walker->plan->references[i_layer];
    struct walk *walk = walker->walk;
    struct gemmd_result result = GEMMD_RESULT_INIT;
    struct gemmd_gemm gemm = GEMMD_GEMM_INIT;
    gemmd_ticket_t ticket;

    gemm.m = 1 + (uint32_t)rand_r(&walker->random) % ROWS_MAX;
    uint32_t i_row = (uint32_t)rand_r(&walker->random) % (REFERENCE_ROWS - gemm.m + 1);
    for (size_t i = 0; i < (size_t)gemm.m * layer->k; i++) {
        value_store(gemmd_buffer_data(walker->x), walk->dtype, i,
                    reference->x[(size_t)i_row * layer->k + i]);
    }
    gemm.weight = &walker->weights[i_layer];
    gemm.x = walker->x, gemm.x_dtype = walk->dtype;
    gemm.y = walker->y, gemm.y_dtype = walk->dtype;
    if (gemmd_submit(walker->client, &gemm, 1, &ticket) != GEMMD_OK ||
        gemmd_wait(walker->client, ticket, GEMMD_WAIT_FOREVER, &result) != GEMMD_OK) {
        return complain(layer->name);
    }
    reference_check(reference, layer, i_row, gemm.m, gemmd_buffer_data(walker->y), walk->dtype,
                    &walk->error);
    count_result(walk, gemm.m, &result);
    return true;
}

/* Waits until all walkers are connected, so that none measures an empty daemon. */
static bool wait_for_others(const struct walk_plan *plan)
{
    double deadline = now_seconds() + START_TIMEOUT_SECONDS;

    atomic_fetch_add(plan->n_ready, 1);
    while (atomic_load(plan->n_ready) < plan->n_processes) {
        if (now_seconds() > deadline) {
            fprintf(stderr, "gemmd-demo: the other processes did not connect in %d s\n",
                    START_TIMEOUT_SECONDS);
            return false;
        }
        usleep(1000);
    }
    return true;
}

static bool walk_layers(struct walker *walker)
{
    double start = now_seconds(), elapsed = 0.0;

    while (elapsed < walker->plan->seconds) {
        for (size_t i = 0; i < walker->plan->checkpoint->n_layers; i++) {
            if (!multiply(walker, i)) {
                return false;
            }
        }
        elapsed = now_seconds() - start;
    }
    walker->walk->seconds = elapsed;
    return true;
}

void walk_run(const struct walk_plan *plan, uint32_t i_process, struct walk *walk)
{
    static const enum gemmd_dtype dtypes[] = {GEMMD_BF16, GEMMD_F16, GEMMD_F32};
    struct walker walker = {.plan = plan, .walk = walk, .random = i_process + 1};

    walk->dtype = dtypes[i_process % (sizeof(dtypes) / sizeof(dtypes[0]))];
    walk->is_done = connect_daemon(&walker) && wait_for_others(plan) && walk_layers(&walker);
    gemmd_buffer_free(walker.x);
    gemmd_buffer_free(walker.y);
    gemmd_close(walker.client);
    free(walker.weights);
}
