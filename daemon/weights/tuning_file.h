/* tuning_file.h - measurements that outlive the process: a line each of a text file
 * (ipc/base/line_file.h).
 *
 * Fields are separated by tabs: a key (what was measured, where, by which build; any text without
 * tabs), rows, kernel, microseconds. Lines that are none of these are skipped and not written
 * again. Threads: one. */
#pragma once

#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

#define TUNING_FILE_BYTES_MAX (1024u * 1024u)
#define TUNING_KEY_BYTES      512u
#define TUNING_KERNEL_BYTES   64u
#define TUNING_FILE_LINES_MAX 8192u /* others are left out: they are looked for one by one */

struct tuning_line {
    char key[TUNING_KEY_BYTES];
    char kernel[TUNING_KERNEL_BYTES];
    uint32_t m;
    double usec;
};

struct tuning_table {
    struct tuning_line *lines; /* owned */
    uint32_t n;
    uint32_t n_allocated;
};

#define TUNING_TABLE_NULL ((struct tuning_table){0})
void tuning_table_finish(struct tuning_table *table);

/* tuning_table_put() - remember a measurement in place of an older one of that key, rows and
 * kernel. 0 or -ENOMEM. tuning_table_get() - microseconds; 0: unknown. */
int tuning_table_put(struct tuning_table *table, const struct tuning_line *line) GD_MUST_CHECK;
double tuning_table_get(const struct tuning_table *table, const char *key, uint32_t m,
                        const char *kernel);

/* tuning_file_read() - add the lines of a file that are not known yet; none where there is no file.
 * tuning_file_write() - all lines, and those that other processes have written meanwhile, which the
 * table has then too, as a whole or not at all, the oldest left out where they are over
 * TUNING_FILE_BYTES_MAX. Results are those of line_file_read() and line_file_write(). */
int tuning_file_read(struct tuning_table *table, const char *path,
                     struct reason *why) GD_MUST_CHECK;
int tuning_file_write(struct tuning_table *table, const char *path,
                      struct reason *why) GD_MUST_CHECK;
