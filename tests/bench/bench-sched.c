/* bench-sched.c - policies x scenarios on a virtual clock: what natural batching and rendezvous get
 * out of one device, and what each client notices of it.
 *
 *   per run      requests finished in the time of one launch
 *   per launch   requests that shared a launch, mean
 *   slow/fast    requests of the slowest client over those of the fastest
 *   last/ms      requests of the last client, the odd one in some scenarios, a millisecond
 *   pass         time of a pass over the same client's alone: p50, p99
 *   stall        from request to launch, us: p50, p99
 *   in step      sessions that the scheduler lets share launches
 *
 * A second table compares rendezvous without and with launches queued ahead, on a GPU behind MPS:
 * 10 us a launch and 0.4 for each further row; from giving it out until it begins 9 us, and 0.7 for
 * each other process; 3 us if it was queued ahead, and as much for one that was in vain.
 *
 *   gain         requests with over those without
 *   armed        launches queued ahead, of all launches; fired: those of them that got their rows
 *
 * Usage: bench-sched [TRACE...]: of clients that were recorded (bench-decode --trace) instead.
 * Exit status 1 if rendezvous loses more than 3% to natural batching anywhere. Nothing in it
 * depends on the machine. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ipc/base/num.h"
#include "tests/harness/sched_sim.h"

#define LOSS_MAX      0.03
#define AHEAD_SECONDS 0.3
#define SECONDS       1.0 /* of the virtual clock; the first half is the way in */

static struct sim_client thinking(double think_usec)
{
    return (struct sim_client){.think_usec = think_usec,
                               .jitter = 0.2,
                               .pass_think_usec = 200,
                               .hold_usec_max = -1,
                               .priority = SCHED_NORMAL};
}

static void all_think(struct sim_setup *setup, double think_usec)
{
    for (uint32_t i = 0; i < setup->n_clients; i++) {
        setup->clients[i] = thinking(think_usec);
    }
}

static void think_5(struct sim_setup *setup)
{
    all_think(setup, 5);
}

static void think_20(struct sim_setup *setup)
{
    all_think(setup, 20);
}

static void think_3_to_40(struct sim_setup *setup)
{
    for (uint32_t i = 0; i < setup->n_clients; i++) {
        double share = setup->n_clients > 1 ? (double)i / (setup->n_clients - 1) : 0;
        setup->clients[i] = thinking(3 + 37 * share);
    }
}

static void one_thinks_500(struct sim_setup *setup)
{
    all_think(setup, 5);
    setup->clients[setup->n_clients - 1].think_usec = 500;
}

/* Layers of 4 to 16 us, as an 8B model has them, and a think time that is another at each step. */
static void small_layers(struct sim_setup *setup)
{
    all_think(setup, 22.5);
    setup->run_usec = 8;
    setup->n_layers = 128;
    for (uint32_t i = 0; i < setup->n_clients; i++) {
        setup->clients[i].jitter = 0.78;
    }
}

static void small_layers_think_5(struct sim_setup *setup)
{
    all_think(setup, 5);
    setup->run_usec = 8;
    setup->n_layers = 128;
}

static void three_at_once(struct sim_setup *setup)
{
    all_think(setup, 10);
    setup->n_layers = 279;
    for (uint32_t i = 0; i < setup->n_clients; i++) {
        setup->clients[i].n_burst = 3;
    }
}

static void two_models(struct sim_setup *setup)
{
    all_think(setup, 5);
    for (uint32_t i = 0; i < setup->n_clients; i++) {
        setup->clients[i].model = i % 2;
    }
}

static void experts(struct sim_setup *setup)
{
    all_think(setup, 5);
    for (uint32_t i = 0; i < setup->n_clients; i++) {
        setup->clients[i].n_experts = 8;
    }
}

static void no_order(struct sim_setup *setup)
{
    all_think(setup, 5);
    for (uint32_t i = 0; i < setup->n_clients; i++) {
        setup->clients[i].is_random = true;
    }
}

static void one_without_order(struct sim_setup *setup)
{
    all_think(setup, 5);
    setup->clients[0].is_random = true;
}

