/* cost.h - how long launches of one weight take, by their number of rows: learned from launches
 * that ran, since nobody can know it before. Plain values, no threads. */
#pragma once

#include <stdint.h>

#define COST_BUCKETS 11u /* 1, 2, 3-4, 5-8 ... 257-512, more */

struct cost {
    float nsec[COST_BUCKETS]; /* mean of recent launches; 0: none yet */
};

/* cost_learn() - a launch of n_rows >= 1 took that long. */
void cost_learn(struct cost *cost, uint32_t n_rows, uint64_t run_nsec);

/* cost_nsec() - what a launch of n_rows will take; where none of that size has run, what the
 * nearest size took, smaller ones first: small launches read the whole weight all the same. 0 when
 * nothing is known. */
uint64_t cost_nsec(const struct cost *cost, uint32_t n_rows);
