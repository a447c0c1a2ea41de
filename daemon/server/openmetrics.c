/* openmetrics.c - see openmetrics.h. Writes that fail are noticed once, at the end. */
#include "daemon/server/openmetrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/utf8.h"

int openmetrics_begin(struct openmetrics *om, bool is_openmetrics)
{
    *om = (struct openmetrics){.is_openmetrics = is_openmetrics};
    om->out = open_memstream(&om->text, &om->n_bytes);
    return om->out == NULL ? err_raise(-ENOMEM) : 0;
}

char *openmetrics_end(struct openmetrics *om, size_t *ret_n_bytes)
{
    if (om->is_openmetrics) {
        (void)fputs("# EOF\n", om->out);
    }
    bool is_whole = ferror(om->out) == 0;
    is_whole = fclose(om->out) == 0 && is_whole;
    if (!is_whole) {
        free(om->text);
        return NULL;
    }
    *ret_n_bytes = om->n_bytes;
    return om->text;
}

/* ---- labels ---- */

static uint32_t escape(char byte, char escaped[2])
{
    escaped[0] = '\\';
    switch (byte) {
    case '\n':
        escaped[1] = 'n';
        return 2;
    case '\\':
    case '"':
        escaped[1] = byte;
        return 2;
    default:
        escaped[0] = byte;
        return 1;
    }
}

/* Append the value; false when it was cut, between two characters. */
static bool append_value(char *text, size_t size_bytes, size_t *used, const char *value)
{
    for (const char *at = value; *at != '\0';) {
        char piece[8];
        uint32_t n_bytes = escape(*at++, piece);
        while (((uint8_t)*at & 0xc0) == 0x80 && n_bytes < sizeof(piece)) {
            piece[n_bytes++] = *at++; /* the rest of a character */
        }
        if (*used + n_bytes + sizeof("\"") > size_bytes) {
            return false;
        }
        memcpy(text + *used, piece, n_bytes);
        *used += n_bytes;
    }
    return true;
}

void openmetrics_label(struct openmetrics_labels *labels, const char *name, const char *value)
{
    size_t used = strlen(labels->text);
    size_t n_name_bytes = strlen(name);
    char *copy = strdup(value);
    if (copy == NULL || used + n_name_bytes + sizeof(",=\"\"") > sizeof(labels->text)) {
        free(copy);
        return;
    }
    utf8_mend(copy, strlen(copy));
    used += (size_t)snprintf(labels->text + used, sizeof(labels->text) - used, "%s%s=\"",
                             used > 0 ? "," : "", name);
    (void)append_value(labels->text, sizeof(labels->text), &used, copy);
    memcpy(labels->text + used, "\"", sizeof("\""));
    free(copy);
}

/* ---- families ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n_text = strlen(text), n_end = strlen(end);
    return n_text >= n_end && strcmp(text + n_text - n_end, end) == 0;
}

/* What the format appends to the name of a family in its samples. */
static const char *suffix_of(enum openmetrics_kind kind)
{
    return kind == OPENMETRICS_COUNTER ? "_total" : kind == OPENMETRICS_INFO ? "_info" : "";
}

static void write_unit(struct openmetrics *om, const char *name)
{
    static const char *const units[] = {"seconds", "bytes"};
    for (uint32_t i = 0; i < ARRAY_LENGTH(units); i++) {
        if (ends_with(name, units[i])) {
            (void)fprintf(om->out, "# UNIT %s %s\n", name, units[i]);
        }
    }
}

void openmetrics_family(struct openmetrics *om, enum openmetrics_kind kind, const char *name,
                        const char *help)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram", "info"};
    om->kind = kind;
    om->name = name;
    const char *suffix = om->is_openmetrics ? "" : suffix_of(kind);
    bool is_plain_info = kind == OPENMETRICS_INFO && !om->is_openmetrics;
    (void)fprintf(om->out, "# TYPE %s%s %s\n", name, suffix, is_plain_info ? "gauge" : kinds[kind]);
    if (om->is_openmetrics) {
        write_unit(om, name);
    }
    (void)fprintf(om->out, "# HELP %s%s %s\n", name, suffix, help);
}

/* ---- samples ---- */

/* "name_suffix{labels,more} ", up to the value. */
static void write_head(struct openmetrics *om, const char *suffix,
                       const struct openmetrics_labels *labels, const char *more)
{
    bool has_both = labels->text[0] != '\0' && more[0] != '\0';
    bool has_any = labels->text[0] != '\0' || more[0] != '\0';
    (void)fprintf(om->out, "%s%s%s%s%s%s%s ", om->name, suffix, has_any ? "{" : "", labels->text,
                  has_both ? "," : "", more, has_any ? "}" : "");
}

static void write_seconds(struct openmetrics *om, uint64_t nsec)
{
    (void)fprintf(om->out, "%ju.%09ju\n", (uintmax_t)(nsec / CLOCK_NSEC_PER_SEC),
                  (uintmax_t)(nsec % CLOCK_NSEC_PER_SEC));
}

void openmetrics_count(struct openmetrics *om, const struct openmetrics_labels *labels,
                       uint64_t value)
{
    write_head(om, suffix_of(om->kind), labels, "");
    (void)fprintf(om->out, "%ju\n", (uintmax_t)value);
}

void openmetrics_nsec(struct openmetrics *om, const struct openmetrics_labels *labels,
                      uint64_t nsec)
{
    write_head(om, suffix_of(om->kind), labels, "");
    write_seconds(om, nsec);
}

void openmetrics_real(struct openmetrics *om, const struct openmetrics_labels *labels, double value)
{
    write_head(om, suffix_of(om->kind), labels, "");
    (void)fprintf(om->out, "%.15g\n", value);
}

/* The limit of bucket i, 2^i units, as a label; the last has none. */
static void format_limit(char *text, size_t size_bytes, uint32_t i, uint32_t n_buckets, double unit)
{
    if (i == n_buckets - 1) {
        (void)snprintf(text, size_bytes, "le=\"+Inf\"");
        return;
    }
    double limit = unit * (double)(1ull << i);
    (void)snprintf(text, size_bytes, unit < 1 ? "le=\"%.9g\"" : "le=\"%.1f\"", limit);
}

/* Buckets, then the count, which is their sum as it was read just now: the two always agree. */
static void write_buckets(struct openmetrics *om, const struct openmetrics_labels *labels,
                          const _Atomic uint64_t *counts, uint32_t n_buckets, double unit)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_buckets; i++) {
        char limit[48];
        format_limit(limit, sizeof(limit), i, n_buckets, unit);
        n += stats_read(&counts[i]);
        write_head(om, "_bucket", labels, limit);
        (void)fprintf(om->out, "%ju\n", (uintmax_t)n);
    }
    write_head(om, "_count", labels, "");
    (void)fprintf(om->out, "%ju\n", (uintmax_t)n);
    write_head(om, "_sum", labels, "");
}

void openmetrics_times(struct openmetrics *om, const struct openmetrics_labels *labels,
                       const struct stats_times *times)
{
    write_buckets(om, labels, times->counts, STATS_TIME_BUCKETS, 1e-6);
    write_seconds(om, stats_read(&times->sum_nsec));
}

void openmetrics_sizes(struct openmetrics *om, const struct openmetrics_labels *labels,
                       const _Atomic uint64_t *counts, uint32_t n_buckets, uint64_t sum)
{
    write_buckets(om, labels, counts, n_buckets, 1);
    (void)fprintf(om->out, "%ju\n", (uintmax_t)sum);
}
