/* pace.c - see pace.h. A closed queue with one server: group i comes back every
 * run_i + think_i + wait_i, and over all of them run_i / cycle_i cannot be more than 1. */
#include "daemon/engine/pace.h"

#define HALVINGS   12u
#define GAIN_MIN   1.1
#define CANDIDATES 16u

/* What each group waits for the rest of the others' launches, if nobody queues. */
static void residuals(const struct pace_group *groups, uint32_t n, double *ret_wait)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        double run = groups[i].run_nsec;
        ret_wait[i] = run * run / (2 * (run + groups[i].think_nsec));
        sum += ret_wait[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        ret_wait[i] = sum - ret_wait[i];
    }
}

static double load(const struct pace_group *groups, uint32_t n, const double *wait, double extra)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += groups[i].run_nsec / (groups[i].run_nsec + groups[i].think_nsec + wait[i] + extra);
    }
    return sum;
}

/* What everybody waits beyond that, so that the device is asked for no more than all its time. */
static double queueing(const struct pace_group *groups, uint32_t n, const double *wait)
{
    double low = 0;
    double high = 0;
    for (uint32_t i = 0; i < n; i++) {
        high += groups[i].run_nsec;
    }
    if (load(groups, n, wait, 0) <= 1) {
        return 0;
    }
    for (uint32_t i = 0; i < HALVINGS; i++) {
        double middle = (low + high) / 2;
        if (load(groups, n, wait, middle) > 1) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return high;
}

double pace_rate(const struct pace_group *groups, uint32_t n)
{
    double wait[PACE_MAX] = {0};
    residuals(groups, n, wait);
    double extra = queueing(groups, n, wait);
    double rate = 0;
    for (uint32_t i = 0; i < n; i++) {
        rate +=
            groups[i].n_sessions / (groups[i].run_nsec + groups[i].think_nsec + wait[i] + extra);
    }
    return rate;
}

static double run_of(const struct pace_runs *runs, uint32_t n_rows)
{
    uint32_t bucket = 0;
    while (bucket < PACE_RUNS - 1 && (1u << bucket) < n_rows) {
        bucket++;
    }
    return runs->nsec[bucket];
}

/* The rate if the first n_together move together. Of n times that are spread evenly around a mean
 * by twice the mean distance, the latest is that far after the mean. */
static double rate_of(const struct pace_session *sessions, uint32_t n, uint32_t n_together,
                      const struct pace_runs *runs)
{
    struct pace_group groups[PACE_MAX];
    uint32_t n_groups = 0;
    double last = n_together;
    const struct pace_session *slowest = &sessions[n_together - 1];
    groups[n_groups++] = (struct pace_group){
        .run_nsec = run_of(runs, n_together),
        .think_nsec = slowest->think_nsec + 2 * slowest->deviation_nsec * (last - 1) / (last + 1),
        .n_sessions = n_together,
    };
    for (uint32_t i = n_together; i < n; i++) {
        groups[n_groups++] = (struct pace_group){run_of(runs, 1), sessions[i].think_nsec, 1};
    }
    return pace_rate(groups, n_groups);
}

uint32_t pace_cohort(const struct pace_session *sessions, uint32_t n, const struct pace_runs *runs)
{
    uint32_t best = 0;
    double best_rate = GAIN_MIN * rate_of(sessions, n, 1, runs);
    uint32_t stride = (n + CANDIDATES - 1) / CANDIDATES;
    for (uint32_t n_together = n; n_together >= 2; n_together -= stride) {
        double rate = rate_of(sessions, n, n_together, runs);
        if (rate > best_rate) {
            best = n_together;
            best_rate = rate;
        }
        if (n_together < 2 + stride) {
            break;
        }
    }
    return best;
}
