/* ahead.h - whether it pays to queue launches before their rows are known: one account a ring.
 * Plain values, no threads.
 *
 * What it brings depends on the GPU, on how many processes keep it busy, and on what a waiting
 * launch keeps their kernels from; so it is measured: laps with it and laps without, and what a
 * step took in either. The better way is gone on with, and the other tried for a lap now and then.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ahead {
    float step_nsec[2];   /* from one launch to the next, lately, without and with; 0: not known */
    uint64_t latest_nsec; /* when the latest launch was given out; 0: none has been */
    uint32_t n_laps;
    bool is_on; /* in this lap, whose are: */
    uint32_t n_launches;
    uint32_t n_missed; /* of these: it came otherwise than was told */
    uint32_t n_steps;  /* that were measured, and the time of all of them */
    uint64_t steps_nsec;
};

/* ahead_launched() - a launch of a ring of so many nodes was given out. ahead_missed() - a launch
 * that was told of did not come about. ahead_is_on() - is one to be told of now? */
void ahead_launched(struct ahead *ahead, uint32_t n_nodes, uint64_t now_nsec);
void ahead_missed(struct ahead *ahead);
bool ahead_is_on(const struct ahead *ahead);
