/* tuning_file.c - see tuning_file.h. */
#include "daemon/weights/tuning_file.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/line_file.h"
#include "ipc/base/num.h"

static_assert(TUNING_KEY_BYTES + TUNING_KERNEL_BYTES + 64u < LINE_FILE_LINE_BYTES, "lines fit");

/* ---- in memory ---- */

void tuning_table_finish(struct tuning_table *table)
{
    free(table->lines);
    *table = TUNING_TABLE_NULL;
}

static struct tuning_line *find(const struct tuning_table *table, const char *key, uint32_t m,
                                const char *kernel)
{
    for (uint32_t i = 0; i < table->n; i++) {
        struct tuning_line *line = &table->lines[i];
        if (line->m == m && strcmp(line->kernel, kernel) == 0 && strcmp(line->key, key) == 0) {
            return line;
        }
    }
    return NULL;
}

static int grow(struct tuning_table *table)
{
    uint32_t n = (uint32_t)num_max(64, 2ull * table->n_allocated);
    struct tuning_line *lines = realloc(table->lines, n * sizeof(*lines));
    if (!lines) {
        return err_raise(-ENOMEM);
    }
    table->lines = lines;
    table->n_allocated = n;
    return 0;
}

int tuning_table_put(struct tuning_table *table, const struct tuning_line *line)
{
    struct tuning_line *known = find(table, line->key, line->m, line->kernel);
    if (known) {
        *known = *line;
        return 0;
    }
    int r = table->n < table->n_allocated ? 0 : grow(table);
    if (r == 0) {
        table->lines[table->n++] = *line;
    }
    return r;
}

double tuning_table_get(const struct tuning_table *table, const char *key, uint32_t m,
                        const char *kernel)
{
    const struct tuning_line *line = find(table, key, m, kernel);
    return line ? line->usec : 0;
}

/* ---- as a file ---- */

static struct line_file file_at(const char *path)
{
    return (struct line_file){
        .path = path,
        .what = "tuning file",
        .header = "# Kernels measured by gemmd: what and where, rows, kernel, microseconds a "
                  "launch, between tabs.\n"
                  "# Lines may be deleted: what is missing is measured again.\n",
        .bytes_max = TUNING_FILE_BYTES_MAX,
    };
}

static bool parse(char *text, struct tuning_line *ret_line)
{
    char *fields[4];
    char *end;
    for (uint32_t i = 0; i < ARRAY_LENGTH(fields); i++) {
        fields[i] = strsep(&text, "\t");
        if (!fields[i] || fields[i][0] == '\0') {
            return false;
        }
    }
    unsigned long m = strtoul(fields[1], &end, 10);
    bool is_good = text == NULL && *end == '\0' && m > 0 && m <= UINT32_MAX;
    double usec = strtod(fields[3], &end);
    is_good = is_good && *end == '\0' && usec > 0 && usec < 1e12;
    if (!is_good || strlen(fields[0]) >= sizeof(ret_line->key) ||
        strlen(fields[2]) >= sizeof(ret_line->kernel)) {
        return false;
    }
    *ret_line = (struct tuning_line){.m = (uint32_t)m, .usec = usec};
    memcpy(ret_line->key, fields[0], strlen(fields[0]));
    memcpy(ret_line->kernel, fields[2], strlen(fields[2]));
    return true;
}

static int take_line(void *context, char *text)
{
    struct tuning_table *table = context;
    struct tuning_line line;
    if (table->n >= TUNING_FILE_LINES_MAX || !parse(text, &line)) {
        return STATUS_UNSUPPORTED;
    }
    return find(table, line.key, line.m, line.kernel) ? 0 : tuning_table_put(table, &line);
}

static void format_line(const void *context, uint32_t i, char *text)
{
    const struct tuning_table *table = context;
    const struct tuning_line *line = &table->lines[i];
    (void)snprintf(text, LINE_FILE_LINE_BYTES, "%s\t%u\t%s\t%.2f", line->key, line->m, line->kernel,
                   line->usec);
}

int tuning_file_read(struct tuning_table *table, const char *path, struct reason *why)
{
    const struct line_file file = file_at(path);
    return line_file_read(&file, take_line, table, why);
}

int tuning_file_write(struct tuning_table *table, const char *path, struct reason *why)
{
    const struct line_file file = file_at(path);
    CLEAN_FD int lock = line_file_lock(&file);
    int r = line_file_read(&file, take_line, table, NULL); /* its faults were told at the start */
    if (r < 0) {
        return r;
    }
    return line_file_write(&file, table->n, format_line, table, why);
}
