/* bench-stream.c - what a dependent chain of products costs a step, in every way to order it, over
 * the same kernels launched in one process. On a GPU, with or without MPS.
 *
 * One row a step: y = x W^T on an int4 g128 layer, then a small kernel makes the next x out of y.
 * "in one process" launches the daemon's own kernel and the small one in a loop. Clients of one
 * weight run at once, begin together, and take as many steps each; a step's time is that of the
 * slowest. "submit to launch" is the daemon's figure for a request of the CPU's.
 *
 * Usage: bench-stream [N_STEPS [N_CLIENTS...]]: 1000 steps, and 1, 4 and 16 clients. Skipped (77)
 * without a GPU. The parent never uses CUDA. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gk/gk.h"
#include "ipc/base/num.h"
#include "tests/gpu/chain.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/step.h"
#include "tests/harness/model.h"
#include "tests/harness/percentile.h"

#define N             28672u
#define K             8192u
#define N_WARM_UP     50u
#define N_ROUNDS      3u
#define N_CLIENTS_MAX 16u
#define N_LATENCIES   2000u

/* Shared by all processes. */
struct figures {
    atomic_uint n_arrived; /* at all barriers so far */
    double begin[CHAIN_WAYS][N_ROUNDS][N_CLIENTS_MAX];
    double end[CHAIN_WAYS][N_ROUNDS][N_CLIENTS_MAX];
    bool has_way[CHAIN_WAYS];
    double in_process_usec;
    double queue_usec[3]; /* percentiles 50, 90, 99 */
};

static struct fixture fixture;
static struct figures *figures;
static uint32_t n_clients;
static uint32_t n_steps = 1000;

static void start(void)
{
    char argument[512];
    fixture_init(&fixture);
    test_gptq_write(&fixture.folder, "w", N, K, 1);
    (void)snprintf(argument, sizeof(argument), "bench=%s", temp_path(&fixture.folder, "w"));
    const struct fixture_options options = {.model = argument, .config = "devices = cuda:0\n"};
    fixture_start(&fixture, &options);
}

/* ---- in one process ---- */

struct alone {
    struct gk_launch gk;
    const struct gk_kernel *kernel;
    const void *x_rows[GK_BATCH_ROWS_MAX];
    void *y_rows[GK_BATCH_ROWS_MAX];
    cudaStream_t stream;
};

static bool alone_init(struct alone *alone)
{
    const struct gk_desc desc = {.n = N,
                                 .k = K,
                                 .code = GK_CODE_U4,
                                 .group_n = 1,
                                 .group_k = 128,
                                 .scale_dtype = DTYPE_F16,
                                 .bias_dtype = DTYPE_NONE};
    struct gk_problem problem = {.desc = desc,
                                 .layout = gk_layout_for(&desc, GK_DEVICE_CUDA),
                                 .m = 1,
                                 .x_dtype = DTYPE_BF16,
                                 .y_dtype = DTYPE_BF16,
                                 .cuda_arch = 90};
    struct reason why;
    void *packed, *x, *y;
    if (gk_select(&problem, &alone->kernel, &why) != 0 || alone->kernel->load() != 0) {
        (void)fprintf(stderr, "%s\n", why.text);
        return false;
    }
    uint64_t packed_bytes = problem.layout->packed_bytes(&desc);
    if (cudaMalloc(&packed, packed_bytes) != 0 || cudaMalloc(&x, K * 2) != 0 ||
        cudaMalloc(&y, N * 2) != 0 ||
        cudaMalloc(&alone->gk.workspace, alone->kernel->workspace_bytes(&problem) + 256) != 0 ||
        cudaMemset(packed, 0x11, packed_bytes) != 0 || cudaMemset(x, 0x11, K * 2) != 0 ||
        cudaStreamCreateWithFlags(&alone->stream, cudaStreamNonBlocking) != 0) {
        return false;
    }
    alone->x_rows[0] = x;
    alone->y_rows[0] = y;
    alone->gk.problem = problem;
    alone->gk.packed = packed;
    alone->gk.x_rows = alone->x_rows;
    alone->gk.y_rows = alone->y_rows;
    return true;
}

static bool child_alone(uint32_t i_child)
{
    (void)i_child;
    struct alone alone = {0};
    double begin = 0;
    bool is_right = step_load() == 0 && alone_init(&alone);
    for (uint32_t i = 0; is_right && i < N_WARM_UP + n_steps; i++) {
        if (i == N_WARM_UP) {
            (void)cudaStreamSynchronize(alone.stream);
            begin = fixture_now();
        }
        is_right = alone.kernel->enqueue(&alone.gk, alone.stream) == 0 &&
                   step_enqueue(alone.y_rows[0], N, (void *)(uintptr_t)alone.x_rows[0], K,
                                alone.stream) == 0;
    }
    is_right = is_right && cudaStreamSynchronize(alone.stream) == cudaSuccess;
    figures->in_process_usec = (fixture_now() - begin) * 1e6 / n_steps;
    return is_right;
}

/* ---- through the daemon ---- */

