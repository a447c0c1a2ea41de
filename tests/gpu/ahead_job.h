/* ahead_job.h - a product to be launched ordinarily and armed, and what becomes of its rows. x, y
 * and the words are page-locked, so that the CPU sees what the GPU did. Whatever fails ends the
 * test. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/device/device.h"

#define JOB_ROWS_MAX    16u
#define JOB_LONG_USEC   1000000u /* nobody is late */
#define JOB_POISON      0xa5
#define JOB_NOT_WRITTEN 0xffffffffu

extern struct device *job_device; /* the test's */

struct job {
    struct gk_problem problem;
    const struct gk_kernel *kernel;
    struct region weight;
    uint8_t *x; /* (JOB_ROWS_MAX, k) */
    uint8_t *y; /* (2, JOB_ROWS_MAX, n): of ordinary and of armed launches */
    uint64_t x_row_bytes;
    uint64_t y_row_bytes;
    uint32_t *words; /* (JOB_ROWS_MAX): what signals write */
    uint32_t *ready; /* (JOB_ROWS_MAX): what tells the device that x is there */
};

/* Tables of one launch. */
struct tables {
    const void *x_rows[JOB_ROWS_MAX];
    void *y_rows[JOB_ROWS_MAX];
    struct device_signal signals[JOB_ROWS_MAX];
};

/* job_init() - a weight of that description with pseudo-random rows. job_init_small() - of one
 * strip, which is done in no time. */
void job_init(struct job *job, const struct gk_desc *desc, enum dtype x_dtype, enum dtype y_dtype);
void job_init_small(struct job *job);
void job_finish(struct job *job);

/* job_launch() - a launch of at most m rows. job_fill_in() - row i of x to row i of y, whose first
 * half is for ordinary launches. job_end_of() - waits; its result. */
struct device_launch job_launch(const struct job *job, uint32_t m);
void job_fill_in(const struct job *job, uint32_t m, bool is_ahead, struct tables *tables,
                 struct device_launch *launch);
int job_end_of(struct device_launch *launch);

/* job_poison() - y and the words of signals. job_is_poisoned() - are those bytes? */
void job_poison(const struct job *job);
bool job_is_poisoned(const uint8_t *bytes, uint64_t n);

/* job_expect_rows() - m rows of an armed launch are the ordinary ones, with their signals, and
 * nothing else is there. */
void job_expect_rows(const struct job *job, uint32_t m);

/* job_main() - the tests on the first GPU, all or the one that argv[1] names; the exit status, 77
 * without a GPU of compute capability 9.0. */
int job_main(const struct CMUnitTest *tests, size_t n_tests, int argc, char **argv);

/* job_run_ordinary() - launch m rows. job_run_armed() - arm for `most`, then bring x and fire m. */
void job_run_ordinary(const struct job *job, uint32_t m);
void job_run_armed(const struct job *job, uint32_t m, uint32_t most);
