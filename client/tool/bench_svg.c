/* bench_svg.c - for each shape two plots under each other: time against M with each format's floor,
 * and speed-up over the baseline. Only series that are the fastest of their format somewhere, or
 * taken by the daemon, are drawn: the rest is in the CSV. */
#include <math.h>
#include <string.h>

#include "ipc/base/dtype.h"
#include "ipc/base/num.h"

#include "client/tool/bench.h"
#include "client/tool/plot.h"

#define PAGE_WIDTH     1160.0
#define SHAPE_HEIGHT   800.0
#define PLOT_LEFT      82.0
#define PLOT_WIDTH     720.0
#define TIME_TOP       86.0
#define TIME_HEIGHT    360.0
#define SPEEDUP_TOP    506.0
#define SPEEDUP_HEIGHT 230.0
#define KEY_LEFT       (PLOT_LEFT + PLOT_WIDTH + 26)
#define KEY_LINE       20.0

static const char *const colours[BENCH_PLOTTED_MAX] = {
    "#3b3b3b", "#0072b2", "#d55e00", "#009e73", "#cc79a7",
    "#e69f00", "#56b4e9", "#8c564b", "#7f3fbf", "#a0a000",
};

static const struct plot_pen level_pen = {"#888888", NULL, 1};

/* What is drawn of a sweep. */
struct drawing {
    const struct bench_sweep *sweep;
    const struct bench_series *series[BENCH_PLOTTED_MAX];
    uint32_t n_series;
    uint32_t n_left_out;
    uint32_t m[MSG_BENCH_M_MAX];
    uint32_t n_m;
};

static struct drawing drawing_of(const struct bench_sweep *sweep)
{
    struct drawing drawing = {.sweep = sweep};
    drawing.n_m = bench_sweep_rows(sweep, drawing.m);
    for (uint32_t i = 0; i < sweep->n_series; i++) {
        bool is_drawn =
            bench_is_notable(sweep, &sweep->series[i]) && drawing.n_series < BENCH_PLOTTED_MAX;
        if (is_drawn) {
            drawing.series[drawing.n_series++] = &sweep->series[i];
        } else {
            drawing.n_left_out++;
        }
    }
    return drawing;
}

/* Dotted: not one of its rows is eligible. */
static struct plot_pen pen_of(const struct drawing *drawing, uint32_t i)
{
    const struct bench_series *series = drawing->series[i];
    bool is_eligible = false;
    for (uint32_t j = 0; j < series->n_points; j++) {
        is_eligible = is_eligible || series->points[j].is_eligible;
    }
    return (struct plot_pen){colours[i], is_eligible ? NULL : "2 4", 2.2};
}

/* ---- the two plots ---- */

static struct plot plot_at(FILE *stream, const struct drawing *drawing, double top, double height)
{
    return (struct plot){.stream = stream,
                         .left = PLOT_LEFT,
                         .top = top,
                         .width = PLOT_WIDTH,
                         .height = height,
                         .x_min = drawing->m[0] * 0.9,
                         .x_max = drawing->m[drawing->n_m - 1] * 1.1,
                         .y_min = HUGE_VAL};
}

static void widen(struct plot *plot, double y)
{
    if (y > 0) {
        plot->y_min = fmin(plot->y_min, y);
        plot->y_max = fmax(plot->y_max, y);
    }
}

static void add_margins(struct plot *plot)
{
    plot->y_min /= 1.25;
    plot->y_max *= 1.25;
}

static void draw_floor(const struct plot *plot, const struct drawing *drawing, uint32_t i)
{
    const struct bench_series *series = drawing->series[i];
    bool is_first = i == 0 || strcmp(drawing->series[i - 1]->format, series->format) != 0;
    if (is_first && series->floor_usec > 0) {
        const struct plot_pen pen = {colours[i], "7 5", 1.2};
        plot_level(plot, series->floor_usec, &pen);
    }
}

static void draw_times(const struct plot *plot, const struct drawing *drawing, uint32_t i)
{
    const struct bench_series *series = drawing->series[i];
    struct plot_pen pen = pen_of(drawing, i);
    struct plot_point points[MSG_BENCH_M_MAX];
    for (uint32_t j = 0; j < series->n_points; j++) {
        points[j] = (struct plot_point){series->points[j].m, series->points[j].usec};
    }
    plot_line(plot, points, series->n_points, &pen);
    double ridge = bench_ridge(series);
    if (ridge > series->points[0].m) {
        const struct plot_point at = {ridge, series->points[0].usec};
        plot_diamond(plot, &at, pen.colour);
    }
}

static void draw_time_plot(FILE *stream, const struct drawing *drawing, double top)
{
    struct plot plot = plot_at(stream, drawing, top, TIME_HEIGHT);
    for (uint32_t i = 0; i < drawing->n_series; i++) {
        widen(&plot, drawing->series[i]->floor_usec);
        for (uint32_t j = 0; j < drawing->series[i]->n_points; j++) {
            widen(&plot, drawing->series[i]->points[j].usec);
        }
    }
    add_margins(&plot);
    plot_axes(&plot, "M (rows of x)", "time, us");
    for (uint32_t i = 0; i < drawing->n_series; i++) {
        draw_floor(&plot, drawing, i);
    }
    for (uint32_t i = 0; i < drawing->n_series; i++) {
        draw_times(&plot, drawing, i);
    }
}

