/* line_file.h - what outlives the process as text, a line for each thing that is kept: read and
 * judged line by line, written as a whole or not at all. Text, because an operator may want to read
 * it, compare two machines' or delete a line. Lines starting with '#' are comments. One thread at a
 * time uses a file; processes take turns by line_file_lock(). */
#pragma once

#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

#define LINE_FILE_LINE_BYTES 8192u /* with its end */

struct line_file {
    const char *path;
    const char *what;   /* for sentences: "tuning file" */
    const char *header; /* comments for its top, whole lines */
    uint64_t bytes_max; /* what is over it is neither read nor written */
};

/* line_take - a line without its end, to be cut up in place: 0; STATUS_* (any): it is none of ours,
 * and is left out; or a negative errno, which ends reading.
 * line_format - line i, without its end, into LINE_FILE_LINE_BYTES - 1 bytes and a NUL. */
typedef int (*line_take)(void *context, char *line);
typedef void (*line_format)(const void *context, uint32_t i, char *text);

/* line_file_read() - each line that is no comment; none where there is no file. 0, the negative
 * errno of take(), -ENOMEM, or STATUS_UNSUPPORTED naming the file and what is wrong with it: that
 * it cannot be read, or how many of its lines were left out, the others having been taken. */
int line_file_read(const struct line_file *file, line_take take, void *context,
                   struct reason *why) GD_MUST_CHECK;

/* line_file_lock() - for who reads the file and then writes it, so as to keep what another process
 * wrote: a descriptor to be closed behind the writing, which holds an advisory lock of the file's
 * folder, made where it is missing. Waits a moment at most; what could be lost then is only kept
 * for convenience. -1: there is no such folder, as writing will say. */
int line_file_lock(const struct line_file *file);

/* line_file_write() - n lines in place of those that are there, the first of them left out where
 * all are over bytes_max; folders on its way are made where they are missing. 0, or
 * STATUS_UNSUPPORTED naming the file and what is wrong with it. */
int line_file_write(const struct line_file *file, uint32_t n, line_format format,
                    const void *context, struct reason *why) GD_MUST_CHECK;
