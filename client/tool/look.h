/* look.h - looks at a daemon's page of figures (ipc/stats.h), and what happened between two. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/stats.h"

/* Does anybody listen at the sockets beside the page? */
enum look_listener { LOOK_LISTENER_UNKNOWN, LOOK_LISTENER_THERE, LOOK_LISTENER_NONE };

struct look {
    struct stats_page page; /* a private copy */
    uint64_t at_nsec;
    enum look_listener listener; /* the caller's to know: look_take() leaves it alone */
};

/* look_take() - a copy of the page as it is now; figures of one look may be some microseconds
 * apart.
 */
void look_take(const struct stats_page *page, struct look *ret_look);

/* What happened to the figures of one device, or of several, between two looks. */
struct look_rates {
    double seconds;
    double requests, bad, rows, launches; /* a second; bad: refused, timed out or failed */
    double busy;                          /* share of the time */
    double rows_a_launch;                 /* 0 without launches */
    double shared;                        /* share of the launches with rows of several sessions */
    double ahead;                         /* ... that had been queued before their rows came */
    double vain;                          /* queued so for rows that never came, over launches */
    double queue_p50, queue_p99;          /* seconds; below 0: nothing happened */
    double request_p50, request_p99;
    double stall_p99;
    uint64_t launches_by_rows[STATS_ROW_BUCKETS];
};

/* look_rates() - of one device. */
void look_rates(const struct look *now, const struct look *then, uint32_t i_device,
                struct look_rates *ret_rates);

#define LOOK_NOTHING (-1.0)

/* look_quantile() - of the events between two histograms, in seconds, spread evenly over their
 * bucket; the last bucket ends at twice its begin. LOOK_NOTHING when there are none. */
double look_quantile(const struct stats_times *now, const struct stats_times *then, double share);

/* look_since() - seconds from a moment of the page, 0: never, to the look; 0 for what lies behind
 * it. */
double look_since(const struct look *look, uint64_t nsec);

/* A worker whose launches take longer than that, or a main thread that does not come round within
 * it, is worth a sentence. */
#define LOOK_STUCK_SECONDS 2.0

/* look_health() - what two looks say of the daemon's health, one sentence; "" when nothing is
 * wrong. Of the main thread that is known only if somebody called on it at poked_nsec; 0: nobody
 * did. */
void look_health(const struct look *now, const struct look *then, uint64_t poked_nsec, char *text,
                 uint32_t size_bytes);
