/* bench_table.c - a sweep for people: for each number of rows who took how long, then where series
 * turn from memory to arithmetic and where one overtakes another. */
#include <stdlib.h>
#include <string.h>

#include "ipc/base/dtype.h"

#include "client/tool/bench.h"

#define CROSSOVERS_MAX 8u /* of a pair */

/* ---- rows ---- */

struct entry {
    const struct bench_series *series;
    const struct bench_point *point;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return (x->point->usec > y->point->usec) - (x->point->usec < y->point->usec);
}

static void print_entry(FILE *stream, const struct bench_sweep *sweep, const struct entry *entry)
{
    const struct bench_point *point = entry->point;
    struct bench_figures figures = bench_figures(sweep, entry->series, point);
    char ratio[16] = "-", share[16] = "-", speedup[16] = "-";
    if (figures.floor_ratio > 0) {
        (void)snprintf(ratio, sizeof(ratio), "%.2f", figures.floor_ratio);
        (void)snprintf(share, sizeof(share), "%.0f %%", 100 / figures.floor_ratio);
    }
    if (figures.floor_ratio > 0 && figures.floor_ratio < 1) {
        (void)snprintf(share, sizeof(share), "cache");
    }
    if (figures.speedup > 0) {
        (void)snprintf(speedup, sizeof(speedup), "%.2f", figures.speedup);
    }
    (void)fprintf(stream, "%6u %c%c%c %-19s %-30s %10.1f %8s %7s %7.1f %8.2f %8s\n", point->m,
                  figures.is_fastest ? '*' : ' ', point->is_chosen ? '>' : ' ',
                  point->is_eligible ? ' ' : '!', entry->series->format, entry->series->kernel,
                  point->usec, ratio, share, figures.gbps, figures.tflops, speedup);
}

/* All series at one m, the fastest first. */
static void print_rows(FILE *stream, const struct bench_sweep *sweep, uint32_t m)
{
    struct entry entries[BENCH_SERIES_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < sweep->n_series; i++) {
        const struct bench_point *point = bench_find_point(&sweep->series[i], m);
        if (point) {
            entries[n++] = (struct entry){&sweep->series[i], point};
        }
    }
    qsort(entries, n, sizeof(entries[0]), compare_entries);
    for (uint32_t i = 0; i < n; i++) {
        print_entry(stream, sweep, &entries[i]);
    }
}

/* ---- ridges and crossovers ---- */

static void print_floor(FILE *stream, const struct bench_series *series)
{
    char bytes[32];
    (void)fprintf(stream, "  %-19s %10s", series->format, tool_bytes(series->packed_bytes, bytes));
    if (series->floor_usec > 0) {
        (void)fprintf(stream, ", floor %.1f us", series->floor_usec);
    }
    (void)fputc('\n', stream);
}

/* One line a format: the series of a format follow each other. */
static void print_floors(FILE *stream, const struct bench_sweep *sweep)
{
    for (uint32_t i = 0; i < sweep->n_series; i++) {
        if (i == 0 || strcmp(sweep->series[i].format, sweep->series[i - 1].format) != 0) {
            print_floor(stream, &sweep->series[i]);
        }
    }
}

static void print_ridge(FILE *stream, const struct bench_series *series)
{
    double ridge = bench_ridge(series);
    uint32_t fewest = series->points[0].m, most = series->points[series->n_points - 1].m;
    (void)fprintf(stream, "  %-19s %-30s ", series->format, series->kernel);
    if (ridge == 0) {
        (void)fprintf(stream, "beyond M %u\n", most);
    } else if (ridge <= fewest) {
        (void)fprintf(stream, "below M %u\n", fewest);
    } else {
        (void)fprintf(stream, "M %.1f\n", ridge);
    }
}

static void print_ridges(FILE *stream, const struct bench_sweep *sweep)
{
    (void)fprintf(stream, "ridge (from here on time grows with M):\n");
    for (uint32_t i = 0; i < sweep->n_series; i++) {
        const struct bench_series *series = &sweep->series[i];
        if (bench_is_notable(sweep, series)) {
            print_ridge(stream, series);
        }
    }
}

/* How many there were. */
static uint32_t print_pair(FILE *stream, const struct bench_series *first,
                           const struct bench_series *second)
{
    struct bench_crossover crossovers[CROSSOVERS_MAX];
    uint32_t n = bench_crossovers(first, second, crossovers, CROSSOVERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        const struct bench_series *faster = crossovers[i].is_first_faster ? first : second;
        const struct bench_series *slower = crossovers[i].is_first_faster ? second : first;
        (void)fprintf(stream, "  M %-8.1f %s %s overtakes %s %s\n", crossovers[i].m, faster->format,
                      faster->kernel, slower->format, slower->kernel);
    }
    return n;
}