static void stalls(struct sim_setup *setup)
{
    all_think(setup, 5);
    for (uint32_t i = 0; i < setup->n_clients; i++) {
        setup->clients[i].stall_share = 0.002;
        setup->clients[i].stall_usec = 3000;
    }
}

static void come_and_go(struct sim_setup *setup)
{
    all_think(setup, 5);
    for (uint32_t i = 1; i < setup->n_clients; i++) {
        setup->clients[i].join_usec = 1e6 * setup->seconds * i / setup->n_clients / 2;
        setup->clients[i].leave_usec = i % 3 == 0 ? 1e6 * setup->seconds * 0.8 : 0;
    }
}

static void one_prefills(struct sim_setup *setup)
{
    all_think(setup, 20);
    setup->clients[0].prefill_share = 1;
    setup->clients[0].prefill_rows = 4096;
}

static void rows_cost(struct sim_setup *setup)
{
    all_think(setup, 20);
    setup->row_usec = setup->run_usec;
}

static void half_may_not_be_held(struct sim_setup *setup)
{
    all_think(setup, 5);
    for (uint32_t i = 0; i < setup->n_clients; i += 2) {
        setup->clients[i].hold_usec_max = 0;
    }
}

struct scenario {
    const char *name;
    void (*make)(struct sim_setup *setup);
};

static const struct scenario scenarios[] = {
    {"think 5 us", think_5},
    {"think 20 us", think_20},
    {"think 3..40 us", think_3_to_40},
    {"one thinks 500 us", one_thinks_500},
    {"8 us, think 5 us", small_layers_think_5},
    {"8 us, think 5..40", small_layers},
    {"three at once", three_at_once},
    {"two models", two_models},
    {"experts", experts},
    {"no order", no_order},
    {"one without order", one_without_order},
    {"stalls of 3 ms", stalls},
    {"come and go", come_and_go},
    {"one prefills", one_prefills},
    {"rows cost in full", rows_cost},
    {"half not held", half_may_not_be_held},
};

static void run(const struct scenario *scenario, uint32_t n, enum sched_mode mode, double seconds,
                struct sim_result *ret_result)
{
    static struct sim_setup setup;
    memset(&setup, 0, sizeof(setup));
    setup = (struct sim_setup){.mode = mode,
                               .n_layers = 280,
                               .n_clients = n,
                               .run_usec = 30,
                               .gap_usec = 4,
                               .queue_usec = 1,
                               .n_ahead = 2,
                               .seconds = seconds,
                               .seed = 1};
    scenario->make(&setup);
    sim_run(&setup, ret_result);
}

static void run_ahead(const struct scenario *scenario, uint32_t n, bool may_arm,
                      struct sim_result *ret_result)
{
    static struct sim_setup setup;
    memset(&setup, 0, sizeof(setup));
    setup = (struct sim_setup){.mode = SCHED_RENDEZVOUS,
                               .n_layers = 280,
                               .n_clients = n,
                               .run_usec = 10,
                               .row_usec = 0.4,
                               .gap_usec = 9 + 0.7 * (n - 1),
                               .may_arm = may_arm,
                               .fired_usec = 3,
                               .disarm_usec = 3,
                               .queue_usec = 1,
                               .n_ahead = 2,
                               .seconds = AHEAD_SECONDS,
                               .seed = 1};
    scenario->make(&setup);
    sim_run(&setup, ret_result);
}

/* False if launches ahead are the losers. */
static bool compare_ahead(const struct scenario *scenario, uint32_t n)
{
    struct sim_result without;
    struct sim_result with;
    run_ahead(scenario, n, false, &without);
    run_ahead(scenario, n, true, &with);
    double gain = with.per_run / without.per_run;
    double n_launches = 0;
    for (uint32_t i = 0; i < SCHED_CLOSES; i++) {
        n_launches += (double)with.stats.n_closed[i];
    }
    printf("%-19s %2u %8.2f %8.2f %6.2f %7.2f %7.2f %7.2f %7.2f\n", scenario->name, n,
           without.per_run, with.per_run, gain, with.pass_p50, with.per_launch,
           (double)with.n_armed / n_launches,
           (double)with.n_fired / (double)num_max(1, with.n_armed));
    if (gain < 1 - LOSS_MAX) {
        printf("  launches ahead lose %.0f%%\n", 100 * (1 - gain));
        return false;
    }
    return true;
}

