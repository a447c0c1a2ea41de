/* bench-ahead.c - what a launch takes from the CPU's decision until the CPU knows that it is done:
 * started then, or queued ahead and told its rows then, in its place or not; alone, and beside
 * processes that run short kernels of their own (under MPS: tests/gpu/run mps). Needs a GPU of
 * compute capability 9.0.
 *
 *   bench-ahead [N_PROCESSES...]     default 0 7 15 */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/device/device.h"
#include "ipc/base/clock.h"
#include "ipc/base/num.h"
#include "tests/gpu/step.h"

#define N          4096u
#define K          14336u
#define N_WEIGHTS  4u /* more than the L2 cache has room for */
#define N_LAUNCHES 1500u
#define N_BUSY_MAX 31u
#define THINK_NSEC 10000u
#define BUSY_USEC  5u
#define ROWS_MAX   16u
#define LIMIT_USEC 100000u
#define SKIPPED    77

/* ---- processes beside ---- */

static volatile uint32_t *n_started; /* shared by all */

/* Kernels of BUSY_USEC, one after the other, each behind the end of the one before, as a client's
 * that think. Until the parent kills it. */
static _Noreturn void be_busy(void)
{
    cudaStream_t stream;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
        _exit(1);
    }
    (void)__atomic_add_fetch(n_started, 1, __ATOMIC_SEQ_CST);
    while (delay_enqueue(BUSY_USEC, stream) == 0 && cudaStreamSynchronize(stream) == cudaSuccess) {
    }
    _exit(1);
}

static void start_busy(uint32_t n, pid_t *ret_pids)
{
    *n_started = 0;
    for (uint32_t i = 0; i < n; i++) {
        ret_pids[i] = fork();
        if (ret_pids[i] == 0) {
            be_busy();
        }
    }
    uint64_t end_nsec = clock_now_nsec() + 20000000000u;
    while (*n_started < n && clock_now_nsec() < end_nsec) {
        (void)usleep(10000);
    }
}

static void stop_busy(uint32_t n, const pid_t *pids)
{
    for (uint32_t i = 0; i < n; i++) {
        (void)kill(pids[i], SIGTERM);
        (void)waitpid(pids[i], NULL, 0);
    }
}

/* ---- launches ---- */

struct bench {
    struct device *device;
    const struct gk_kernel *kernel;
    struct gk_problem problem;
    struct region weights[N_WEIGHTS];
    const void *x_rows[ROWS_MAX];
    void *y_rows[ROWS_MAX];
    uint32_t i_next; /* weight */
    bool holds_place;
};

static void must(int r, const char *what, const struct reason *why)
{
    if (r != 0) {
        (void)fprintf(stderr, "bench-ahead: %s: %s\n", what, why != NULL ? why->text : "failed");
        exit(1);
    }
}

/* Zeroed weights and rows: what is timed does not depend on values. */
static void bench_init(struct bench *bench, struct device *device)
{
    struct gk_desc desc = {
        .n = N, .k = K, .code = GK_CODE_U4, .group_n = 1, .group_k = 128, .scale_dtype = DTYPE_F16};
    struct reason why = REASON_NULL;
    uint8_t *rows;
    *bench = (struct bench){.device = device,
                            .problem = {.desc = desc,
                                        .layout = gk_layout_for(&desc, GK_DEVICE_CUDA),
                                        .m = ROWS_MAX,
                                        .x_dtype = DTYPE_BF16,
                                        .y_dtype = DTYPE_BF16,
                                        .cuda_arch = device->cuda_arch}};
    must(gk_select(&bench->problem, &bench->kernel, &why), "no kernel", &why);
    must(cudaMalloc((void **)&rows, ROWS_MAX * (K + N) * 2), "rows", NULL);
    must(cudaMemset(rows, 0, ROWS_MAX * (K + N) * 2), "rows", NULL);
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        bench->x_rows[i] = rows + 2ull * i * K;
        bench->y_rows[i] = rows + 2ull * (ROWS_MAX * K + i * N);
    }
    for (uint32_t i = 0; i < N_WEIGHTS; i++) {
        must(device->ops->region_new(device, "weight", bench->problem.layout->packed_bytes(&desc),
                                     &bench->weights[i], &why),
             "a weight", &why);
    }
}

static struct device_launch next_launch(struct bench *bench)
{
    return (struct device_launch){
        .kernel = bench->kernel,
        .holds_place = bench->holds_place,
        .gk = {.problem = bench->problem,
               .packed = bench->weights[bench->i_next++ % N_WEIGHTS].base}};
}

static void tell(const struct bench *bench, struct device_launch *launch, uint32_t m)
{
    launch->gk.problem.m = m;
    launch->gk.x_rows = bench->x_rows;
    launch->gk.y_rows = (void *const *)bench->y_rows;
}

static uint64_t wait_done(struct bench *bench, const struct device_launch *launch)
{
    while (bench->device->ops->poll(bench->device) != launch) {
    }
    must(launch->result, "a launch", NULL);
    return clock_now_nsec();
}

