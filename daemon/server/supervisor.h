/* supervisor.h - what the supervisor hands over at the start, and keeps for later: listening
 * sockets, and descriptors of the weights that an earlier process had it keep.
 *
 * The supervisor is systemd, or gemmd's own keeper, which speaks the same protocol: LISTEN_FDS at
 * the start, FDSTORE and FDSTOREREMOVE on the notification socket afterwards. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/server/exit_code.h"
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
 * caller's. -1: none was handed over, or somebody has taken it. supervisor_has_socket() - is it
 * there still? */
bool supervisor_has_socket(const struct supervisor *supervisor, const char *path);
int supervisor_socket(struct supervisor *supervisor, const char *path);

/* supervisor_has_weights() - were some handed over? Before supervisor_take().
 * supervisor_end_start() - the last thing in a process that has them and cannot start, for `code`:
 * waits for 2 s, so that systemd, which gives up a unit together with all it holds when that fails
 * too often, or with EXIT_CODE_USAGE, does not get there, and returns EXIT_CODE_FAILED, which asks
 * for another start; or EXIT_CODE_DONE at once when SIGTERM or SIGINT (blocked) comes. */
bool supervisor_has_weights(void);
enum exit_code supervisor_end_start(enum exit_code code);

/* supervisor_keep() - the descriptors of weights, moved to *ret_keep, whose operations ask it
 * to keep more; off without one. 0 or negative errno. */
int supervisor_keep(struct supervisor *supervisor, struct keep *ret_keep) GD_MUST_CHECK;
