/* pace.h - how many requests a second sessions get through one device, and who should move
 * together. Pure arithmetic. */
#pragma once

#include <stdint.h>

#define PACE_MAX 64u /* sessions looked at: as many as fit into one launch */

/* Sessions that move together: each turn is one launch, then all think. */
struct pace_group {
    double run_nsec;
    double think_nsec; /* until the last of them is back */
    double n_sessions;
};

/* pace_rate() - requests a nanosecond of all groups together, each having its next launch ready
 * when it has thought, and waiting while launches of the others run. An approximation: what a group
 * waits is at least what is left of the launch that it finds running, and as long as it takes for
 * the device not to be asked for more than it can. n: 1..PACE_MAX. */
double pace_rate(const struct pace_group *groups, uint32_t n);

/* One session on a ring. */
struct pace_session {
    double think_nsec;     /* between two requests, mean */
    double deviation_nsec; /* mean distance from that */
};

/* What a launch of 1, 2, 3-4, ... rows takes (cost.h), mean over the ring. */
#define PACE_RUNS 8u
struct pace_runs {
    double nsec[PACE_RUNS];
};

/* pace_cohort() - how many of the sessions, quickest first, should move together so that all of
 * them get the most done; 0 when moving together brings less than a tenth. The others go their own
 * way: a slow session in the cohort would make every quick one wait for it, and is better served
 * whenever it asks. sessions: sorted by think_nsec, n: 1..PACE_MAX. */
uint32_t pace_cohort(const struct pace_session *sessions, uint32_t n, const struct pace_runs *runs);
