/* report.c - see report.h. */
#include "deploy/demo/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "deploy/demo/values.h"

static const double megabyte = 1e6;

bool report_residency(const struct walk_plan *plan)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    gemmd_client_t *client;
    gemmd_weight_t *weights;
    uint64_t packed_bytes = 0;
    size_t n_weights;

    options.socket_dir = plan->socket_dir;
    if (gemmd_open(&options, &client) != GEMMD_OK) {
        fprintf(stderr, "gemmd-demo: %s\n", gemmd_last_error());
        return false;
    }
    int status = gemmd_list_weights(client, plan->model, sizeof(*weights), &weights, &n_weights);
    if (status != GEMMD_OK) {
        fprintf(stderr, "gemmd-demo: %s\n", gemmd_last_error());
        gemmd_close(client);
        return false;
    }
    for (size_t i = 0; i < n_weights; i++) {
        packed_bytes += weights[i].packed_bytes;
    }
    free(weights);
    gemmd_close(client);
    printf("weights     %zu layers of '%s', %.1f MB packed: one copy, in the daemon\n", n_weights,
           plan->model, (double)packed_bytes / megabyte);
    printf("            %" PRIu32 " processes with a copy each would hold %.1f MB\n",
           plan->n_processes, (double)packed_bytes * plan->n_processes / megabyte);
    return true;
}

static struct walk sum_of(const struct walk_plan *plan, const struct walk *walks)
{
    struct walk total = {.is_done = true};

    for (uint32_t i = 0; i < plan->n_processes; i++) {
        const struct walk *walk = &walks[i];

        total.n_gemms += walk->n_gemms;
        total.n_rows += walk->n_rows;
        total.n_launches += walk->n_launches;
        total.error.n_elements += walk->error.n_elements;
        total.error.n_wrong += walk->error.n_wrong;
        total.error.squared_error += walk->error.squared_error;
        total.error.squared_product += walk->error.squared_product;
        total.seconds = fmax(total.seconds, walk->seconds);
        total.is_done = total.is_done && walk->is_done;
        for (uint32_t n = 0; n <= PROCESSES_MAX; n++) {
            total.n_by_sessions[n] += walk->n_by_sessions[n];
        }
    }
    return total;
}

static void print_batching(const struct walk *total)
{
    double n_gemms = (double)total->n_gemms;

    printf("batching    %.2f requests to a launch on average\n", n_gemms / total->n_launches);
    for (uint32_t n = 1; n <= PROCESSES_MAX; n++) {
        double share = (double)total->n_by_sessions[n] / n_gemms;

        if (total->n_by_sessions[n] > 0) {
            printf("            %5.1f%% of requests in launches of %2" PRIu32 " process%s %.*s\n",
                   100.0 * share, n, n == 1 ? "  " : "es", (int)(share * 40.0 + 0.5),
                   "########################################");
        }
    }
}

static void print_errors(const struct walk_plan *plan, const struct walk *walks,
                         const struct walk *total)
{
    printf("errors      %" PRIu64 " of %" PRIu64 " elements outside the tolerance\n",
           total->error.n_wrong, total->error.n_elements);
    for (uint32_t i = 0; i < plan->n_processes; i++) {
        const struct error_sum *error = &walks[i].error;

        printf("            process %" PRIu32
               ", %-4s: relative error %.1e, largest %.2g of its tolerance\n",
               i, value_name(walks[i].dtype), sqrt(error->squared_error / error->squared_product),
               error->worst_share);
    }
}

bool report_walks(const struct walk_plan *plan, const struct walk *walks)
{
    struct walk total = sum_of(plan, walks);
    bool is_passed = total.is_done && total.n_gemms > 0 && total.error.n_wrong == 0;

    if (total.n_gemms > 0 && total.seconds > 0.0) {
        printf("speed       %" PRIu64 " GEMMs (%" PRIu64
               " rows) in %.1f s: %.0f GEMMs/s, every product checked\n",
               total.n_gemms, total.n_rows, total.seconds, (double)total.n_gemms / total.seconds);
        print_batching(&total);
        print_errors(plan, walks, &total);
    }
    printf("%s\n", is_passed ? "PASS" : "FAIL");
    return is_passed;
}
