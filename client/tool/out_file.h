/* out_file.h - a file that a command writes: whole, or as it was before. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "ipc/base/check.h"

struct out_file {
    char path[PATH_MAX];   /* to be written by the caller */
    char target[PATH_MAX]; /* where it goes at the end; "" when path is the place itself */
};

/* out_file_check() - whether a file can be made or replaced at path, before the work whose result
 * goes there. Makes nothing. 0 or a negative errno. */
int out_file_check(const char *path) GD_MUST_CHECK;

/* out_file_begin() - an empty file beside the place, PATH.PID, with the mode of the file it will
 * replace. A device or a pipe is written in place. 0 or a negative errno.
 * out_file_end() - r: 0, or the negative errno of the caller's writing. Move the file to its place,
 * or remove it. r, or the negative errno of the move. */
int out_file_begin(struct out_file *out, const char *path) GD_MUST_CHECK;
int out_file_end(struct out_file *out, int r) GD_MUST_CHECK;
