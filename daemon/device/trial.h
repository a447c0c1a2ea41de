/* trial.h - what timings of kernels have in common on every device: rows to work on, rounds of
 * launches, and the median of them. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"
#include "ipc/base/check.h"

/* Workspace, x and y of a launch in one block of memory; the workspace comes first. */
struct trial_layout {
    uint64_t x_offset;
    uint64_t x_row_bytes;
    uint64_t y_offset;
    uint64_t y_row_bytes;
    uint64_t total_bytes;
};
struct trial_layout trial_layout(const struct gk_problem *problem, uint64_t workspace_bytes);

/* trial_launch() - the launch of a problem in a block at `memory`, which is only computed with: its
 * rows by address and stride, and in the tables as far as they go, which must stay where they are.
 * The packed weight is the caller's. */
struct trial_rows {
    const void *x[GK_BATCH_ROWS_MAX];
    void *y[GK_BATCH_ROWS_MAX];
};
void trial_launch(const struct trial_layout *layout, uint8_t *memory,
                  const struct gk_problem *problem, struct trial_rows *rows,
                  struct gk_launch *ret_launch);

/* trial_median() - microseconds a launch: `round` runs n_launches and tells how long they took
 * together. One round warms up, one finds out how many launches fit the budget. 0, or what a round
 * returned. */
typedef int (*trial_round_fn)(void *arg, uint32_t n_launches, double *ret_usec, struct reason *why);
int trial_median(trial_round_fn round, void *arg, uint32_t budget_usec, double *ret_usec,
                 struct reason *why) GD_MUST_CHECK;
