/* bench-decode-stream.c - processes that decode the same model on one GPU in stream order: what
 * they get together, and what each notices of the others. No CPU is waited for and none thinks, so
 * the figures are the daemon's, the GPU's and the bus's, not those of this machine's CPU
 * scheduling.
 *
 * Every client walks over the weights of a decoder (four linear layers a block, int4 g128), one row
 * at a time, from a place of its own; between two products a kernel of its own takes a few
 * microseconds, which waits for y and says that x is ready (gemmd_device.h). The daemon runs with
 * batching off, natural and rendezvous; "own" are the same processes without it, which launch the
 * kernels themselves on weights that they share by CUDA IPC. Times are the GPU's clock. Columns:
 *
 *   per run      products in the time that a launch for one row takes, back to back
 *   per launch   products that shared a launch, mean
 *   pass         time of a pass over that of one client alone with the daemon: p50, p99
 *   step         time of a pass over its products, us
 *   turn         from x being ready until y is there, on the GPU, us: p50, p99
 *   queue        ... until the launch, as the daemon sees it, us: mean
 *   launch       what the daemon sees of a launch, us: mean
 *   busy         the share of the time that launches run
 *   ahead        launches that had been queued before their rows came, of all: fired
 *   vain         ... and those that got none, of all launches
 *   slow/fast    products of the slowest client over those of the fastest
 *   last50       a pass of the last client, which may be a slow one, as `pass`: p50
 *   gain         products over those with natural batching
 *   in step      sessions that the scheduler lets share launches
 *
 * Usage: bench-decode-stream [--clients N,N,...] [--seconds S] [--batching NAME,...] [--thoughts N]
 * [--pdl] [--shape 8b|70b] [--scenarios N,N,...] [--launch-ahead false]. --thoughts: of one kernel,
 * up to 8, so that the GPU's front end has as many times less to start. --pdl: a client's next
 * kernel is in its place when it is needed, by programmatic dependent launch. --scenarios: by their
 * places in the table, from 1. Needs MPS. Skipped (77) without a GPU. The parent never uses CUDA.
 */
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

#include "ipc/base/clock.h"
#include "ipc/base/num.h"
#include "ipc/stats.h"
#include "tests/bench/decode_own.h"
#include "tests/bench/decode_stream.h"
#include "tests/bench/decode_window.h"
#include "tests/gpu/gpu.h"

/* Blocks of Llama-3-8B and of Llama-3-70B. */
static const struct decode_shape shapes[] = {{8, 4096, 6144, 14336}, {2, 8192, 10240, 28672}};

static const struct decode_scenario scenarios[] = {
    {"5 us", 5, 5, 0, false},
    {"20 us", 20, 20, 0, false},
    {"40 us", 40, 40, 0, false},
    {"5..40 us", 5, 40, 0, false},
    {"5 us, one 500 us", 5, 5, 500, false},
    {"20 us, one prefills", 20, 20, 0, true}, /* the last: not without a daemon */
};

static const char *const policy_names[DECODE_POLICIES] = {"own", "off", "natural", "rendezvous"};

/* Of all processes. */
struct shared {
    struct decode_board board;
    double
        launch_usec[DECODE_CLIENTS_MAX + 1]; /* for so many rows, back to back; 0: not measured */
};

static struct shared *shared;
static struct decode_board *board; /* the one in there */
static struct decode_unit unit;    /* one client that thinks as in scenario 0 */
static const struct decode_shape *shape = &shapes[0];
static struct decode_scenario chosen[ARRAY_LENGTH(scenarios)]; /* of these, in their order */
static uint32_t n_chosen;
static double natural[ARRAY_LENGTH(scenarios)][DECODE_CLIENTS_MAX + 1]; /* products a us; 0: ? */
static struct decode_run run;
static struct fixture fixture;
static const struct stats_page *stats;
static double span_seconds = 0.3;
static uint32_t n_thoughts = 1;
static bool is_early;
static const char *launch_ahead = "yes";

