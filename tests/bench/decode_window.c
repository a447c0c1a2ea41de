/* decode_window.c - see decode_window.h. */
#include "tests/bench/decode_window.h"

#include <math.h>
#include <stdlib.h>

#include "ipc/base/num.h"
#include "tests/harness/percentile.h"

#define KINDS 4u

static void add(struct decode_values *values, double value)
{
    values->at[values->n++] = value;
}

double decode_percentile(struct decode_values *values, uint32_t percent)
{
    return percentile(values->at, values->n, percent);
}

static void find_ends(struct decode_window *window, const struct decode_run *run,
                      const struct decode_scenario *scenario)
{
    window->begin_nsec = 0;
    window->end_nsec = UINT64_MAX;
    for (uint32_t i = 0; i < run->n_clients; i++) {
        const struct decode_record *record = &run->board->records[i];
        if (decode_is_prefilling(run, scenario, i)) {
            continue;
        }
        uint64_t begin_nsec = record->stamps[0].end_nsec + (uint64_t)(DECODE_WARM_UP_SECONDS * 1e9);
        window->begin_nsec = num_max(window->begin_nsec, begin_nsec);
        window->end_nsec = num_min(window->end_nsec, record->stamps[record->n_steps].begin_nsec);
    }
}

/* One pass of a client took so long; alone it takes that client own_usec. */
static void add_pass(struct decode_window *window, double usec, double own_usec, bool is_last)
{
    double ratio = own_usec > 0 ? usec / own_usec : 0;
    add(&window->passes, usec);
    add(&window->ratios, ratio);
    if (is_last) {
        add(&window->slow, ratio);
    }
}

static void look_at(struct decode_window *window, const struct decode_run *run, uint32_t i_client,
                    double own_usec)
{
    const struct decode_record *record = &run->board->records[i_client];
    uint32_t n_weights = run->shape->n_blocks * DECODE_LINEARS;
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
            add_pass(window, (double)(ready_nsec - pass_nsec) / 1e3, own_usec,
                     i_client + 1 == run->n_clients);
        }
        pass_nsec = ready_nsec;
    }
    window->n_products += n_products;
    window->fewest = fmin(window->fewest, n_products);
    window->most = fmax(window->most, n_products);
}

static struct decode_values **values_of(struct decode_window *window,
                                        struct decode_values *ret_all[KINDS])
{
    ret_all[0] = &window->passes;
    ret_all[1] = &window->ratios;
    ret_all[2] = &window->turns;
    ret_all[3] = &window->slow;
    return ret_all;
}

void decode_window_init(struct decode_window *window, const struct decode_run *run,
                        const struct decode_scenario *scenario, const struct decode_unit *unit)
{
    struct decode_values *all[KINDS];
    uint32_t n_weights = run->shape->n_blocks * DECODE_LINEARS;
    *window = (struct decode_window){.fewest = 1e300};
    for (uint32_t i = 0; i < KINDS; i++) {
        values_of(window, all)[i]->at =
            calloc((uint64_t)DECODE_CLIENTS_MAX * DECODE_STEPS_MAX, sizeof(double));
    }
    find_ends(window, run, scenario);
    for (uint32_t i = 0; i < run->n_clients; i++) {
        double usec = (double)decode_think_usec(run, scenario, i) - unit->think_usec;
        if (!decode_is_prefilling(run, scenario, i)) {
            look_at(window, run, i, unit->pass_usec > 0 ? unit->pass_usec + usec * n_weights : 0);
        }
    }
}

void decode_window_finish(struct decode_window *window)
{
    struct decode_values *all[KINDS];
    for (uint32_t i = 0; i < KINDS; i++) {
        free(values_of(window, all)[i]->at);
    }
}
