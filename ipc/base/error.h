/* error.h - the two tiers of int that functions return.
 *
 *   0         done
 *   negative  an errno: fatal to the operation, passed up untouched until somebody decides
 *   positive  an enum status with its sentence in a struct reason: an answer, handled by the caller
 *
 * err_raise() marks the place where a negative first appears. It costs nothing on success and keeps
 * the last few places in a thread-local trail that error_trail() prints into a report. */
#pragma once

#include <stddef.h>

#define err_raise(r) error_record((r), __FILE__, __LINE__)

/* error_record() - remember (r, file, line) if r is negative; returns r. Any thread. */
int error_record(int r, const char *file, int line);

/* error_trail() - write the calling thread's recent places, newest first, as
 * "ipc/shm.c:41 -12, ..." into text (always NUL-terminated). */
void error_trail(char *text, size_t size_bytes);