static bool is_good(int error, const char *what)
{
    if (error != 0) {
        (void)fprintf(stderr, "%s: %s\n", what, cudaGetErrorString((cudaError_t)error));
    }
    return error == 0;
}

/* ---- figures of the daemon ---- */

struct counts {
    uint64_t at_nsec;
    uint64_t n_launches; /* of decode */
    uint64_t run_nsec;   /* of these */
    uint64_t n_ok;
    uint64_t queue_nsec;
    uint64_t busy_nsec;
    uint64_t n_in_step;
    uint64_t n_armed;
    uint64_t n_fired;
};

static struct counts read_counts(void)
{
    struct counts counts = {.at_nsec = clock_now_nsec()};
    if (stats == NULL) {
        return counts;
    }
    const struct stats_worker *worker = &stats->workers[0];
    for (uint32_t i = 0; i < STATS_ROW_BUCKETS - 1; i++) {
        counts.n_launches += stats_read(&worker->launches_by_rows[i]);
        for (uint32_t j = 0; j < STATS_CODES; j++) {
            counts.run_nsec += stats_read(&worker->kernel[j][0][i].sum_nsec);
        }
    }
    counts.n_ok = stats_read(&worker->n_ok);
    counts.queue_nsec = stats_read(&worker->queue.sum_nsec);
    counts.busy_nsec = stats_read(&worker->busy_nsec);
    counts.n_in_step = stats_read(&worker->n_in_step);
    counts.n_armed = stats_read(&worker->n_armed);
    counts.n_fired = stats_read(&worker->n_fired);
    return counts;
}

/* ---- tables ---- */

static void print_counts(const struct counts *before, const struct counts *after)
{
    double usec = (double)(after->at_nsec - before->at_nsec) / 1e3;
    double n_launches = (double)(after->n_launches - before->n_launches);
    double n_fired = (double)(after->n_fired - before->n_fired);
    if (!(n_launches > 0)) {
        (void)printf(" %7s %7s %6s %5s %5s", "-", "-", "-", "-", "-");
        return;
    }
    (void)printf(" %7.2f %7.2f %6.2f %5.2f %5.2f",
                 (double)(after->queue_nsec - before->queue_nsec) / 1e3 /
                     (double)num_max(1, after->n_ok - before->n_ok),
                 (double)(after->run_nsec - before->run_nsec) / 1e3 / n_launches,
                 (double)(after->busy_nsec - before->busy_nsec) / 1e3 / usec, n_fired / n_launches,
                 ((double)(after->n_armed - before->n_armed) - n_fired) / n_launches);
}

/* Products over those of natural batching, if that was measured. */
static void print_gain(const struct decode_scenario *scenario, double per_usec)
{
    double *known = &natural[scenario - chosen][run.n_clients];
    if (run.policy == DECODE_NATURAL) {
        *known = per_usec;
    }
    if (run.policy == DECODE_RENDEZVOUS && *known > 0) {
        (void)printf(" %7.3f", per_usec / *known);
    } else {
        (void)printf(" %7s", "-");
    }
}

static void print_row(const struct decode_scenario *scenario, const struct counts *before,
                      const struct counts *after)
{
    struct decode_window window;
    decode_window_init(&window, &run, scenario, &unit);
    double usec = (double)(window.end_nsec - window.begin_nsec) / 1e3;
    double daemon_usec = (double)(after->at_nsec - before->at_nsec) / 1e3;
    double n_launches = (double)(after->n_launches - before->n_launches);
    double per_launch = n_launches > 0 ? window.n_products / usec / (n_launches / daemon_usec) : 0;
    (void)printf("%-19s %3u %-10s %7.2f %7.2f %7.2f %7.2f %7.2f %7.1f %7.1f", scenario->name,
                 run.n_clients, policy_names[run.policy],
                 window.n_products * shared->launch_usec[1] / usec, per_launch,
                 decode_percentile(&window.ratios, 50), decode_percentile(&window.ratios, 99),
                 decode_percentile(&window.passes, 50) / (shape->n_blocks * DECODE_LINEARS),
                 decode_percentile(&window.turns, 50), decode_percentile(&window.turns, 99));
    print_counts(before, after);
    (void)printf(" %9.2f %7.2f", window.fewest / window.most, decode_percentile(&window.slow, 50));
    print_gain(scenario, window.n_products / usec);
    (void)printf(" %7u\n", (uint32_t)after->n_in_step);
    (void)fflush(stdout);
    decode_window_finish(&window);
}

