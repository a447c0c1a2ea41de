/* bench.h - the sweep of gemmctl bench: what is asked, what the daemon measured, and what can be
 * read from it. A sweep is one shape; a series is one kernel of one format over numbers of rows. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client/tool/tool.h"

#define BENCH_SHAPES_MAX  64u
#define BENCH_FORMATS_MAX 24u
#define BENCH_SERIES_MAX  256u
#define BENCH_PLOTTED_MAX 10u  /* as many colours as can be told apart */
#define BENCH_ALIGNMENT   128u /* of n and k: no kernel's tile needs padding beyond it */

/* ---- what is asked: bench_options.c, bench_preset.c ---- */

struct bench_shape {
    char name[48]; /* "llama-3-8b qkv"; "" */
    uint32_t n;
    uint32_t k;
};

struct bench_options {
    struct msg_bench request; /* device, m, act_dtype, budget, off; format and shape change */
    struct bench_shape shapes[BENCH_SHAPES_MAX];
    uint32_t n_shapes;
    const char *formats[BENCH_FORMATS_MAX]; /* the baseline first */
    uint32_t n_formats;
    bool has_padding;
    const char *csv_path; /* NULL: none */
    const char *svg_path;
};

/* bench_parse_options() - the command line, defaults filled in. 0 or TOOL_USAGE. */
int bench_parse_options(int argc, char **argv, struct bench_options *ret_options) GD_MUST_CHECK;

/* bench_add_preset() - append the layers of a model. false: there is none of that name, or no room.
 * bench_preset_names() - "llama-3-8b, ...", static. */
bool bench_add_preset(const char *name, struct bench_options *options);
const char *bench_preset_names(void);

/* ---- what was measured: bench_series.c ---- */

struct bench_point {
    uint32_t m;
    double usec;
    uint32_t n_launches;
    bool is_eligible;
    bool is_chosen;
};

struct bench_series {
    const char *format; /* as it was asked for */
    char kernel[MSG_WORD_BYTES];
    double floor_usec; /* 0: not known */
    uint64_t packed_bytes;
    uint64_t flops;                             /* of one row */
    struct bench_point points[MSG_BENCH_M_MAX]; /* by m */
    uint32_t n_points;
};

struct bench_sweep {
    struct bench_shape shape;
    char device[MSG_NAME_BYTES];
    enum dtype act_dtype;
    const char *baseline;        /* the format that others are compared with */
    struct bench_series *series; /* owned */
    uint32_t n_series;
};

/* bench_sweep_add() - the series of one format; those that do not fit BENCH_SERIES_MAX are left
 * out. 0 or -ENOMEM. bench_sweep_finish() - of a zeroed one too. */
int bench_sweep_add(struct bench_sweep *sweep, const char *format,
                    const struct msg_bench_result *result) GD_MUST_CHECK;
void bench_sweep_finish(struct bench_sweep *sweep);

/* What a point amounts to. 0: not known, or no baseline was measured at that m. */
struct bench_figures {
    double floor_ratio; /* time over the floor; its inverse is the share of the roof */
    double gbps;        /* packed bytes, once, over time */
    double tflops;
    double speedup;  /* time of the baseline's fastest kernel over time */
    bool is_fastest; /* of all series at that m */
};
struct bench_figures bench_figures(const struct bench_sweep *sweep,
                                   const struct bench_series *series,
                                   const struct bench_point *point);

/* bench_find_point() - NULL where it was not measured; bench_series_usec() - 0 there.
 * bench_best_usec() - the least of a format's series at m; NULL: of all; 0: none. */
const struct bench_point *bench_find_point(const struct bench_series *series, uint32_t m);
double bench_series_usec(const struct bench_series *series, uint32_t m);
double bench_best_usec(const struct bench_sweep *sweep, const char *format, uint32_t m);

/* bench_sweep_rows() - every m at which anything was measured, ascending; how many. */
uint32_t bench_sweep_rows(const struct bench_sweep *sweep, uint32_t ret_m[MSG_BENCH_M_MAX]);

/* bench_is_notable() - worth a line in the plot: the fastest of its format at some m, or what the
 * daemon takes. */
bool bench_is_notable(const struct bench_sweep *sweep, const struct bench_series *series);

/* bench_ridge() - where a series turns from memory to arithmetic: the m at which the time of its
 * fewest rows meets the line through 0 and the time of its most. 0: it does not turn, the most rows
 * take less than twice as long. */
double bench_ridge(const struct bench_series *series);

/* bench_crossovers() - every m at which one series takes over from another, in between by
 * interpolating the logarithm of their ratio over that of m; differences under 1 % are none. How
 * many, at most n_max. */
struct bench_crossover {
    double m;
    bool is_first_faster; /* beyond m */
};
uint32_t bench_crossovers(const struct bench_series *first, const struct bench_series *second,
                          struct bench_crossover *ret_crossovers, uint32_t n_max);

/* ---- how it is measured: bench_run.c ---- */

/* bench_check_sweep() - would the daemon measure that shape in all formats? Asked before anything
 * is measured. 0 or an enum tool_exit with the reason printed. */
int bench_check_sweep(struct tool *tool, const struct bench_options *options,
                      const struct bench_shape *shape) GD_MUST_CHECK;

/* bench_run_sweep() - one shape, all formats, with progress on a terminal; an interrupt cancels.
 * Finish *ret_sweep. 0 or an enum tool_exit with the reason printed. */
int bench_run_sweep(struct tool *tool, const struct bench_options *options,
                    const struct bench_shape *shape, struct bench_sweep *ret_sweep) GD_MUST_CHECK;

/* ---- how it is shown ---- */

/* One shape's measurements, and those of the next shape that needs no padding. */
struct bench_outcome {
    struct bench_sweep sweep;
    bool is_padded; /* `padded` was measured */
    struct bench_sweep padded;
};

/* bench_padded_shape() - both sides up to a multiple of BENCH_ALIGNMENT; false: they are. */
bool bench_padded_shape(const struct bench_shape *shape, struct bench_shape *ret_padded);

/* bench_print_table() - rows, ridges and crossovers; bench_print_padding() - the price of the odd
 * shape; both for people (bench_table.c). */
void bench_print_table(FILE *stream, const struct bench_sweep *sweep);
void bench_print_padding(FILE *stream, const struct bench_outcome *outcome);

/* bench_json() - a new reference, NULL without memory (bench_json.c). */
json_t *bench_json(const struct bench_outcome *outcomes, uint32_t n_outcomes);

/* Writers of files: bench_csv.c, a line a point, the first line names the columns; bench_svg.c, a
 * page that needs nothing else, with two plots a shape: time and speed-up over the baseline. Errors
 * stay in the stream. */
void bench_write_csv(FILE *stream, const struct bench_outcome *outcomes, uint32_t n_outcomes);
void bench_write_svg(FILE *stream, const struct bench_outcome *outcomes, uint32_t n_outcomes);
