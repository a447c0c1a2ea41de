/* openmetrics.h - a writer of the text that monitoring reads: OpenMetrics 1.0, or, for readers that
 * do not ask for it, the older Prometheus text format 0.0.4. They differ in the names of counters'
 * families, in units and in the last line; the samples are the same.
 *
 * A family is begun once, then come its samples. Names and label names are ours; label values may
 * be anything. Main thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ipc/base/check.h"
#include "ipc/stats.h"

#define OPENMETRICS_TYPE      "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define OPENMETRICS_TYPE_TEXT "text/plain; version=0.0.4; charset=utf-8"

enum openmetrics_kind {
    OPENMETRICS_COUNTER,
    OPENMETRICS_GAUGE,
    OPENMETRICS_HISTOGRAM,
    OPENMETRICS_INFO
};

struct openmetrics {
    FILE *out;
    bool is_openmetrics;
    enum openmetrics_kind kind; /* of the family */
    const char *name;
    char *text; /* out's */
    size_t n_bytes;
};

/* Labels of one sample, as they are written between the braces. */
struct openmetrics_labels {
    char text[1536];
};

#define OPENMETRICS_LABELS_NONE ((struct openmetrics_labels){.text = ""})

/* openmetrics_begin() - 0 or -ENOMEM. openmetrics_end() - the whole text, malloc'd; NULL when
 * memory was short on the way. */
int openmetrics_begin(struct openmetrics *om, bool is_openmetrics) GD_MUST_CHECK;
char *openmetrics_end(struct openmetrics *om, size_t *ret_n_bytes);

/* openmetrics_label() - add one; the value is made UTF-8 and escaped; one that does not fit is cut.
 */
void openmetrics_label(struct openmetrics_labels *labels, const char *name, const char *value);

/* openmetrics_family() - name: without "_total" or "_info", with its unit at the end if it has one.
 * help: one line. */
void openmetrics_family(struct openmetrics *om, enum openmetrics_kind kind, const char *name,
                        const char *help);

/* A sample of the family: a count or an amount, nanoseconds written as seconds, a real number, or a
 * whole histogram, of times or, with upper limits 1, 2, 4 ... and a sum, of sizes. labels may be
 * OPENMETRICS_LABELS_NONE. */
void openmetrics_count(struct openmetrics *om, const struct openmetrics_labels *labels,
                       uint64_t value);
void openmetrics_nsec(struct openmetrics *om, const struct openmetrics_labels *labels,
                      uint64_t nsec);
void openmetrics_real(struct openmetrics *om, const struct openmetrics_labels *labels,
                      double value);
void openmetrics_times(struct openmetrics *om, const struct openmetrics_labels *labels,
                       const struct stats_times *times);
void openmetrics_sizes(struct openmetrics *om, const struct openmetrics_labels *labels,
                       const _Atomic uint64_t *counts, uint32_t n_buckets, uint64_t sum);
