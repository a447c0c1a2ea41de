/* bench_series.c - series out of the daemon's rows, and what can be read from them. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/error.h"

#include "client/tool/bench.h"

#define TIE 1.01 /* times: closer than that is no difference */

/* ---- gathering ---- */

static struct bench_series *find_series(struct bench_sweep *sweep, const char *format,
                                        const char *kernel)
{
    for (uint32_t i = 0; i < sweep->n_series; i++) {
        struct bench_series *series = &sweep->series[i];
        if (strcmp(series->format, format) == 0 && strcmp(series->kernel, kernel) == 0) {
            return series;
        }
    }
    return NULL;
}

/* NULL: there is no room. */
static struct bench_series *add_series(struct bench_sweep *sweep, const char *format,
                                       const struct msg_bench_result *result, const char *kernel)
{
    if (sweep->n_series == BENCH_SERIES_MAX) {
        return NULL;
    }
    struct bench_series *series = &sweep->series[sweep->n_series++];
    *series = (struct bench_series){.format = format,
                                    .floor_usec = result->floor_usec,
                                    .packed_bytes = result->packed_bytes,
                                    .flops = result->flops};
    memcpy(series->kernel, kernel, sizeof(series->kernel));
    return series;
}

/* Rows come by m; one that does not fit, or comes twice, is a daemon's that we do not know. */
static void add_point(struct bench_series *series, const struct msg_bench_row *row)
{
    uint32_t n = series->n_points;
    if (n == MSG_BENCH_M_MAX || (n > 0 && series->points[n - 1].m >= row->m) || !(row->usec > 0)) {
        return;
    }
    series->points[series->n_points++] = (struct bench_point){.m = row->m,
                                                              .usec = row->usec,
                                                              .n_launches = row->n_launches,
                                                              .is_eligible = row->is_eligible != 0,
                                                              .is_chosen = row->is_chosen != 0};
}

int bench_sweep_add(struct bench_sweep *sweep, const char *format,
                    const struct msg_bench_result *result)
{
    if (!sweep->series) {
        sweep->series = calloc(BENCH_SERIES_MAX, sizeof(*sweep->series));
    }
    if (!sweep->series) {
        return err_raise(-ENOMEM);
    }
    memcpy(sweep->device, result->device, sizeof(sweep->device));
    for (uint32_t i = 0; i < result->n_rows; i++) {
        const struct msg_bench_row *row = &result->rows[i];
        struct bench_series *series = find_series(sweep, format, row->kernel);
        series = series ? series : add_series(sweep, format, result, row->kernel);
        if (series) {
            add_point(series, row);
        }
    }
    return 0;
}

void bench_sweep_finish(struct bench_sweep *sweep)
{
    free(sweep->series);
    *sweep = (struct bench_sweep){.series = NULL};
}

/* ---- looking up ---- */

const struct bench_point *bench_find_point(const struct bench_series *series, uint32_t m)
{
    for (uint32_t i = 0; i < series->n_points; i++) {
        if (series->points[i].m == m) {
            return &series->points[i];
        }
    }
    return NULL;
}

double bench_series_usec(const struct bench_series *series, uint32_t m)
{
    const struct bench_point *point = bench_find_point(series, m);
    return point ? point->usec : 0;
}

double bench_best_usec(const struct bench_sweep *sweep, const char *format, uint32_t m)
{
    double best = 0;
    for (uint32_t i = 0; i < sweep->n_series; i++) {
        const struct bench_series *series = &sweep->series[i];
        double usec = bench_series_usec(series, m);
        bool is_asked = !format || strcmp(series->format, format) == 0;
        if (is_asked && usec > 0 && (best == 0 || usec < best)) {
            best = usec;
        }
    }
    return best;
}

struct bench_figures bench_figures(const struct bench_sweep *sweep,
                                   const struct bench_series *series,
                                   const struct bench_point *point)
{
    double baseline_usec = bench_best_usec(sweep, sweep->baseline, point->m);
    return (struct bench_figures){
        .floor_ratio = series->floor_usec > 0 ? point->usec / series->floor_usec : 0,
        .gbps = (double)series->packed_bytes / (point->usec * 1e3),
        .tflops = (double)series->flops * point->m / (point->usec * 1e6),
        .speedup = baseline_usec / point->usec,
        .is_fastest = point->usec <= bench_best_usec(sweep, NULL, point->m),
    };
}

static int compare_rows(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool has_row(const uint32_t *m, uint32_t n, uint32_t wanted)
{
    for (uint32_t i = 0; i < n; i++) {
        if (m[i] == wanted) {
            return true;
        }
    }
    return false;
}

uint32_t bench_sweep_rows(const struct bench_sweep *sweep, uint32_t ret_m[MSG_BENCH_M_MAX])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sweep->n_series; i++) {
        for (uint32_t j = 0; j < sweep->series[i].n_points; j++) {
            uint32_t m = sweep->series[i].points[j].m;
            if (n < MSG_BENCH_M_MAX && !has_row(ret_m, n, m)) {
                ret_m[n++] = m;
            }
        }
    }
    qsort(ret_m, n, sizeof(*ret_m), compare_rows);
    return n;
}

bool bench_is_notable(const struct bench_sweep *sweep, const struct bench_series *series)
{
    for (uint32_t i = 0; i < series->n_points; i++) {
        const struct bench_point *point = &series->points[i];
        if (point->is_chosen || point->usec <= bench_best_usec(sweep, series->format, point->m)) {
            return true;
        }
    }
    return false;
}

/* ---- ridge and crossovers ---- */

double bench_ridge(const struct bench_series *series)
{
    if (series->n_points < 2) {
        return 0;
    }
    const struct bench_point *fewest = &series->points[0];
    const struct bench_point *most = &series->points[series->n_points - 1];
    return most->usec < 2 * fewest->usec ? 0 : most->m * fewest->usec / most->usec;
}

/* Where the line between two points (log2 m, log ratio) meets 0. */
static double meeting(double m0, double ratio0, double m1, double ratio1)
{
    double share = log(ratio0) / (log(ratio0) - log(ratio1));
    return exp2(log2(m0) + share * (log2(m1) - log2(m0)));
}

uint32_t bench_crossovers(const struct bench_series *first, const struct bench_series *second,
                          struct bench_crossover *ret_crossovers, uint32_t n_max)
{
    uint32_t n = 0;
    double m_before = 0; /* of the last m at which they differ; 0: none yet */
    double ratio_before = 1;
    for (uint32_t i = 0; i < first->n_points && n < n_max; i++) {
        double m = first->points[i].m;
        double usec = bench_series_usec(second, first->points[i].m);
        double ratio = usec > 0 ? first->points[i].usec / usec : 1;
        if (ratio < TIE && ratio > 1 / TIE) {
            continue;
        }
        if (m_before > 0 && (ratio > 1) != (ratio_before > 1)) {
            ret_crossovers[n++] = (struct bench_crossover){
                meeting(m_before, ratio_before, m, ratio), .is_first_faster = ratio < 1};
        }
        m_before = m;
        ratio_before = ratio;
    }
    return n;
}