static void print_crossovers(FILE *stream, const struct bench_sweep *sweep)
{
    uint32_t n = 0;
    (void)fprintf(stream, "crossovers:\n");
    for (uint32_t i = 0; i < sweep->n_series; i++) {
        for (uint32_t j = i + 1; j < sweep->n_series; j++) {
            if (bench_is_notable(sweep, &sweep->series[i]) &&
                bench_is_notable(sweep, &sweep->series[j])) {
                n += print_pair(stream, &sweep->series[i], &sweep->series[j]);
            }
        }
    }
    if (n == 0) {
        (void)fprintf(stream, "  none\n");
    }
}

void bench_print_table(FILE *stream, const struct bench_sweep *sweep)
{
    uint32_t m[MSG_BENCH_M_MAX];
    uint32_t n_m = bench_sweep_rows(sweep, m);
    const struct bench_shape *shape = &sweep->shape;
    (void)fprintf(stream, "%s%sN %u, K %u, %s activations, %s\n", shape->name,
                  shape->name[0] ? ": " : "", shape->n, shape->k, dtype_name(sweep->act_dtype),
                  sweep->device);
    print_floors(stream, sweep);
    (void)fprintf(stream, "%6s     %-19s %-30s %10s %8s %7s %7s %8s %8s\n", "M", "FORMAT", "KERNEL",
                  "us", "x FLOOR", "OF ROOF", "GB/s", "TFLOP/s", "SPEED-UP");
    for (uint32_t i = 0; i < n_m; i++) {
        print_rows(stream, sweep, m[i]);
    }
    (void)fprintf(stream,
                  "* fastest at that M   > what the daemon takes unless it has measured   "
                  "! not taken: adds up in another order than the kernel of single rows\n"
                  "cache: faster than memory can be read   speed-up is over the fastest kernel "
                  "of %s\n",
                  sweep->baseline);
    print_ridges(stream, sweep);
    print_crossovers(stream, sweep);
}

/* ---- padding ---- */

bool bench_padded_shape(const struct bench_shape *shape, struct bench_shape *ret_padded)
{
    *ret_padded = *shape;
    ret_padded->n = (shape->n + BENCH_ALIGNMENT - 1) / BENCH_ALIGNMENT * BENCH_ALIGNMENT;
    ret_padded->k = (shape->k + BENCH_ALIGNMENT - 1) / BENCH_ALIGNMENT * BENCH_ALIGNMENT;
    return ret_padded->n != shape->n || ret_padded->k != shape->k;
}

static void print_price(FILE *stream, const struct bench_outcome *outcome, const char *format,
                        uint32_t m)
{
    double usec = bench_best_usec(&outcome->sweep, format, m);
    double padded_usec = bench_best_usec(&outcome->padded, format, m);
    if (usec > 0 && padded_usec > 0) {
        (void)fprintf(stream, "%6u     %-19s %10.1f %10.1f %+8.1f %%\n", m, format, usec,
                      padded_usec, 100 * (usec / padded_usec - 1));
    }
}

void bench_print_padding(FILE *stream, const struct bench_outcome *outcome)
{
    const struct bench_sweep *sweep = &outcome->sweep;
    const struct bench_shape *shape = &sweep->shape, *padded = &outcome->padded.shape;
    if (!outcome->is_padded) {
        (void)fprintf(stream, "padding: %u x %u needs none\n", shape->n, shape->k);
        return;
    }
    (void)fprintf(stream, "price of %u x %u against %u x %u, which needs no padding:\n", shape->n,
                  shape->k, padded->n, padded->k);
    (void)fprintf(stream, "%6s     %-19s %10s %10s %10s\n", "M", "FORMAT", "us", "PADDED us",
                  "PRICE");
    uint32_t m[MSG_BENCH_M_MAX];
    uint32_t n_m = bench_sweep_rows(sweep, m);
    for (uint32_t i = 0; i < n_m; i++) {
        for (uint32_t j = 0; j < sweep->n_series; j++) {
            if (j == 0 || strcmp(sweep->series[j].format, sweep->series[j - 1].format) != 0) {
                print_price(stream, outcome, sweep->series[j].format, m[i]);
            }
        }
    }
}
