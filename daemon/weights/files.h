/* files.h - opening and reading files that somebody else wrote, without ever hanging on them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

/* file_open_regular() - open a regular file (symlinks are followed: model caches are made of them)
 * for reading. Never blocks on a FIFO. `shown` names it in messages. Return: 0, or
 * STATUS_NOT_FOUND, PERMISSION, BAD_CHECKPOINT (not a regular file), INTERNAL. */
int file_open_regular(int folder_fd, const char *name, const char *shown, int *ret_fd,
                      uint64_t *ret_size_bytes, struct reason *why) GD_MUST_CHECK;

/* file_read_at() - exactly size_bytes from an offset. A file that has become shorter since it was
 * opened is STATUS_BAD_CHECKPOINT, not a signal. */
int file_read_at(int fd, const char *shown, uint64_t offset_bytes, void *ret_bytes,
                 size_t size_bytes, struct reason *why) GD_MUST_CHECK;

/* file_read_whole() - a malloc'd copy of a whole file of at most `limit_bytes`; the caller frees.
 * Return as file_open_regular(), and STATUS_BAD_CHECKPOINT for a larger file, -ENOMEM. */
int file_read_whole(int folder_fd, const char *name, uint64_t limit_bytes, char **ret_bytes,
                    size_t *ret_size_bytes, struct reason *why) GD_MUST_CHECK;
