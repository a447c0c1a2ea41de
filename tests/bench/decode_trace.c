/* decode_trace.c - see decode_trace.h. */
#include "tests/bench/decode_trace.h"

#include <math.h>
#include <string.h>

/* Sums over the launches of one weight. */
struct sums {
    double n, rows, usec, rows_rows, rows_usec;
};

static void add_samples(const struct decode_samples *client, struct sums *sums)
{
    for (uint32_t i = 0; i < client->n; i++) {
        const struct decode_sample *sample = &client->at[i];
        struct sums *of = &sums[sample->i_weight];
        of->n++;
        of->rows += sample->n_rows;
        of->usec += (double)sample->run_usec;
        of->rows_rows += (double)sample->n_rows * sample->n_rows;
        of->rows_usec += sample->n_rows * (double)sample->run_usec;
    }
}

/* Least squares around each weight's own means. */
static double slope_of(const struct sums *sums, uint32_t n_weights)
{
    double rows = 0, both = 0;
    for (uint32_t i = 0; i < n_weights; i++) {
        if (sums[i].n > 0) {
            rows += sums[i].rows_rows - sums[i].rows * sums[i].rows / sums[i].n;
            both += sums[i].rows_usec - sums[i].rows * sums[i].usec / sums[i].n;
        }
    }
    return rows > 0 ? fmax(0, both / rows) : 0;
}

static void set_runs(const struct sums *sums, struct sched_trace *trace)
{
    double total_usec = 0, n_used = 0;
    for (uint32_t i = 0; i < trace->n_weights; i++) {
        if (sums[i].n > 0) {
            double more_rows = sums[i].rows / sums[i].n - 1;
            trace->run_usec[i] = fmax(0.1, sums[i].usec / sums[i].n - trace->row_usec * more_rows);
            total_usec += trace->run_usec[i];
            n_used++;
        }
    }
    for (uint32_t i = 0; i < trace->n_weights; i++) {
        trace->run_usec[i] = sums[i].n > 0 ? trace->run_usec[i] : total_usec / n_used;
    }
}

void decode_trace_make(const struct decode_samples *clients, uint32_t n_clients, uint32_t n_weights,
                       struct sched_trace *ret_trace)
{
    struct sums sums[SCHED_TRACE_WEIGHTS_MAX] = {{0}};
    memset(ret_trace, 0, sizeof(*ret_trace));
    ret_trace->n_weights = n_weights;
    ret_trace->n_clients = n_clients;
    for (uint32_t i = 0; i < n_clients; i++) {
        add_samples(&clients[i], sums);
        ret_trace->first_step[i] = ret_trace->n_steps;
        for (uint32_t j = 0; j < clients[i].n; j++) {
            const struct decode_sample *sample = &clients[i].at[j];
            ret_trace->steps[ret_trace->n_steps++] =
                (struct sched_trace_step){sample->i_weight, (double)sample->think_usec};
        }
    }
    ret_trace->first_step[n_clients] = ret_trace->n_steps;
    ret_trace->row_usec = slope_of(sums, n_weights);
    set_runs(sums, ret_trace);
}
