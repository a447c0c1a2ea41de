/* kernel_case.h - random weights and inputs, one launch of any kernel with guard zones around all
 * that it may write, and comparison with the reference. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "format_case.h"
#include "gk/gk.h"

/* A packed weight with its canonical form. */
struct weight_case {
    struct gk_canonical canonical;
    const struct gk_layout *layout;
    void *packed;
};
void weight_case_init(struct weight_case *weight,
                      const struct gk_canonical *canonical); /* takes over */
void weight_case_finish(struct weight_case *weight);

/* x (m, k) and y (m, n), each row on its own, unaligned, between guard zones. */
struct rows_case {
    uint32_t m;
    enum dtype dtype;
    uint32_t row_bytes;
    uint8_t *memory;
    void *rows[GK_BATCH_ROWS_MAX];
    bool has_scales; /* rows that come quantised */
    const float *scales[GK_BATCH_ROWS_MAX];
};
void rows_init(struct rows_case *rows, uint32_t m, uint32_t n_elems, enum dtype dtype);
void rows_finish(struct rows_case *rows);
void rows_random(struct rows_case *rows, struct random *random);
void rows_poison(struct rows_case *rows);
void rows_assert_guards(const struct rows_case *rows);
void rows_assert_equal(const struct rows_case *a, const struct rows_case *b);

/* kernel_find() - NULL when there is no such row. kernel_fits() - for that weight, m and types,
 * here. */
const struct gk_kernel *kernel_find(const char *name);
bool kernel_fits(const struct gk_kernel *kernel, const struct weight_case *weight,
                 const struct rows_case *x, const struct rows_case *y);

/* kernel_best() - the one that gk_select() chooses. */
const struct gk_kernel *kernel_best(const struct weight_case *weight, const struct rows_case *x,
                                    const struct rows_case *y);

/* kernel_run() - poison y and the workspace, run in n_parts, check every guard. */
void kernel_run(const struct gk_kernel *kernel, const struct weight_case *weight,
                const struct rows_case *x, struct rows_case *y, uint32_t n_parts);

/* portable_of() - the yardstick for a weight of that kind. */
const struct gk_kernel *portable_of(const struct weight_case *weight);