static uint32_t speedups_of(const struct drawing *drawing, const struct bench_series *series,
                            struct plot_point points[MSG_BENCH_M_MAX])
{
    uint32_t n = 0;
    for (uint32_t j = 0; j < series->n_points; j++) {
        struct bench_figures figures = bench_figures(drawing->sweep, series, &series->points[j]);
        if (figures.speedup > 0) {
            points[n++] = (struct plot_point){series->points[j].m, figures.speedup};
        }
    }
    return n;
}

static void draw_speedup_plot(FILE *stream, const struct drawing *drawing, double top)
{
    char label[MSG_WORD_BYTES + 32];
    struct plot plot = plot_at(stream, drawing, top, SPEEDUP_HEIGHT);
    struct plot_point points[MSG_BENCH_M_MAX];
    widen(&plot, 1);
    for (uint32_t i = 0; i < drawing->n_series; i++) {
        uint32_t n = speedups_of(drawing, drawing->series[i], points);
        for (uint32_t j = 0; j < n; j++) {
            widen(&plot, points[j].y);
        }
    }
    add_margins(&plot);
    (void)snprintf(label, sizeof(label), "speed-up over %s", drawing->sweep->baseline);
    plot_axes(&plot, "M (rows of x)", label);
    plot_level(&plot, 1, &level_pen);
    for (uint32_t i = 0; i < drawing->n_series; i++) {
        struct plot_pen pen = pen_of(drawing, i);
        plot_line(&plot, points, speedups_of(drawing, drawing->series[i], points), &pen);
    }
}

/* ---- words ---- */

static void draw_title(FILE *stream, const struct bench_sweep *sweep, double top)
{
    char text[2 * MSG_NAME_BYTES];
    (void)snprintf(text, sizeof(text), "%s%sN %u, K %u", sweep->shape.name,
                   sweep->shape.name[0] ? ": " : "", sweep->shape.n, sweep->shape.k);
    plot_text(stream, PLOT_LEFT, top + 36, "title", "start", text);
    (void)snprintf(text, sizeof(text), "%s; %s activations", sweep->device,
                   dtype_name(sweep->act_dtype));
    plot_text(stream, PLOT_LEFT, top + 60, "note", "start", text);
}

static void draw_legend(FILE *stream, const struct drawing *drawing, double top)
{
    static const struct plot_pen floor_pen = {"#666666", "7 5", 1.2};
    static const struct plot_pen other_pen = {"#666666", "2 4", 2.2};
    char text[2 * MSG_WORD_BYTES + 8];
    double y = top + 14;
    bool is_dotted = false;
    for (uint32_t i = 0; i < drawing->n_series; i++, y += KEY_LINE) {
        struct plot_pen pen = pen_of(drawing, i);
        (void)snprintf(text, sizeof(text), "%s  %s", drawing->series[i]->format,
                       drawing->series[i]->kernel);
        plot_key(stream, KEY_LEFT, y, &pen, text);
        is_dotted |= pen.dash != NULL;
    }
    y += KEY_LINE / 2;
    plot_key(stream, KEY_LEFT, y, &floor_pen, "floor: a launch, reading the weight once");
    if (is_dotted) {
        plot_key(stream, KEY_LEFT, y += KEY_LINE, &other_pen, "adds up in another order");
    }
    plot_text(stream, KEY_LEFT, y += KEY_LINE, "tick", "start",
              "diamond: where arithmetic takes over");
    if (drawing->n_left_out > 0) {
        (void)snprintf(text, sizeof(text), "%u slower series are not drawn", drawing->n_left_out);
        plot_text(stream, KEY_LEFT, y + KEY_LINE, "tick", "start", text);
    }
}

static void draw_sweep(FILE *stream, const struct bench_sweep *sweep, double top)
{
    struct drawing drawing = drawing_of(sweep);
    draw_title(stream, sweep, top);
    if (drawing.n_m == 0) {
        plot_text(stream, PLOT_LEFT, top + TIME_TOP, "label", "start", "nothing was measured");
        return;
    }
    draw_time_plot(stream, &drawing, top + TIME_TOP);
    draw_speedup_plot(stream, &drawing, top + SPEEDUP_TOP);
    draw_legend(stream, &drawing, top + TIME_TOP);
}

void bench_write_svg(FILE *stream, const struct bench_outcome *outcomes, uint32_t n_outcomes)
{
    plot_page_begin(stream, PAGE_WIDTH, n_outcomes * SHAPE_HEIGHT);
    for (uint32_t i = 0; i < n_outcomes; i++) {
        draw_sweep(stream, &outcomes[i].sweep, i * SHAPE_HEIGHT);
    }
    plot_page_end(stream);
}
