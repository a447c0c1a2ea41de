/* main.c - gemmd-demo: several processes use one model of a running daemon at once, and check it.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deploy/demo/report.h"
#include "deploy/demo/walker.h"

enum { EXIT_USAGE = 2 };

static const char usage[] =
    "usage: gemmd-demo [--socket-dir DIR] [--clients N] [--seconds S] MODEL CHECKPOINT-DIR\n"
    "\n"
    "Forks N client processes (default 4) that run every layer of MODEL, loaded in a running "
    "daemon, for\n"
    "S seconds (default 5), and check every product against float64 references that are made from\n"
    "CHECKPOINT-DIR, where the model was loaded from. Exit status 0 when all are right.\n";

/* What the processes share. */
struct board {
    atomic_uint n_ready;
    struct walk walks[PROCESSES_MAX];
};

static bool parse_number(const char *text, double min, double max, double *ret_value)
{
    char *end;

    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !(value >= min && value <= max)) {
        fprintf(stderr, "gemmd-demo: '%s' is not a number from %g to %g\n", text, min, max);
        return false;
    }
    *ret_value = value;
    return true;
}

/* Fills plan from the command line. Return: the checkpoint's folder, or NULL after saying why. */
static const char *parse_arguments(int argc, char **argv, struct walk_plan *plan)
{
    static const struct option options[] = {
        {"socket-dir", required_argument, NULL, 'd'},
        {"clients", required_argument, NULL, 'c'},
        {"seconds", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    double n_processes = plan->n_processes;
    bool is_good = true;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'd':
            plan->socket_dir = optarg;
            break;
        case 'c':
            is_good = is_good && parse_number(optarg, 1, PROCESSES_MAX, &n_processes);
            break;
        case 's':
            is_good = is_good && parse_number(optarg, 0.1, 3600, &plan->seconds);
            break;
        case 'h':
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        default:
            is_good = false;
        }
    }
    if (!is_good || optind != argc - 2) {
        fputs(usage, stderr);
        return NULL;
    }
    plan->n_processes = (uint32_t)n_processes;
    plan->model = argv[optind];
    return argv[optind + 1];
}

static struct reference *make_references(const struct checkpoint *checkpoint)
{
    struct reference *references = calloc(checkpoint->n_layers, sizeof(*references));

    for (size_t i = 0; references && i < checkpoint->n_layers; i++) {
        if (!reference_init(&references[i], &checkpoint->layers[i], i)) {
            return NULL; /* out of memory ends the program: its pages go with it */
        }
    }
    return references;
}

/* Forks the walkers and waits for all of them. Return: false when one could not be started. */
static bool run_walkers(const struct walk_plan *plan, struct board *board)
{
    uint32_t n_started = 0;

    fflush(stdout);
    while (n_started < plan->n_processes) {
        pid_t pid = fork();

        if (pid < 0) {
            perror("gemmd-demo: fork");
            break;
        }
        if (pid == 0) {
            walk_run(plan, n_started, &board->walks[n_started]);
            _exit(EXIT_SUCCESS);
        }
        n_started++;
    }
    for (uint32_t i = 0; i < n_started; i++) {
        while (wait(NULL) < 0 && errno == EINTR) {
        }
    }
    return n_started == plan->n_processes;
}

int main(int argc, char **argv)
{
    struct walk_plan plan = {.n_processes = 4, .seconds = 5.0};
    struct checkpoint checkpoint;
    const char *folder = parse_arguments(argc, argv, &plan);

    if (!folder) {
        return EXIT_USAGE;
    }
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED || !checkpoint_open(folder, &checkpoint)) {
        return EXIT_FAILURE;
    }
    struct reference *references = make_references(&checkpoint);
    if (!references) {
        fprintf(stderr, "gemmd-demo: no memory for the references\n");
        return EXIT_FAILURE;
    }
    plan.checkpoint = &checkpoint;
    plan.references = references;
    plan.n_ready = &board->n_ready;
    if (!report_residency(&plan)) {
        return EXIT_FAILURE;
    }
    bool is_started = run_walkers(&plan, board);
    bool is_passed = report_walks(&plan, board->walks) && is_started;

    for (size_t i = 0; i < checkpoint.n_layers; i++) {
        reference_finish(&references[i]);
    }
    free(references);
    checkpoint_close(&checkpoint);
    munmap(board, sizeof(*board));
    return is_passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
