/* bench_json.c - the same as the table, for programs. */
#include <string.h>

#include "ipc/base/dtype.h"

#include "client/tool/bench.h"

#define CROSSOVERS_MAX 8u

static json_t *known(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

static json_t *point_json(const struct bench_sweep *sweep, const struct bench_series *series,
                          const struct bench_point *point)
{
    struct bench_figures figures = bench_figures(sweep, series, point);
    return json_pack("{si sf si so sf sf so sb sb sb}", "m", (int)point->m, "usec", point->usec,
                     "launches", (int)point->n_launches, "times_floor", known(figures.floor_ratio),
                     "gbps", figures.gbps, "tflops", figures.tflops, "speedup",
                     known(figures.speedup), "is_eligible", (int)point->is_eligible, "is_chosen",
                     (int)point->is_chosen, "is_fastest", (int)figures.is_fastest);
}

static json_t *series_json(const struct bench_sweep *sweep, const struct bench_series *series)
{
    json_t *points = json_array();
    for (uint32_t i = 0; i < series->n_points; i++) {
        json_array_append_new(points, point_json(sweep, series, &series->points[i]));
    }
    return json_pack("{ss ss sI so so so}", "format", series->format, "kernel", series->kernel,
                     "packed_bytes", (json_int_t)series->packed_bytes, "floor_usec",
                     known(series->floor_usec), "ridge_m", known(bench_ridge(series)), "points",
                     points);
}

static json_t *name_json(const struct bench_series *series)
{
    return json_pack("{ss ss}", "format", series->format, "kernel", series->kernel);
}

static void add_crossovers(json_t *list, const struct bench_series *first,
                           const struct bench_series *second)
{
    struct bench_crossover crossovers[CROSSOVERS_MAX];
    uint32_t n = bench_crossovers(first, second, crossovers, CROSSOVERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        bool is_first = crossovers[i].is_first_faster;
        json_array_append_new(list, json_pack("{sf so so}", "m", crossovers[i].m, "faster_beyond",
                                              name_json(is_first ? first : second), "slower_beyond",
                                              name_json(is_first ? second : first)));
    }
}

static json_t *crossovers_json(const struct bench_sweep *sweep)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < sweep->n_series; i++) {
        for (uint32_t j = i + 1; j < sweep->n_series; j++) {
            if (bench_is_notable(sweep, &sweep->series[i]) &&
                bench_is_notable(sweep, &sweep->series[j])) {
                add_crossovers(list, &sweep->series[i], &sweep->series[j]);
            }
        }
    }
    return list;
}

static json_t *sweep_json(const struct bench_sweep *sweep)
{
    json_t *series = json_array();
    for (uint32_t i = 0; i < sweep->n_series; i++) {
        json_array_append_new(series, series_json(sweep, &sweep->series[i]));
    }
    return json_pack("{ss si si ss ss ss so so}", "layer", sweep->shape.name, "n",
                     (int)sweep->shape.n, "k", (int)sweep->shape.k, "device", sweep->device, "act",
                     dtype_name(sweep->act_dtype), "baseline", sweep->baseline, "series", series,
                     "crossovers", crossovers_json(sweep));
}

json_t *bench_json(const struct bench_outcome *outcomes, uint32_t n_outcomes)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n_outcomes; i++) {
        json_t *sweep = sweep_json(&outcomes[i].sweep);
        if (outcomes[i].is_padded) {
            json_object_set_new(sweep, "padded", sweep_json(&outcomes[i].padded));
        }
        json_array_append_new(list, sweep);
    }
    return json_pack("{so}", "shapes", list);
}