static void print_head(void)
{
    uint32_t n_weights = shape->n_blocks * DECODE_LINEARS;
    (void)printf("%u blocks of hidden %u, qkv %u, intermediate %u, int4 g128; %.1f s each\n",
                 shape->n_blocks, shape->hidden, shape->qkv, shape->intermediate, span_seconds);
    for (uint32_t m = 1; m <= DECODE_CLIENTS_MAX; m++) {
        if (shared->launch_usec[m] > 0) {
            (void)printf("a launch for %2u rows takes %.2f us, back to back\n", m,
                         shared->launch_usec[m]);
        }
    }
    (void)printf("alone with the daemon, thinking %.0f us: %.1f us a pass, %.2f a step\n",
                 (double)scenarios[0].usec_min, unit.pass_usec, unit.pass_usec / n_weights);
    (void)printf(
        "%-19s %3s %-10s %7s %7s %7s %7s %7s %7s %7s %7s %7s %6s %5s %5s %9s %7s %7s %7s\n",
        "clients think", "N", "batching", "per run", "/launch", "pass50", "pass99", "step",
        "turn50", "turn99", "queue", "launch", "busy", "ahead", "vain", "slow/fast", "last50",
        "gain", "in step");
}

/* ---- the parent ---- */

static void run_scenario(const struct decode_scenario *scenario, bool is_shown,
                         uint32_t *n_meetings)
{
    atomic_store(&board->state, DECODE_RUNS);
    decode_meet(&run, n_meetings);
    fixture_sleep(DECODE_WARM_UP_SECONDS);
    struct counts before = read_counts();
    fixture_sleep(span_seconds);
    struct counts after = read_counts();
    atomic_store(&board->state, DECODE_IS_OVER);
    decode_meet(&run, n_meetings);
    if (is_shown) {
        print_row(scenario, &before, &after);
    }
}

/* fn in a process of its own. */
static pid_t start_child(int (*fn)(uint32_t), uint32_t i)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)signal(SIGALRM, SIG_DFL);
        (void)alarm(60);
        _exit(fn(i));
    }
    if (pid < 0) {
        fixture_fail(&fixture, "fork failed");
    }
    return pid;
}

static void wait_for(pid_t pid)
{
    int state = 0;
    if (waitpid(pid, &state, 0) != pid || state != 0) {
        fixture_fail(&fixture, "a process failed: %d", state);
    }
}

static int run_client(uint32_t i)
{
    return decode_client_run(&run, i);
}

static void run_clients(enum decode_policy policy, uint32_t n, const struct decode_scenario *list,
                        uint32_t n_list, bool is_shown)
{
    pid_t pids[DECODE_CLIENTS_MAX];
    uint32_t n_meetings = 0;
    run =
        (struct decode_run){board, &fixture, shape, policy, n, n_thoughts, is_early, list, n_list};
    atomic_store(&board->n_arrived, 0);
    atomic_store(&board->has_weights, false);
    for (uint32_t i = 0; i < n; i++) {
        pids[i] = start_child(run_client, i);
    }
    for (uint32_t i = 0; i < run.n_scenarios; i++) {
        run_scenario(&list[i], is_shown, &n_meetings);
    }
    for (uint32_t i = 0; i < n; i++) {
        wait_for(pids[i]);
    }
}

