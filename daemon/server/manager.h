/* manager.h - what the service manager hands over at the start, and keeps for later: listening
 * sockets, and descriptors of the weights that an earlier process had it keep.
 *
 * The manager is systemd, or gemmd's own keeper, which speaks the same protocol: LISTEN_FDS at the
 * start, FDSTORE and FDSTOREREMOVE on the notification socket afterwards. */
#pragma once

#include <stdint.h>

#include "daemon/weights/keep.h"
#include "ipc/base/check.h"

struct manager_fd {
    char *name; /* owned */
    int fd;     /* owned; -1 once somebody took it */
};

struct manager {
    struct manager_fd *items; /* owned */
    uint32_t n;
};

#define MANAGER_NULL ((struct manager){0})

/* manager_take() - everything that was handed over; nothing without a manager. First thing in the
 * process, since it goes by descriptor numbers. 0 or negative errno. manager_finish() - closes what
 * nobody took; safe on MANAGER_NULL. */
int manager_take(struct manager *ret_manager) GD_MUST_CHECK;
void manager_finish(struct manager *manager);

/* manager_socket() - the listening socket that is bound at path, made non-blocking; the caller's. -1:
 * none was handed over. */
int manager_socket(struct manager *manager, const char *path);

/* manager_keep() - the descriptors of weights, moved to *ret_keep, whose operations ask the manager
 * to keep more; off without a manager. 0 or negative errno. */
int manager_keep(struct manager *manager, struct keep *ret_keep) GD_MUST_CHECK;
