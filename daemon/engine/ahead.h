/* ahead.h - whether it pays to queue launches before their rows are known, and how: one account a
 * ring. Plain values, no threads.
 *
 * What it brings depends on the GPU, on how many processes keep it busy, and on what a waiting
 * launch keeps their kernels from; so it is measured: laps in each way, and what a step took. The
 * best way is gone on with, and another tried for a lap now and then. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Not at all; so that it waits in line; so that it waits in its place on the GPU, where it begins
 * sooner, and kernels that need much of the GPU have to wait for it. */
enum ahead_way { AHEAD_NOT, AHEAD_IN_LINE, AHEAD_IN_PLACE, AHEAD_WAYS };

struct ahead {
    float step_nsec[AHEAD_WAYS]; /* from one launch to the next, lately; 0: not known */
    uint64_t latest_nsec;        /* when the latest launch was given out; 0: none has been */
    uint32_t n_laps;
    enum ahead_way way; /* of this lap, whose are: */
    uint32_t n_launches;
    uint32_t n_missed; /* of these: it came otherwise than was told */
    uint32_t n_steps;  /* that were measured, and the time of all of them */
    uint64_t steps_nsec;
};

/* ahead_launched() - a launch of a ring of so many nodes was given out. ahead_missed() - a launch
 * that was told of did not come about. ahead_now() - how should one be told of now? */
void ahead_launched(struct ahead *ahead, uint32_t n_nodes, uint64_t now_nsec);
void ahead_missed(struct ahead *ahead);
enum ahead_way ahead_now(const struct ahead *ahead);