/* All clients, again and again: the n-th is passed when n times as many have come. */
static void meet(uint32_t *n_meetings)
{
    uint32_t wanted = ++*n_meetings * n_clients;
    atomic_fetch_add(&figures->n_arrived, 1);
    while (atomic_load(&figures->n_arrived) < wanted) {
    }
}

static bool run_way(gemmd_client_t *client, uint32_t i_child, enum chain_way way,
                    uint32_t *n_meetings)
{
    struct chain chain;
    bool is_right = chain_init(&chain, client, "bench/w", way) && chain_seed(&chain, i_child) &&
                    chain_steps(&chain, N_WARM_UP) && chain_sync(&chain);
    for (uint32_t i = 0; is_right && i < N_ROUNDS; i++) {
        meet(n_meetings);
        figures->begin[way][i][i_child] = fixture_now();
        is_right = chain_steps(&chain, n_steps) && chain_sync(&chain);
        figures->end[way][i][i_child] = fixture_now();
        meet(n_meetings);
    }
    chain_finish(&chain);
    return is_right;
}

static bool child_of_ways(uint32_t i_child)
{
    uint32_t n_meetings = 0;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right = true;
    for (enum chain_way way = CHAIN_SYNC; is_right && way < CHAIN_WAYS; way++) {
        if (chain_has_way(client, 0, way)) {
            figures->has_way[way] = true;
            is_right = run_way(client, i_child, way, &n_meetings);
        }
    }
    gemmd_close(client);
    return is_right;
}

static bool child_of_latency(uint32_t i_child)
{
    (void)i_child;
    struct chain chain;
    struct gemmd_result result = GEMMD_RESULT_INIT;
    double *usec = calloc(N_LATENCIES, sizeof(*usec));
    gemmd_ticket_t ticket;
    gemmd_client_t *client = fixture_open(&fixture, GEMMD_PATH_RING);
    bool is_right =
        usec != NULL && chain_init(&chain, client, "bench/w", CHAIN_SYNC) && chain_seed(&chain, 1);
    for (uint32_t i = 0; is_right && i < N_LATENCIES; i++) {
        is_right = gemmd_submit(client, &chain.gemm, 1, &ticket) == GEMMD_OK &&
                   gemmd_wait(client, ticket, GEMMD_WAIT_FOREVER, &result) == GEMMD_OK;
        usec[i] = (double)result.queue_nsec / 1e3;
    }
    figures->queue_usec[0] = percentile(usec, N_LATENCIES, 50);
    figures->queue_usec[1] = percentile(usec, N_LATENCIES, 90);
    figures->queue_usec[2] = percentile(usec, N_LATENCIES, 99);
    free(usec);
    chain_finish(&chain);
    gemmd_close(client);
    return is_right;
}

static void print_way(enum chain_way way)
{
    double usec[N_ROUNDS];
    if (!figures->has_way[way]) {
        return;
    }
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        double begin = figures->begin[way][i][0], end = 0;
        for (uint32_t j = 0; j < n_clients; j++) {
            begin = fmin(begin, figures->begin[way][i][j]);
            end = fmax(end, figures->end[way][i][j]);
        }
        usec[i] = (end - begin) * 1e6 / n_steps;
    }
    double median = percentile(usec, N_ROUNDS, 50);
    (void)printf("%7u  %-18s %9.2f %9.2f\n", n_clients, chain_way_names[way], median,
                 median - figures->in_process_usec);
}

static void bench_clients(uint32_t n)
{
    n_clients = n;
    atomic_store(&figures->n_arrived, 0);
    if (!gpu_children(n, child_of_ways)) {
        fixture_fail(&fixture, "%u clients failed", n);
    }
    for (enum chain_way way = CHAIN_SYNC; way < CHAIN_WAYS; way++) {
        print_way(way);
    }
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    static const uint32_t counts[] = {1, 4, N_CLIENTS_MAX};
    gpu_need();
    if (argc > 1) {
        n_steps = (uint32_t)strtoul(argv[1], NULL, 10);
    }
    figures =
        mmap(NULL, sizeof(*figures), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (figures == MAP_FAILED || n_steps == 0) {
        return 1;
    }
    start();
    if (!gpu_children(1, child_alone) || !gpu_children(1, child_of_latency)) {
        fixture_fail(&fixture, "the figures of one process failed");
    }
    (void)printf("one row a step on int4 g128 %ux%u, %u steps, median of %u\n"
                 "submit to launch: %.2f us at p50, %.2f at p90, %.2f at p99\n"
                 "clients  ordered by          us a step  over one process\n"
                 "      1  %-18s %9.2f\n",
                 N, K, n_steps, N_ROUNDS, figures->queue_usec[0], figures->queue_usec[1],
                 figures->queue_usec[2], "in one process", figures->in_process_usec);
    for (uint32_t i = 0; argc <= 2 && i < ARRAY_LENGTH(counts); i++) {
        bench_clients(counts[i]);
    }
    for (int i = 2; i < argc; i++) {
        bench_clients((uint32_t)num_min(strtoul(argv[i], NULL, 10), N_CLIENTS_MAX));
    }
    int code = fixture_stop(&fixture);
    fixture_finish(&fixture);
    return code;
}