static void print_row(const char *scenario, uint32_t n, enum sched_mode mode, double seconds,
                      const struct sim_result *result)
{
    static const char *const modes[] = {"off", "natural", "rendezvous"};
    printf("%-19s %2u  %-10s %7.2f %7.2f %9.2f %7.1f %7.2f %7.2f %8.1f %8.1f %7u\n", scenario, n,
           modes[mode], result->per_run, result->per_launch, result->slow_to_fast,
           (double)result->n_done[n - 1] / (seconds * 500), result->pass_p50, result->pass_p99,
           result->stall_p50_usec, result->stall_p99_usec, result->stats.n_in_step);
}

/* False if rendezvous is the loser. */
static bool judge(const struct sim_result results[SCHED_RENDEZVOUS + 1])
{
    double ratio = results[SCHED_RENDEZVOUS].per_run / results[SCHED_NATURAL].per_run;
    if (ratio < 1 - LOSS_MAX) {
        printf("  rendezvous loses %.0f%% to natural batching\n", 100 * (1 - ratio));
        return false;
    }
    return true;
}

/* All policies of a row. */
static bool compare(const struct scenario *scenario, uint32_t n, double seconds)
{
    struct sim_result results[SCHED_RENDEZVOUS + 1];
    for (uint32_t mode = SCHED_OFF; mode <= SCHED_RENDEZVOUS; mode++) {
        run(scenario, n, (enum sched_mode)mode, seconds, &results[mode]);
        print_row(scenario->name, n, (enum sched_mode)mode, seconds, &results[mode]);
    }
    return judge(results);
}

static bool compare_traced(const char *path)
{
    static struct sched_trace trace;
    static struct sim_setup setup;
    struct sim_result results[SCHED_RENDEZVOUS + 1];
    const char *slash = strrchr(path, '/');
    if (!sched_trace_read(path, &trace)) {
        return false;
    }
    sim_setup_trace(&trace, &setup);
    setup.n_ahead = 2;
    setup.seconds = SECONDS;
    setup.seed = 1;
    for (uint32_t mode = SCHED_OFF; mode <= SCHED_RENDEZVOUS; mode++) {
        setup.mode = (enum sched_mode)mode;
        sim_run(&setup, &results[mode]);
        print_row(slash != NULL ? slash + 1 : path, trace.n_clients, setup.mode, SECONDS,
                  &results[mode]);
    }
    return judge(results);
}

int main(int argc, char **argv)
{
    static const uint32_t counts[] = {2, 4, 8, 16};
    bool has_lost = false;
    printf("launches of 30 us, 280 weights, unless the scenario says otherwise\n"
           "%-19s %2s  %-10s %7s %7s %9s %7s %7s %7s %8s %8s %7s\n",
           "clients", "N", "policy", "per run", "/launch", "slow/fast", "last/ms", "pass50",
           "pass99", "stall50", "stall99", "in step");
    for (int i = 1; i < argc; i++) {
        has_lost |= !compare_traced(argv[i]);
    }
    for (uint32_t i = 0; argc == 1 && i < ARRAY_LENGTH(scenarios); i++) {
        for (uint32_t j = 0; j < ARRAY_LENGTH(counts); j++) {
            has_lost |= !compare(&scenarios[i], counts[j], SECONDS);
        }
    }
    if (argc == 1) {
        printf("\n%-19s %2s %8s %8s %6s %7s %7s %7s %7s\n", "queued ahead", "N", "without", "with",
               "gain", "pass50", "/launch", "armed", "fired");
    }
    for (uint32_t i = 0; argc == 1 && i < ARRAY_LENGTH(scenarios); i++) {
        for (uint32_t n = 1; n <= 16; n *= 4) {
            has_lost |= !compare_ahead(&scenarios[i], n);
        }
    }
    return has_lost ? 1 : 0;
}