static double measure_launches(struct decode_own *own)
{
    cudaEvent_t begin, end;
    float msec = 0;
    bool is_right =
        is_good(cudaEventCreate(&begin), "an event") && is_good(cudaEventCreate(&end), "an event");
    for (uint32_t i = 0; is_right && i < 10 * own->n_weights; i++) {
        if (i == 2 * own->n_weights) {
            (void)cudaEventRecord(begin, NULL);
        }
        is_right = decode_own_enqueue(own, i % own->n_weights, NULL);
    }
    is_right = is_right && is_good(cudaEventRecord(end, NULL), "an event") &&
               is_good(cudaEventSynchronize(end), "launches") &&
               is_good(cudaEventElapsedTime(&msec, begin, end), "launches");
    return is_right ? (double)msec * 1e3 / (8 * own->n_weights) : 0;
}

/* A process that says what launches take. */
static int measure(uint32_t i_child)
{
    static const uint32_t rows[] = {1, 2, 4, 8, 15, 16};
    static struct decode_own own;
    (void)i_child;
    for (uint32_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        if (!decode_own_init(&own, shape, rows[i], NULL)) {
            return 1;
        }
        shared->launch_usec[rows[i]] = measure_launches(&own);
        decode_own_finish(&own);
    }
    return 0;
}

static void start_daemon(enum decode_policy policy)
{
    char model[512], config[320], path[400];
    struct reason why;
    fixture_init(&fixture);
    decode_model_write(&fixture.folder, "m", shape);
    (void)snprintf(model, sizeof(model), "bench=%s", temp_path(&fixture.folder, "m"));
    (void)snprintf(config, sizeof(config),
                   "batching = %s\nlaunch_ahead = %s\ntuning = no\ndevices = cuda:0\n",
                   policy_names[policy], launch_ahead);
    const struct fixture_options options = {.model = model, .config = config};
    fixture_start(&fixture, &options);
    (void)snprintf(path, sizeof(path), "%s/" STATS_FILE_NAME, fixture.socket_dir);
    if (stats_open(path, &stats, &why) != 0) {
        fixture_fail(&fixture, "%s: no figures", path);
    }
}

static void stop_daemon(void)
{
    stats = stats_close(stats);
    int code = fixture_stop(&fixture);
    if (code != 0) {
        fixture_fail(&fixture, "the daemon ended with %d", code);
    }
    fixture_finish(&fixture);
}

/* The median pass of one client, in the daemon that is up. */
static void measure_alone(void)
{
    struct decode_window window;
    run_clients(DECODE_OFF, 1, scenarios, 1, false);
    decode_window_init(&window, &run, &scenarios[0], &unit);
    unit.think_usec = (double)scenarios[0].usec_min;
    unit.pass_usec = decode_percentile(&window.passes, 50);
    decode_window_finish(&window);
    if (!(unit.pass_usec > 0)) {
        fixture_fail(&fixture, "one client alone made no pass");
    }
}

static void bench_daemon(enum decode_policy policy, const uint32_t *counts, uint32_t n_counts)
{
    start_daemon(policy);
    if (!(unit.pass_usec > 0)) {
        measure_alone();
        print_head();
    }
    for (uint32_t i = 0; i < n_counts; i++) {
        run_clients(policy, counts[i], chosen, n_chosen, true);
    }
    stop_daemon();
}

static void bench_own(const uint32_t *counts, uint32_t n_counts)
{
    if (!(unit.pass_usec > 0)) { /* all are compared with one client of a daemon */
        bench_daemon(DECODE_OFF, counts, 0);
    }
    uint32_t n_decode = n_chosen;
    while (n_decode > 0 && chosen[n_decode - 1].has_prefill) {
        n_decode--;
    }
    for (uint32_t i = 0; i < n_counts; i++) {
        run_clients(DECODE_OWN, counts[i], chosen, n_decode, true);
    }
}

