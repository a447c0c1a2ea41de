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
 *   in step      sessions that the scheduler lets share launches
 *
 * Usage: bench-decode-stream [--clients N,N,...] [--seconds S] [--batching NAME] [--thoughts N]
 * [--launch-ahead false]. --thoughts: of one kernel, up to 8, so that the GPU's front end has as
 * many times less to start. Needs MPS. Skipped (77) without a GPU. The parent never uses CUDA. */
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
#include "tests/gpu/gpu.h"
#include "tests/harness/percentile.h"

#define WARM_UP_SECONDS 0.15

static const struct decode_shape shape = {8, 4096, 6144, 14336}; /* of Llama-3-8B, 8 blocks */

static const struct decode_scenario scenarios[] = {
    {"5 us", 5, 5, false},
    {"20 us", 20, 20, false},
    {"5..40 us", 5, 40, false},
    {"20 us, one prefills", 20, 20, true},
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
static double alone_usec;          /* a pass of one client that thinks as in scenario 0 */
static struct decode_run run;
static struct fixture fixture;
static const struct stats_page *stats;
static double span_seconds = 0.3;
static uint32_t n_thoughts = 1;
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

struct values {
    double *at;
    uint64_t n;
};

static void add(struct values *values, double value)
{
    values->at[values->n++] = value;
}

static double percentile_of(struct values *values, uint32_t percent)
{
    return percentile(values->at, values->n, percent);
}

/* What all clients of a scenario did while all of them were at it. */
struct window {
    uint64_t begin_nsec;
    uint64_t end_nsec;
    double n_products;
    double fewest;
    double most;
    struct values passes; /* us */
    struct values ratios; /* over the same client's alone */
    struct values turns;  /* us */
};

static void find_window(const struct decode_scenario *scenario, struct window *window)
{
    window->begin_nsec = 0;
    window->end_nsec = UINT64_MAX;
    for (uint32_t i = 0; i < run.n_clients; i++) {
        const struct decode_record *record = &board->records[i];
        if (decode_is_prefilling(&run, scenario, i)) {
            continue;
        }
        uint64_t begin_nsec = record->stamps[0].end_nsec + (uint64_t)(WARM_UP_SECONDS * 1e9);
        window->begin_nsec = num_max(window->begin_nsec, begin_nsec);
        window->end_nsec = num_min(window->end_nsec, record->stamps[record->n_steps].begin_nsec);
    }
}

static void look_at(struct window *window, const struct decode_scenario *scenario,
                    uint32_t i_client)
{
    const struct decode_record *record = &board->records[i_client];
    uint32_t n_weights = shape.n_blocks * DECODE_LINEARS;
    double thought_usec =
        (double)(decode_think_usec(&run, scenario, i_client) - scenarios[0].usec_min);
    double own_usec = alone_usec + thought_usec * n_weights;
    uint64_t pass_nsec = 0;
    double n_products = 0;
    for (uint32_t i = 0; i < record->n_steps; i++) {
        uint64_t ready_nsec = record->stamps[i].end_nsec;
        if (ready_nsec < window->begin_nsec ||
            record->stamps[i + 1].begin_nsec > window->end_nsec) {
            continue;
        }
        n_products++;
        add(&window->turns, (double)(record->stamps[i + 1].begin_nsec - ready_nsec) / 1e3);
        if ((record->i_first + i) % n_weights != 0) {
            continue;
        }
        if (pass_nsec != 0) {
            double usec = (double)(ready_nsec - pass_nsec) / 1e3;
            add(&window->passes, usec);
            add(&window->ratios, alone_usec > 0 ? usec / own_usec : 0);
        }
        pass_nsec = ready_nsec;
    }
    window->n_products += n_products;
    window->fewest = fmin(window->fewest, n_products);
    window->most = fmax(window->most, n_products);
}

static void window_init(struct window *window, const struct decode_scenario *scenario)
{
    *window = (struct window){.fewest = 1e300};
    struct values *all[] = {&window->passes, &window->ratios, &window->turns};
    for (uint32_t i = 0; i < ARRAY_LENGTH(all); i++) {
        all[i]->at = calloc((uint64_t)DECODE_CLIENTS_MAX * DECODE_STEPS_MAX, sizeof(double));
    }
    find_window(scenario, window);
    for (uint32_t i = 0; i < run.n_clients; i++) {
        if (!decode_is_prefilling(&run, scenario, i)) {
            look_at(window, scenario, i);
        }
    }
}

static void window_finish(struct window *window)
{
    free(window->passes.at);
    free(window->ratios.at);
    free(window->turns.at);
}

static void print_row(const struct decode_scenario *scenario, const struct counts *before,
                      const struct counts *after)
{
    struct window window;
    window_init(&window, scenario);
    double usec = (double)(window.end_nsec - window.begin_nsec) / 1e3;
    double daemon_usec = (double)(after->at_nsec - before->at_nsec) / 1e3;
    double n_launches = (double)(after->n_launches - before->n_launches);
    double per_launch = n_launches > 0 ? window.n_products / usec / (n_launches / daemon_usec) : 0;
    (void)printf("%-19s %3u %-10s %7.2f %7.2f %7.2f %7.2f %7.2f %7.1f %7.1f", scenario->name,
                 run.n_clients, policy_names[run.policy],
                 window.n_products * shared->launch_usec[1] / usec, per_launch,
                 percentile_of(&window.ratios, 50), percentile_of(&window.ratios, 99),
                 percentile_of(&window.passes, 50) / (shape.n_blocks * DECODE_LINEARS),
                 percentile_of(&window.turns, 50), percentile_of(&window.turns, 99));
    if (n_launches > 0) {
        double n_fired = (double)(after->n_fired - before->n_fired);
        (void)printf(" %7.2f %7.2f %6.2f %5.2f %5.2f",
                     (double)(after->queue_nsec - before->queue_nsec) / 1e3 /
                         (double)num_max(1, after->n_ok - before->n_ok),
                     (double)(after->run_nsec - before->run_nsec) / 1e3 / n_launches,
                     (double)(after->busy_nsec - before->busy_nsec) / 1e3 / daemon_usec,
                     n_fired / n_launches,
                     ((double)(after->n_armed - before->n_armed) - n_fired) / n_launches);
    } else {
        (void)printf(" %7s %7s %6s %5s %5s", "-", "-", "-", "-", "-");
    }
    (void)printf(" %9.2f %7u\n", window.fewest / window.most, (uint32_t)after->n_in_step);
    (void)fflush(stdout);
    window_finish(&window);
}

static void print_head(void)
{
    uint32_t n_weights = shape.n_blocks * DECODE_LINEARS;
    (void)printf("%u blocks of hidden %u, qkv %u, intermediate %u, int4 g128; %.1f s each\n",
                 shape.n_blocks, shape.hidden, shape.qkv, shape.intermediate, span_seconds);
    for (uint32_t m = 1; m <= DECODE_CLIENTS_MAX; m++) {
        if (shared->launch_usec[m] > 0) {
            (void)printf("a launch for %2u rows takes %.2f us, back to back\n", m,
                         shared->launch_usec[m]);
        }
    }
    (void)printf("alone with the daemon, thinking %.0f us: %.1f us a pass, %.2f a step\n",
                 (double)scenarios[0].usec_min, alone_usec, alone_usec / n_weights);
    (void)printf("%-19s %3s %-10s %7s %7s %7s %7s %7s %7s %7s %7s %7s %6s %5s %5s %9s %7s\n",
                 "clients think", "N", "batching", "per run", "/launch", "pass50", "pass99", "step",
                 "turn50", "turn99", "queue", "launch", "busy", "ahead", "vain", "slow/fast",
                 "in step");
}

/* ---- the parent ---- */

static void run_scenario(const struct decode_scenario *scenario, bool is_shown,
                         uint32_t *n_meetings)
{
    atomic_store(&board->state, DECODE_RUNS);
    decode_meet(&run, n_meetings);
    fixture_sleep(WARM_UP_SECONDS);
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

static void run_clients(enum decode_policy policy, uint32_t n, uint32_t n_scenarios, bool is_shown)
{
    pid_t pids[DECODE_CLIENTS_MAX];
    uint32_t n_meetings = 0;
    run =
        (struct decode_run){board, &fixture, &shape, policy, n, n_thoughts, scenarios, n_scenarios};
    atomic_store(&board->n_arrived, 0);
    atomic_store(&board->has_weights, false);
    for (uint32_t i = 0; i < n; i++) {
        pids[i] = start_child(run_client, i);
    }
    for (uint32_t i = 0; i < run.n_scenarios; i++) {
        run_scenario(&scenarios[i], is_shown, &n_meetings);
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
        if (!decode_own_init(&own, &shape, rows[i], NULL)) {
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
    decode_model_write(&fixture.folder, "m", &shape);
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
    struct window window;
    run_clients(DECODE_OFF, 1, 1, false);
    window_init(&window, &scenarios[0]);
    alone_usec = percentile_of(&window.passes, 50);
    window_finish(&window);
    if (!(alone_usec > 0)) {
        fixture_fail(&fixture, "one client alone made no pass");
    }
}

static void bench_daemon(enum decode_policy policy, const uint32_t *counts, uint32_t n_counts)
{
    start_daemon(policy);
    if (!(alone_usec > 0)) {
        measure_alone();
        print_head();
    }
    for (uint32_t i = 0; i < n_counts; i++) {
        run_clients(policy, counts[i], ARRAY_LENGTH(scenarios), true);
    }
    stop_daemon();
}

static void bench_own(const uint32_t *counts, uint32_t n_counts)
{
    if (!(alone_usec > 0)) { /* all are compared with one client of a daemon */
        bench_daemon(DECODE_OFF, counts, 0);
    }
    for (uint32_t i = 0; i < n_counts; i++) {
        run_clients(DECODE_OWN, counts[i], ARRAY_LENGTH(scenarios) - 1, true); /* none prefills */
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

int main(int argc, char **argv)
{
    uint32_t counts[DECODE_CLIENTS_MAX] = {1, 2, 4, 8, 15};
    uint32_t n_counts = 5;
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--clients") == 0 && i + 1 < argc) {
            n_counts = parse_counts(argv[++i], counts);
        } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            span_seconds = strtod(argv[++i], NULL);
        } else if (strcmp(argv[i], "--thoughts") == 0 && i + 1 < argc) {
            n_thoughts = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--batching") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--launch-ahead") == 0 && i + 1 < argc) {
            launch_ahead = argv[++i];
        } else {
            n_counts = 0;
        }
    }
    if (n_counts == 0 || !(span_seconds > 0) || n_thoughts - 1 >= THOUGHTS_MAX) {
        (void)fprintf(stderr, "usage: bench-decode-stream [--clients N,N,...] [--seconds S] "
                              "[--batching NAME] [--thoughts N] [--launch-ahead false]\n");
        return 2;
    }
    gpu_need();
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    board = &shared->board;
    wait_for(start_child(measure, 0));
    for (enum decode_policy policy = DECODE_OFF; policy < DECODE_POLICIES; policy++) {
        if (only == NULL || strcmp(only, policy_names[policy]) == 0) {
            bench_daemon(policy, counts, n_counts);
        }
    }
    if (only == NULL || strcmp(only, policy_names[DECODE_OWN]) == 0) {
        bench_own(counts, n_counts);
    }
    (void)munmap(shared, sizeof(*shared));
    return 0;
}
