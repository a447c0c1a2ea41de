/* sched_trace.c - see sched_trace.h. */
#include "tests/harness/sched_trace.h"

#include <stdio.h>
#include <string.h>

#define USEC_MAX 1e6

static bool add_weight(struct sched_trace *trace, double usec)
{
    if (trace->n_weights == SCHED_TRACE_WEIGHTS_MAX || trace->n_clients > 0 || !(usec > 0)) {
        return false;
    }
    trace->run_usec[trace->n_weights++] = usec;
    return true;
}

static bool add_client(struct sched_trace *trace)
{
    if (trace->n_clients == SCHED_TRACE_CLIENTS_MAX) {
        return false;
    }
    trace->first_step[trace->n_clients++] = trace->n_steps;
    trace->first_step[trace->n_clients] = trace->n_steps;
    return true;
}

static bool add_step(struct sched_trace *trace, uint32_t i_weight, double usec)
{
    if (trace->n_clients == 0 || trace->n_steps == SCHED_TRACE_STEPS_MAX ||
        i_weight >= trace->n_weights || !(usec >= 0)) {
        return false;
    }
    trace->steps[trace->n_steps++] = (struct sched_trace_step){i_weight, usec};
    trace->first_step[trace->n_clients] = trace->n_steps;
    return true;
}

static bool read_line(struct sched_trace *trace, const char *line)
{
    double usec;
    uint32_t i_weight;
    if (line[0] == '#' || line[0] == '\n') {
        return true;
    }
    if (strcmp(line, "client\n") == 0) {
        return add_client(trace);
    }
    if (sscanf(line, "weight %lf", &usec) == 1) {
        return usec < USEC_MAX && add_weight(trace, usec);
    }
    if (sscanf(line, "row %lf", &usec) == 1) {
        trace->row_usec = usec;
        return usec >= 0 && usec < USEC_MAX;
    }
    return sscanf(line, "%u %lf", &i_weight, &usec) == 2 && usec < USEC_MAX &&
           add_step(trace, i_weight, usec);
}

/* Who has nothing to do would do it for ever. */
static bool is_whole(const struct sched_trace *trace)
{
    bool is_whole = trace->n_clients > 0;
    for (uint32_t i = 0; i < trace->n_clients; i++) {
        is_whole &= trace->first_step[i] < trace->first_step[i + 1];
    }
    return is_whole;
}

bool sched_trace_read(const char *path, struct sched_trace *ret_trace)
{
    char line[256];
    uint32_t n_lines = 0;
    bool is_good = true;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        perror(path);
        return false;
    }
    memset(ret_trace, 0, sizeof(*ret_trace));
    while (is_good && fgets(line, sizeof(line), file) != NULL) {
        n_lines++;
        is_good = read_line(ret_trace, line);
    }
    (void)fclose(file);
    if (!is_good || !is_whole(ret_trace)) {
        (void)fprintf(stderr, "%s, line %u: this is no trace of a scheduler's clients\n", path,
                      n_lines);
        return false;
    }
    return true;
}

bool sched_trace_write(const char *path, const char *comment, const struct sched_trace *trace)
{
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        perror(path);
        return false;
    }
    (void)fprintf(file, "# %s\nrow %.2f\n", comment, trace->row_usec);
    for (uint32_t i = 0; i < trace->n_weights; i++) {
        (void)fprintf(file, "weight %.1f\n", trace->run_usec[i]);
    }
    for (uint32_t i = 0; i < trace->n_clients; i++) {
        (void)fprintf(file, "client\n");
        for (uint32_t j = trace->first_step[i]; j < trace->first_step[i + 1]; j++) {
            (void)fprintf(file, "%u %.1f\n", trace->steps[j].i_weight, trace->steps[j].think_usec);
        }
    }
    if (fclose(file) != 0) {
        perror(path);
        return false;
    }
    return true;
}
