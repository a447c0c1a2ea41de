/* lockfile.h - the socket folder and the right to use it.
 *
 * Binding a ZeroMQ ipc:// path that another process uses succeeds and silently takes its traffic
 * away, so one daemon alone may touch the sockets of a folder: the one that holds an exclusive
 * flock() on the file "lock" in it. The kernel drops the lock with the process, however that ends,
 * so a lock is never stale. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "daemon/server/config.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"

#define LOCKFILE_PATH_BYTES sizeof(((struct sockaddr_un *)0)->sun_path)

struct lockfile {
    int fd; /* owned, holds the lock */
    char session_path[LOCKFILE_PATH_BYTES];
    char control_path[LOCKFILE_PATH_BYTES];
    char status_path[LOCKFILE_PATH_BYTES];
    char stats_path[LOCKFILE_PATH_BYTES]; /* a file, not a socket: see ipc/stats.h */
    bool has_foreign_sockets;             /* the service manager made them, and removes them */
};

#define LOCKFILE_NULL ((struct lockfile){.fd = -1})

/* lockfile_take() - make the folder if it is absent (0700, or 0750 when socket_mode has group
 * bits), check that it is a folder of this user, lock it, and check that nothing but a socket lies
 * at the socket paths. Deletes nothing; logs a warning if the folder keeps the group from sockets
 * that are for it. Return: 0, negative errno, or STATUS_INVALID_ARGUMENT (path too long, not a
 * folder), STATUS_PERMISSION (another user's), STATUS_EXISTS (another daemon runs; something that
 * is not a socket is in the way). */
int lockfile_take(struct lockfile *lockfile, const char *dir, mode_t socket_mode,
                  struct reason *why) GD_MUST_CHECK;

/* lockfile_finish() - remove the sockets unless they are foreign, then let go of the lock; the
 * empty lock file stays, since removing it would let two daemons lock two different files. Safe on
 * LOCKFILE_NULL. */
void lockfile_finish(struct lockfile *lockfile);
