/* tuning_file.c - see tuning_file.h. Text, because an operator may want to read it, compare two
 * machines' or delete a line; a damaged one costs a measurement, so nothing guards its bytes. */
#include "daemon/weights/tuning_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define LINE_BYTES (TUNING_KEY_BYTES + TUNING_KERNEL_BYTES + 64u)

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

/* ---- reading ---- */

/* One line of text, cut up in place; false: it is none of ours. */
static bool parse(char *text, struct tuning_line *ret_line)
{
    char *fields[4];
    char *end;
    for (uint32_t i = 0; i < ARRAY_LENGTH(fields); i++) {
        fields[i] = strsep(&text, i + 1 < ARRAY_LENGTH(fields) ? "\t" : "\n");
        if (!fields[i] || fields[i][0] == '\0') {
            return false;
        }
    }
    unsigned long m = strtoul(fields[1], &end, 10);
    bool is_good = *end == '\0' && m > 0 && m <= UINT32_MAX;
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

static int read_lines(struct tuning_table *table, FILE *file)
{
    char text[LINE_BYTES];
    struct tuning_line line;
    uint64_t n_bytes = 0;
    int r = 0;
    while (r == 0 && n_bytes <= TUNING_FILE_BYTES_MAX && fgets(text, sizeof(text), file)) {
        n_bytes += strlen(text);
        if (text[0] != '#' && parse(text, &line)) {
            r = tuning_table_put(table, &line);
        }
    }
    return r;
}

int tuning_file_read(struct tuning_table *table, const char *path, struct reason *why)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        return errno == ENOENT ? 0
                               : reason_set(why, STATUS_UNSUPPORTED,
                                            "tuning file '%s' cannot be read: %m", path);
    }
    int r = read_lines(table, file);
    if (r == 0 && ferror(file)) {
        r = reason_set(why, STATUS_UNSUPPORTED, "tuning file '%s' cannot be read: %m", path);
    }
    (void)fclose(file);
    return r;
}

/* ---- writing ---- */

static const char header[] = "# Kernels measured by gemmd: what and where, rows, kernel, "
                             "microseconds a launch, between tabs.\n"
                             "# Lines may be deleted: what is missing is measured again.\n";

static int format_line(const struct tuning_line *line, char text[LINE_BYTES])
{
    return snprintf(text, LINE_BYTES, "%s\t%u\t%s\t%.2f\n", line->key, line->m, line->kernel,
                    line->usec);
}

/* The first line that is still written when the newest fill the file. */
static uint32_t first_kept(const struct tuning_table *table)
{
    char text[LINE_BYTES];
    uint64_t n_bytes = sizeof(header);
    uint32_t i = table->n;
    while (i > 0) {
        n_bytes += (uint64_t)format_line(&table->lines[i - 1], text);
        if (n_bytes > TUNING_FILE_BYTES_MAX) {
            break;
        }
        i--;
    }
    return i;
}

/* 0 or an errno. */
static int write_lines(const struct tuning_table *table, const char *path)
{
    char text[LINE_BYTES];
    FILE *file = fopen(path, "we");
    if (!file) {
        return errno;
    }
    int error = fputs(header, file) < 0 ? errno : 0;
    for (uint32_t i = first_kept(table); error == 0 && i < table->n; i++) {
        (void)format_line(&table->lines[i], text);
        error = fputs(text, file) < 0 ? errno : 0;
    }
    return fclose(file) != 0 && error == 0 ? errno : error;
}

static void make_folders(const char *path)
{
    char copy[PATH_MAX];
    (void)snprintf(copy, sizeof(copy), "%s", path);
    for (char *slash = copy; (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        (void)mkdir(copy, 0700); /* what goes wrong here shows when the file is opened */
        *slash = '/';
    }
}

int tuning_file_write(const struct tuning_table *table, const char *path, struct reason *why)
{
    char fresh[PATH_MAX];
    make_folders(path);
    (void)snprintf(fresh, sizeof(fresh), "%s.%d", path, (int)getpid());
    int error = write_lines(table, fresh);
    if (error == 0 && rename(fresh, path) != 0) {
        error = errno;
    }
    if (error != 0) {
        (void)unlink(fresh);
        return reason_set(why, STATUS_UNSUPPORTED, "tuning file '%s' cannot be written: %s", path,
                          strerror(error));
    }
    return 0;
}