/* "1,2,4" into numbers; how many, 0 if one is wrong. */
static uint32_t parse_counts(const char *text, uint32_t *ret_counts)
{
    uint32_t n = 0;
    for (char *end; *text != '\0' && n < DECODE_CLIENTS_MAX; text = *end == ',' ? end + 1 : end) {
        unsigned long count = strtoul(text, &end, 10);
        if (end == text || count == 0 || count > DECODE_CLIENTS_MAX) {
            return 0;
        }
        ret_counts[n++] = (uint32_t)count;
    }
    return n;
}

static void choose(const uint32_t *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < ARRAY_LENGTH(scenarios); i++) {
        bool is_wanted = n == 0;
        for (uint32_t j = 0; j < n; j++) {
            is_wanted = is_wanted || numbers[j] == i + 1;
        }
        if (is_wanted) {
            chosen[n_chosen++] = scenarios[i];
        }
    }
}

struct arguments {
    uint32_t counts[DECODE_CLIENTS_MAX];
    uint32_t n_counts;
    uint32_t scenarios[DECODE_CLIENTS_MAX];
    uint32_t n_scenarios; /* 0: all */
    const char *only;     /* these policies; NULL: all */
};

/* One option; its value, NULL at the end of the line, is used up if true is in *ret_has_value. */
static bool parse_option(struct arguments *arguments, const char *name, const char *value,
                         bool *ret_has_value)
{
    *ret_has_value = strcmp(name, "--pdl") != 0;
    if (!*ret_has_value) {
        is_early = true;
        return true;
    }
    if (value == NULL) {
        return false;
    }
    if (strcmp(name, "--clients") == 0) {
        arguments->n_counts = parse_counts(value, arguments->counts);
        return arguments->n_counts > 0;
    }
    if (strcmp(name, "--scenarios") == 0) {
        arguments->n_scenarios = parse_counts(value, arguments->scenarios);
        return arguments->n_scenarios > 0;
    }
    if (strcmp(name, "--seconds") == 0) {
        span_seconds = strtod(value, NULL);
        return span_seconds > 0;
    }
    if (strcmp(name, "--thoughts") == 0) {
        n_thoughts = (uint32_t)strtoul(value, NULL, 10);
        return n_thoughts - 1 < THOUGHTS_MAX;
    }
    if (strcmp(name, "--shape") == 0) {
        shape = &shapes[strcmp(value, "70b") == 0];
        return shape != &shapes[0] || strcmp(value, "8b") == 0;
    }
    arguments->only = strcmp(name, "--batching") == 0 ? value : arguments->only;
    launch_ahead = strcmp(name, "--launch-ahead") == 0 ? value : launch_ahead;
    return arguments->only == value || launch_ahead == value;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.counts = {1, 2, 4, 8, 15}, .n_counts = 5};
    bool has_value;
    for (int i = 1; i < argc; i += has_value ? 2 : 1) {
        if (!parse_option(&arguments, argv[i], argv[i + 1], &has_value)) {
            (void)fprintf(stderr, "usage: bench-decode-stream [--clients N,N,...] [--seconds S] "
                                  "[--batching NAME,...] [--thoughts N] [--pdl] [--shape 8b|70b] "
                                  "[--scenarios N,N,...] [--launch-ahead false]\n");
            return 2;
        }
    }
    choose(arguments.scenarios, arguments.n_scenarios);
    const char *only = arguments.only;
    gpu_need();
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    board = &shared->board;
    wait_for(start_child(measure, 0));
    for (enum decode_policy policy = DECODE_OFF; policy < DECODE_POLICIES; policy++) {
        if (only == NULL || strstr(only, policy_names[policy]) != NULL) {
            bench_daemon(policy, arguments.counts, arguments.n_counts);
        }
    }
    if (only == NULL || strstr(only, policy_names[DECODE_OWN]) != NULL) {
        bench_own(arguments.counts, arguments.n_counts);
    }
    (void)munmap(shared, sizeof(*shared));
    return 0;
}
