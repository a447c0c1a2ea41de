/* unix.h - listening on and connecting to a Unix socket path, for both of gemmd's sockets. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "ipc/base/check.h"

#define UNIX_PATH_BYTES_MAX 107u /* sun_path less its NUL */

/* unix_listen() - bind and listen at path; type is SOCK_SEQPACKET or SOCK_STREAM. Non-blocking,
 * CLOEXEC. The caller holds the directory's lock, so a socket found at path is stale and is
 * replaced; anything else there is left alone. The file has exactly the permission bits `mode`, at
 * no moment wider ones. Nothing unlinks the path but the caller. Return: fd >= 0; -ENAMETOOLONG
 * over UNIX_PATH_BYTES_MAX, -EEXIST for what is no socket, other negative errno. */
int unix_listen(const char *path, int type, mode_t mode) GD_MUST_CHECK;

/* unix_connect() - a blocking, CLOEXEC connection. timeout_msec, > 0, bounds the connecting, which
 * a listener that does not accept could hold up for ever, signals or not, and stays the limit of
 * every send.
 * Return: fd >= 0 or negative errno, -EAGAIN when time ran out. */
int unix_connect(const char *path, int type, uint32_t timeout_msec) GD_MUST_CHECK;
