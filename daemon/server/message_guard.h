/* message_guard.h - a message on the control socket that does not end must not fill the memory.
 *
 * libzmq has no limit on the frames of one message (see ipc/zmtp_meter.h). So the program exports
 * its own recv(), as it does accept4() (accept_guard.h), which reads along on connections of the
 * control socket, and tells libzmq that the peer has hung up when a message gets over the limits of
 * zmtp_meter.h. libzmq then drops what it held of it. Other descriptors are not looked at.
 *
 * That recv() also takes, and closes, descriptors that peers send to sockets where nobody asks for
 * any: see ipc/base/foreign.h.
 *
 * Threads: init and finish while nothing is accepted; a connection's accepting and receiving are
 * both done by libzmq's I/O thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"

/* message_guard_init() - watch what is accepted at `path` from now on; at most n_fds_max
 * descriptors. 0 or negative errno. */
int message_guard_init(const char *path, uint64_t n_fds_max) GD_MUST_CHECK;
void message_guard_finish(void);

/* message_guard_accepted() - a descriptor is a new connection, of whatever listener: the control
 * socket's? */
bool message_guard_accepted(int fd);

/* message_guard_cut() - connections that were ended so far. */
uint64_t message_guard_cut(void);
