/* supervisor.h - what the supervisor hands over at the start, and keeps for later: listening
 * sockets, and descriptors of the weights that an earlier process had it keep.
 *
 * The supervisor is systemd, or gemmd's own keeper, which speaks the same protocol: LISTEN_FDS at
 * the start, FDSTORE and FDSTOREREMOVE on the notification socket afterwards. */
#pragma once

#include <stdint.h>

#include "daemon/weights/keep.h"
#include "ipc/base/check.h"

struct supervisor_fd {
    char *name; /* owned */
    int fd;     /* owned; -1 once somebody took it */
};

struct supervisor {
    struct supervisor_fd *items; /* owned */
    uint32_t n;
};

#define SUPERVISOR_NULL ((struct supervisor){0})

/* supervisor_take() - everything that was handed over; nothing without one. First thing in the
 * process, since it goes by descriptor numbers. 0 or negative errno. supervisor_finish() - closes
 * what nobody took; safe on SUPERVISOR_NULL. */
int supervisor_take(struct supervisor *ret_supervisor) GD_MUST_CHECK;
void supervisor_finish(struct supervisor *supervisor);

/* supervisor_socket() - the listening socket that is bound at path, made non-blocking; the
 * caller's. -1: none was handed over. */
int supervisor_socket(struct supervisor *supervisor, const char *path);

/* supervisor_keep() - the descriptors of weights, moved to *ret_keep, whose operations ask it
 * to keep more; off without one. 0 or negative errno. */
int supervisor_keep(struct supervisor *supervisor, struct keep *ret_keep) GD_MUST_CHECK;
