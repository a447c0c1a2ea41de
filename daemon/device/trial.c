/* trial.c - see trial.h. */
#include "daemon/device/trial.h"

#include <math.h>
#include <stdlib.h>

#include "ipc/base/num.h"

#define ROUNDS       5u
#define LAUNCHES_MAX 1000u

/* ---- rows ---- */

struct trial_layout trial_layout(const struct gk_problem *problem, uint64_t workspace_bytes)
{
    struct trial_layout layout = {
        .x_offset = num_align_up(workspace_bytes, 256),
        .x_row_bytes = (uint64_t)problem->desc.k * dtype_bytes(problem->x_dtype),
        .y_row_bytes = (uint64_t)problem->desc.n * dtype_bytes(problem->y_dtype),
    };
    layout.y_offset = num_align_up(layout.x_offset + problem->m * layout.x_row_bytes, 256);
    layout.total_bytes = layout.y_offset + problem->m * layout.y_row_bytes;
    return layout;
}

void trial_launch(const struct trial_layout *layout, uint8_t *memory,
                  const struct gk_problem *problem, struct trial_rows *rows,
                  struct gk_launch *ret_launch)
{
    uint8_t *x = memory + layout->x_offset, *y = memory + layout->y_offset;
    for (uint32_t i = 0; i < problem->m && i < GK_BATCH_ROWS_MAX; i++) {
        rows->x[i] = x + i * layout->x_row_bytes;
        rows->y[i] = y + i * layout->y_row_bytes;
    }
    *ret_launch = (struct gk_launch){
        .problem = *problem,
        .prefill = {.x = x,
                    .y = y,
                    .x_stride_bytes = layout->x_row_bytes,
                    .y_stride_bytes = layout->y_row_bytes},
        .x_rows = rows->x,
        .y_rows = rows->y,
        .workspace = memory,
    };
}

/* ---- rounds ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How many launches a round may have, so that all rounds together keep to the budget. */
static uint32_t launches_a_round(double usec, uint32_t budget_usec)
{
    double n = (double)budget_usec / ROUNDS / fmax(usec, 0.1);
    return (uint32_t)fmin(fmax(n, 1.0), (double)LAUNCHES_MAX);
}

int trial_median(trial_round_fn round, void *arg, uint32_t budget_usec, double *ret_usec,
                 struct reason *why)
{
    double usec[ROUNDS];
    double first_usec;
    int r = round(arg, 1, &first_usec, why);
    r = r != 0 ? r : round(arg, 1, &first_usec, why);
    if (r != 0) {
        return r;
    }
    uint32_t n_launches = launches_a_round(first_usec, budget_usec);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        r = round(arg, n_launches, &usec[i], why);
        if (r != 0) {
            return r;
        }
    }
    qsort(usec, ROUNDS, sizeof(usec[0]), compare);
    *ret_usec = usec[ROUNDS / 2] / n_launches;
    return 0;
}
