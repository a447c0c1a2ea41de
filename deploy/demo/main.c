/* main.c - several processes run all linear layers of one model at once through a running gemmd;
 * every product is checked against float64 on the checkpoint, which the demo reads itself. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deploy/demo/demo.h"

#define TOLERANCE 1e-5 /* relative Frobenius error of a float32 product */

struct arguments {
    struct demo demo;
    const char *checkpoint;
    uint32_t n_clients;
};

static error_t take_option(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 's':
        arguments->demo.socket_dir = argument;
        return 0;
    case 'c':
        arguments->n_clients = (uint32_t)strtoul(argument, NULL, 10);
        if (arguments->n_clients < 1 || arguments->n_clients > DEMO_CLIENTS_MAX) {
            argp_error(state, "--clients is between 1 and %u", DEMO_CLIENTS_MAX);
        }
        return 0;
    case 't':
        arguments->demo.seconds = strtod(argument, NULL);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1) {
            return ARGP_ERR_UNKNOWN;
        }
        *(state->arg_num ? &arguments->checkpoint : &arguments->demo.model) = argument;
        return 0;
    case ARGP_KEY_END:
        if (state->arg_num < 2) {
            argp_usage(state);
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Multiples of 1/64 within +-2: every activation type holds them exactly, so one reference serves
 * all. */
static void fill_rows(float *x, size_t n, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)((int)(state >> 24) - 128) / 64.0f;
    }
}

static int make_tasks(struct demo *demo, const struct checkpoint *checkpoint)
{
    demo->tasks = calloc(checkpoint->n_layers, sizeof(*demo->tasks));
    for (size_t i = 0; demo->tasks && i < checkpoint->n_layers; i++) {
        const struct layer *layer = &checkpoint->layers[i];
        struct task *task = &demo->tasks[demo->n_tasks++];
        task->layer = layer;
        task->x = malloc(sizeof(float) * DEMO_ROWS * layer->k);
        task->y = malloc(sizeof(double) * DEMO_ROWS * layer->n);
        if (!task->x || !task->y) {
            return -1;
        }
        fill_rows(task->x, (size_t)DEMO_ROWS * layer->k, (uint32_t)i + 1);
        for (size_t row = 0; row < DEMO_ROWS; row++) {
            layer_product(layer, task->x + row * layer->k, task->y + row * layer->n);
        }
    }
    return demo->tasks ? 0 : -1;
}

static void free_tasks(struct demo *demo)
{
    for (size_t i = 0; i < demo->n_tasks; i++) {
        free(demo->tasks[i].x);
        free(demo->tasks[i].y);
    }
    free(demo->tasks);
}

/* Fork, run, collect. Returns how many clients did not end with success. */
static uint32_t run_clients(const struct arguments *arguments, struct tally *tallies)
{
    uint32_t n_failed = 0;
    uint32_t n_started = 0;
    (void)fflush(NULL);
    for (uint32_t i = 0; i < arguments->n_clients; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            _exit(demo_client(&arguments->demo, i, &tallies[i]));
        }
        n_started += pid > 0;
        n_failed += pid < 0;
    }
    for (uint32_t i = 0; i < n_started; i++) {
        int status = 0;
        n_failed += wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    return n_failed;
}

static void add_up(const struct tally *tallies, uint32_t n, struct tally *sum)
{
    for (uint32_t i = 0; i < n; i++) {
        sum->n_gemms += tallies[i].n_gemms;
        sum->n_rows += tallies[i].n_rows;
        for (uint32_t j = 0; j <= DEMO_CLIENTS_MAX; j++) {
            sum->n_by_sessions[j] += tallies[i].n_by_sessions[j];
        }
        if (!(tallies[i].error_max <= sum->error_max)) {
            sum->error_max = tallies[i].error_max;
            (void)snprintf(sum->worst, sizeof(sum->worst), "%s", tallies[i].worst);
        }
        if (tallies[i].failure[0]) {
            (void)fprintf(stderr, "gemmd-demo: client %u: %s\n", i, tallies[i].failure);
        }
    }
}

static void report_batching(const struct tally *sum)
{
    uint64_t n_shared = 0;
    for (uint32_t j = 2; j <= DEMO_CLIENTS_MAX; j++) {
        n_shared += sum->n_by_sessions[j];
    }
    (void)printf("  batching: %.1f %% of the requests shared a launch with other processes\n",
                 sum->n_gemms ? 100.0 * (double)n_shared / (double)sum->n_gemms : 0.0);
    for (uint32_t j = 1; j <= DEMO_CLIENTS_MAX; j++) {
        if (sum->n_by_sessions[j]) {
            (void)printf("    %2u process%s in a launch: %llu requests\n", j, j > 1 ? "es" : "",
                         (unsigned long long)sum->n_by_sessions[j]);
        }
    }
}

static bool report(const struct arguments *arguments, const struct checkpoint *checkpoint,
                   const struct tally *sum, uint32_t n_failed)
{
    double n_weights = 0;
    double seconds = arguments->demo.seconds;
    bool is_right = n_failed == 0 && sum->n_gemms > 0 && sum->error_max <= TOLERANCE;
    for (size_t i = 0; i < checkpoint->n_layers; i++) {
        n_weights += (double)checkpoint->layers[i].n * checkpoint->layers[i].k;
    }
    (void)printf(
        "  %u processes, %zu layers, %.1f M quantised weights: one copy resident, not %u\n",
        arguments->n_clients, checkpoint->n_layers, n_weights / 1e6, arguments->n_clients);
    (void)printf("  %llu products in %.1f s: %.0f GEMMs/s, %.0f rows/s, every one checked\n",
                 (unsigned long long)sum->n_gemms, seconds, (double)sum->n_gemms / seconds,
                 (double)sum->n_rows / seconds);
    report_batching(sum);
    (void)printf("  largest relative error against float64: %.2e in %s (tolerance %.0e)\n",
                 sum->error_max, sum->worst[0] ? sum->worst : "-", TOLERANCE);
    (void)printf("  %s\n", is_right ? "PASS" : "FAIL");
    return is_right;
}

static int run(struct arguments *arguments)
{
    struct checkpoint checkpoint;
    struct tally sum = {0};
    bool is_right = false;
    if (checkpoint_read(arguments->checkpoint, &checkpoint) < 0) {
        return 1;
    }
    struct tally *tallies = mmap(NULL, sizeof(*tallies) * arguments->n_clients,
                                 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tallies != MAP_FAILED && make_tasks(&arguments->demo, &checkpoint) == 0) {
        uint32_t n_failed = run_clients(arguments, tallies);
        add_up(tallies, arguments->n_clients, &sum);
        is_right = report(arguments, &checkpoint, &sum, n_failed);
    } else {
        perror("gemmd-demo");
    }
    free_tasks(&arguments->demo);
    checkpoint_finish(&checkpoint);
    return is_right ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"socket-dir", 's', "DIR", 0, "folder of the daemon's sockets", 0},
        {"clients", 'c', "N", 0, "client processes (4)", 0},
        {"seconds", 't', "S", 0, "how long to run (3)", 0},
        {0},
    };
    static const struct argp parser = {
        .options = options,
        .parser = take_option,
        .args_doc = "MODEL CHECKPOINT-DIR",
        .doc = "Run all layers of a loaded model from several processes and check every product.",
    };
    struct arguments arguments = {.demo.seconds = 3, .n_clients = 4};
    if (argp_parse(&parser, argc, argv, 0, NULL, &arguments) != 0) {
        return 2;
    }
    return run(&arguments);
}
