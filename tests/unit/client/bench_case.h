/* bench_case.h - a daemon's answer to a bench, made up: times of kernels at m. Assertions are
 * cmocka's. */
#pragma once

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "client/tool/bench.h"

/* As cmocka's assert_float_equal(), in double. */
#define assert_near(a, b, error) assert_true(fabs((a) - (b)) <= (error))

struct bench_case_row {
    uint32_t m;
    const char *kernel;
    double usec;
    bool is_chosen;
};

/* add_format() - n rows, of which all are eligible; floor 10 us, 1 MB, 2 MFLOP a row. */
static inline void add_format(struct bench_sweep *sweep, const char *format,
                              const struct bench_case_row *cases, uint32_t n)
{
    struct msg_bench_row rows[64] = {{.m = 0}};
    struct msg_bench_result result = {.device = "test \"device\" <1> & co",
                                      .packed_bytes = 1000000,
                                      .floor_usec = 10,
                                      .flops = 2000000,
                                      .rows = rows,
                                      .n_rows = n};
    assert_true(n <= 64);
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = (struct msg_bench_row){.m = cases[i].m,
                                         .usec = cases[i].usec,
                                         .n_launches = 1,
                                         .is_eligible = 1,
                                         .is_chosen = cases[i].is_chosen};
        (void)snprintf(rows[i].kernel, sizeof(rows[i].kernel), "%s", cases[i].kernel);
    }
    assert_int_equal(bench_sweep_add(sweep, format, &result), 0);
}

/* sweep_init() - "bf16", flat at 40 us up to 16 rows and then growing with m; "int4" with two
 * kernels: one of 20 us that grows from 2 rows on, one of 25 us that never does. */
static inline void sweep_init(struct bench_sweep *sweep)
{
    static const struct bench_case_row plain[] = {
        {1, "plain", 40, true}, {16, "plain", 40, true}, {64, "plain", 160, true}};
    static const struct bench_case_row int4[] = {
        {1, "decode", 20, true}, {1, "wide", 25, false},     {16, "decode", 160, false},
        {16, "wide", 25, true},  {64, "decode", 640, false}, {64, "wide", 25, true}};
    *sweep = (struct bench_sweep){.shape = {.name = "model layer", .n = 1000, .k = 1000},
                                  .act_dtype = DTYPE_BF16,
                                  .baseline = "bf16"};
    add_format(sweep, "bf16", plain, 3);
    add_format(sweep, "int4", int4, 6);
}
