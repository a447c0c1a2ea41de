/* plot.c - see plot.h. */
#include "client/tool/plot.h"

#include <math.h>
#include <stdbool.h>

#include "ipc/base/num.h"

/* ---- the page ---- */

void plot_page_begin(FILE *stream, double width, double height)
{
    (void)fprintf(stream,
                  "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                  "viewBox=\"0 0 %.0f %.0f\" font-family=\"DejaVu Sans, Helvetica, Arial, "
                  "sans-serif\">\n"
                  "<style>\n"
                  ".title { font-size: 19px; font-weight: bold; fill: #1a1a1a; }\n"
                  ".note { font-size: 12px; fill: #666666; }\n"
                  ".label { font-size: 13px; fill: #333333; }\n"
                  ".tick { font-size: 11px; fill: #555555; }\n"
                  "</style>\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
                  width, height, width, height);
}

void plot_page_end(FILE *stream)
{
    (void)fprintf(stream, "</svg>\n");
}

static void write_escaped(FILE *stream, const char *text)
{
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '<') {
            (void)fputs("&lt;", stream);
        } else if (byte == '>') {
            (void)fputs("&gt;", stream);
        } else if (byte == '&') {
            (void)fputs("&amp;", stream);
        } else {
            (void)fputc(byte < 0x20 ? '?' : byte, stream);
        }
    }
}

void plot_text(FILE *stream, double x, double y, const char *style, const char *anchor,
               const char *text)
{
    (void)fprintf(stream, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y,
                  style, anchor);
    write_escaped(stream, text);
    (void)fprintf(stream, "</text>\n");
}

static void write_line(FILE *stream, double x0, double y0, double x1, double y1,
                       const struct plot_pen *pen)
{
    (void)fprintf(stream,
                  "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                  "stroke-width=\"%.1f\"",
                  x0, y0, x1, y1, pen->colour, pen->width);
    if (pen->dash) {
        (void)fprintf(stream, " stroke-dasharray=\"%s\"", pen->dash);
    }
    (void)fprintf(stream, "/>\n");
}

/* ---- axes ---- */

static const struct plot_pen grid_pen = {"#e4e4e4", NULL, 1};

/* The share of the way from min to max at which a value lies. */
static double share_of(double value, double min, double max)
{
    return log(value / min) / log(max / min);
}

static double x_of(const struct plot *plot, double x)
{
    return plot->left + plot->width * share_of(x, plot->x_min, plot->x_max);
}

static double y_of(const struct plot *plot, double y)
{
    return plot->top + plot->height * (1 - share_of(y, plot->y_min, plot->y_max));
}

static void draw_x_tick(const struct plot *plot, double value)
{
    char text[24];
    double x = x_of(plot, value);
    double bottom = plot->top + plot->height;
    write_line(plot->stream, x, plot->top, x, bottom, &grid_pen);
    (void)snprintf(text, sizeof(text), "%g", value);
    plot_text(plot->stream, x, bottom + 17, "tick", "middle", text);
}

static void draw_y_tick(const struct plot *plot, double value)
{
    char text[24];
    double y = y_of(plot, value);
    write_line(plot->stream, plot->left, y, plot->left + plot->width, y, &grid_pen);
    (void)snprintf(text, sizeof(text), "%g", value);
    plot_text(plot->stream, plot->left - 8, y + 4, "tick", "end", text);
}

static void draw_x_ticks(const struct plot *plot)
{
    for (double value = exp2(ceil(log2(plot->x_min))); value <= plot->x_max; value *= 2) {
        draw_x_tick(plot, value);
    }
}

/* 1-2-5; closer where the axis is short, which is no more than a decade and a half. */
static void draw_y_ticks(const struct plot *plot)
{
    static const double wide[] = {1, 2, 5}, close[] = {1, 1.5, 2, 3, 4, 5, 7};
    bool is_short = plot->y_max / plot->y_min < 30;
    const double *steps = is_short ? close : wide;
    size_t n_steps = is_short ? ARRAY_LENGTH(close) : ARRAY_LENGTH(wide);
    for (double decade = pow(10, floor(log10(plot->y_min))); decade <= plot->y_max; decade *= 10) {
        for (size_t i = 0; i < n_steps; i++) {
            double value = decade * steps[i];
            if (value >= plot->y_min && value <= plot->y_max) {
                draw_y_tick(plot, value);
            }
        }
    }
}

void plot_axes(const struct plot *plot, const char *x_label, const char *y_label)
{
    double middle = plot->top + plot->height / 2;
    draw_x_ticks(plot);
    draw_y_ticks(plot);
    (void)fprintf(plot->stream,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" "
                  "stroke=\"#888888\"/>\n",
                  plot->left, plot->top, plot->width, plot->height);
    plot_text(plot->stream, plot->left + plot->width / 2, plot->top + plot->height + 38, "label",
              "middle", x_label);
    (void)fprintf(plot->stream, "<g transform=\"translate(%.1f %.1f) rotate(-90)\">\n",
                  plot->left - 50, middle);
    plot_text(plot->stream, 0, 0, "label", "middle", y_label);
    (void)fprintf(plot->stream, "</g>\n");
}

/* ---- lines ---- */

void plot_line(const struct plot *plot, const struct plot_point *points, uint32_t n,
               const struct plot_pen *pen)
{
    FILE *stream = plot->stream;
    (void)fprintf(stream, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" ",
                  pen->colour, pen->width);
    if (pen->dash) {
        (void)fprintf(stream, "stroke-dasharray=\"%s\" ", pen->dash);
    }
    (void)fprintf(stream, "stroke-linejoin=\"round\" points=\"");
    for (uint32_t i = 0; i < n; i++) {
        (void)fprintf(stream, "%s%.1f,%.1f", i == 0 ? "" : " ", x_of(plot, points[i].x),
                      y_of(plot, points[i].y));
    }
    (void)fprintf(stream, "\"/>\n");
    for (uint32_t i = 0; i < n; i++) {
        (void)fprintf(stream, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                      x_of(plot, points[i].x), y_of(plot, points[i].y), pen->colour);
    }
}

void plot_level(const struct plot *plot, double y, const struct plot_pen *pen)
{
    write_line(plot->stream, plot->left, y_of(plot, y), plot->left + plot->width, y_of(plot, y),
               pen);
}

void plot_diamond(const struct plot *plot, const struct plot_point *at, const char *colour)
{
    (void)fprintf(plot->stream,
                  "<path d=\"M %.1f %.1f l 6 6 l -6 6 l -6 -6 z\" fill=\"#ffffff\" stroke=\"%s\" "
                  "stroke-width=\"2\"/>\n",
                  x_of(plot, at->x), y_of(plot, at->y) - 6, colour);
}

void plot_key(FILE *stream, double x, double y, const struct plot_pen *pen, const char *text)
{
    write_line(stream, x, y - 4, x + 26, y - 4, pen);
    plot_text(stream, x + 34, y, "tick", "start", text);
}
