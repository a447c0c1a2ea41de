/* plot.h - plots with two logarithmic axes, as elements of an SVG page. Values are positive. Errors
 * stay in the stream. */
#pragma once

#include <stdint.h>
#include <stdio.h>

/* A rectangle of the page, in pixels, and the values at its edges. */
struct plot {
    FILE *stream;
    double left;
    double top;
    double width;
    double height;
    double x_min;
    double x_max;
    double y_min;
    double y_max;
};

struct plot_point {
    double x;
    double y;
};

/* How a line looks; dash is a stroke-dasharray, NULL: solid. */
struct plot_pen {
    const char *colour;
    const char *dash;
    double width;
};

/* plot_page_begin() - the head, a white page and the styles title, note, label and tick, by which
 * plot_text() goes. plot_page_end() - the rest. */
void plot_page_begin(FILE *stream, double width, double height);
void plot_page_end(FILE *stream);

/* plot_text() - at a place of the page; anchor: start, middle or end. Escaped; bytes that XML has
 * no place for become '?'. */
void plot_text(FILE *stream, double x, double y, const char *style, const char *anchor,
               const char *text);

/* plot_axes() - grid, ticks (powers of two along x, 1-2-5 along y), labels, frame. */
void plot_axes(const struct plot *plot, const char *x_label, const char *y_label);

/* plot_line() - through the points, with a dot on each; plot_level() - across the plot at y;
 * plot_diamond() - a mark. What lies outside the edges is not cut. */
void plot_line(const struct plot *plot, const struct plot_point *points, uint32_t n,
               const struct plot_pen *pen);
void plot_level(const struct plot *plot, double y, const struct plot_pen *pen);
void plot_diamond(const struct plot *plot, const struct plot_point *at, const char *colour);

/* plot_key() - one line of a legend: a piece of the line and the text behind it. */
void plot_key(FILE *stream, double x, double y, const struct plot_pen *pen, const char *text);