static void think(void)
{
    uint64_t end_nsec = clock_now_nsec() + THINK_NSEC;
    while (clock_now_nsec() < end_nsec) {
    }
}

static uint64_t run_ordinary(struct bench *bench, uint32_t m, uint64_t *ret_call_nsec)
{
    struct device_launch launch = next_launch(bench);
    tell(bench, &launch, m);
    think();
    uint64_t start_nsec = clock_now_nsec();
    must(bench->device->ops->launch(bench->device, &launch), "launch", NULL);
    *ret_call_nsec = clock_now_nsec() - start_nsec;
    return wait_done(bench, &launch) - start_nsec;
}

/* The launch that is fired here was armed while the one before it ran. */
static uint64_t run_ahead(struct bench *bench, uint32_t m, struct device_launch launches[2],
                          uint32_t i, uint64_t *ret_call_nsec)
{
    struct device_launch *launch = &launches[i % 2];
    struct device_launch *next = &launches[(i + 1) % 2];
    tell(bench, launch, m);
    think();
    uint64_t start_nsec = clock_now_nsec();
    bench->device->ops->fire(bench->device, launch);
    *ret_call_nsec = clock_now_nsec() - start_nsec;
    *next = next_launch(bench);
    must(bench->device->ops->arm(bench->device, next, LIMIT_USEC), "arm", NULL);
    return wait_done(bench, launch) - start_nsec;
}

/* ---- figures ---- */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double usec_at(const uint64_t *sorted, double share)
{
    return (double)sorted[(uint32_t)(share * (N_LAUNCHES - 1))] / 1e3;
}

enum way { WAY_ORDINARY, WAY_AHEAD, WAY_HELD, N_WAYS };

static void measure(struct bench *bench, uint32_t n_busy, uint32_t m, enum way way)
{
    static const char *const names[N_WAYS] = {"ordinary", "ahead", "in place"};
    bool is_ahead = way != WAY_ORDINARY;
    static uint64_t nsec[N_LAUNCHES], call_nsec[N_LAUNCHES];
    struct device_launch launches[2];
    bench->holds_place = way == WAY_HELD;
    if (is_ahead) {
        launches[0] = next_launch(bench);
        must(bench->device->ops->arm(bench->device, &launches[0], LIMIT_USEC), "arm", NULL);
    }
    for (uint32_t i = 0; i < N_LAUNCHES; i++) {
        nsec[i] = is_ahead ? run_ahead(bench, m, launches, i, &call_nsec[i])
                           : run_ordinary(bench, m, &call_nsec[i]);
    }
    if (is_ahead) {
        struct device_launch *last = &launches[N_LAUNCHES % 2];
        bench->device->ops->disarm(bench->device, last);
        while (bench->device->ops->poll(bench->device) != last) {
        }
    }
    qsort(nsec, N_LAUNCHES, sizeof(nsec[0]), compare);
    qsort(call_nsec, N_LAUNCHES, sizeof(call_nsec[0]), compare);
    (void)printf("%9u %4u  %-9s %8.2f %8.2f %8.2f %8.2f\n", n_busy, m, names[way],
                 usec_at(nsec, 0.1), usec_at(nsec, 0.5), usec_at(nsec, 0.9),
                 usec_at(call_nsec, 0.5));
    (void)fflush(stdout);
}

/* In a process of its own: one that has used CUDA must not fork. */
static int run_beside(uint32_t n_busy)
{
    struct device *device;
    struct bench bench;
    struct reason why = REASON_NULL;
    static const uint32_t rows[] = {1, 8, 16};
    if (device_open("cuda:0", 0, 0, &device, &why) != 0 || device->cuda_arch < 90) {
        (void)printf("skipped: no GPU with programmatic dependent launch: %s\n", why.text);
        return SKIPPED;
    }
    bench_init(&bench, device);
    for (uint32_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        bench.problem.m = rows[i];
        for (enum way way = WAY_ORDINARY; way < N_WAYS; way++) {
            measure(&bench, n_busy, rows[i], way);
        }
    }
    (void)device_close(device);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"0", "7", "15"};
    int n_counts = argc > 1 ? argc - 1 : (int)ARRAY_LENGTH(usual);
    n_started =
        mmap(NULL, sizeof(*n_started), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n_started == MAP_FAILED) {
        return 1;
    }
    (void)printf("int4 g128, n %u, k %u; us from the call until the CPU knows of the end\n", N, K);
    (void)printf("processes rows  launch         p10      p50      p90  in call\n");
    (void)fflush(stdout);
    int code = 0;
    for (int i = 0; code == 0 && i < n_counts; i++) {
        pid_t pids[N_BUSY_MAX];
        const char *text = argc > 1 ? argv[1 + i] : usual[i];
        uint32_t n_busy = (uint32_t)num_min(strtoul(text, NULL, 10), N_BUSY_MAX);
        start_busy(n_busy, pids);
        pid_t child = fork();
        if (child == 0) {
            _exit(run_beside(n_busy));
        }
        int status = 1;
        (void)waitpid(child, &status, 0);
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        stop_busy(n_busy, pids);
    }
    return code;
}
