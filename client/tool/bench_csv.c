/* bench_csv.c - every measurement on a line of its own, as RFC 4180 has it but for the line feed.
 * What is not known is empty. */
#include <string.h>

#include "ipc/base/dtype.h"

#include "client/tool/bench.h"

/* A text that may have commas and quotes in it. */
static void write_text(FILE *stream, const char *text)
{
    (void)fputc('"', stream);
    for (; *text; text++) {
        if (*text == '"') {
            (void)fputc('"', stream);
        }
        (void)fputc(*text, stream);
    }
    (void)fputc('"', stream);
}

/* ",12.3"; "," for 0 */
static void write_figure(FILE *stream, double value)
{
    (void)fputc(',', stream);
    if (value > 0) {
        (void)fprintf(stream, "%.6g", value);
    }
}

static void write_point(FILE *stream, const struct bench_sweep *sweep,
                        const struct bench_series *series, const struct bench_point *point)
{
    struct bench_figures figures = bench_figures(sweep, series, point);
    write_text(stream, sweep->device);
    (void)fputc(',', stream);
    write_text(stream, sweep->shape.name);
    (void)fprintf(stream, ",%u,%u,%s,", sweep->shape.n, sweep->shape.k,
                  dtype_name(sweep->act_dtype));
    write_text(stream, series->format);
    (void)fputc(',', stream);
    write_text(stream, series->kernel);
    (void)fprintf(stream, ",%u,%u,%llu,%.6g", point->m, point->n_launches,
                  (unsigned long long)series->packed_bytes, point->usec);
    write_figure(stream, series->floor_usec);
    write_figure(stream, figures.floor_ratio);
    write_figure(stream, figures.floor_ratio > 0 ? 1 / figures.floor_ratio : 0);
    write_figure(stream, figures.gbps);
    write_figure(stream, figures.tflops);
    write_figure(stream, bench_best_usec(sweep, sweep->baseline, point->m));
    write_figure(stream, figures.speedup);
    (void)fprintf(stream, ",%d,%d,%d\n", point->is_eligible, point->is_chosen, figures.is_fastest);
}

static void write_sweep(FILE *stream, const struct bench_sweep *sweep)
{
    for (uint32_t i = 0; i < sweep->n_series; i++) {
        for (uint32_t j = 0; j < sweep->series[i].n_points; j++) {
            write_point(stream, sweep, &sweep->series[i], &sweep->series[i].points[j]);
        }
    }
}

void bench_write_csv(FILE *stream, const struct bench_outcome *outcomes, uint32_t n_outcomes)
{
    (void)fprintf(stream, "device,layer,n,k,act,format,kernel,m,launches,packed_bytes,usec,"
                          "floor_usec,times_floor,share_of_roof,gbps,tflops,baseline_usec,speedup,"
                          "is_eligible,is_chosen,is_fastest\n");
    for (uint32_t i = 0; i < n_outcomes; i++) {
        write_sweep(stream, &outcomes[i].sweep);
        if (outcomes[i].is_padded) {
            write_sweep(stream, &outcomes[i].padded);
        }
    }
}
