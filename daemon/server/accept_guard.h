/* accept_guard.h - running out of file descriptors must not end the daemon.
 *
 * libzmq 4.3 aborts the process when accept4() on an ipc listener fails with EMFILE, and anybody
 * who may connect can bring that about. So the program exports its own accept() and accept4(),
 * which libzmq reaches through the dynamic linker like everybody else. They keep the last
 * ACCEPT_GUARD_HEADROOM descriptors for the daemon's own use, before them ACCEPT_GUARD_FAVOURED for
 * who asks what is the matter, before those ACCEPT_GUARD_ADMINS (at most an eighth of all) for
 * administrators, and one more as a reserve: a connection that cannot be had is accepted on the
 * reserve, closed at once, and answered as ECONNABORTED, which every accept loop has to expect. The
 * peer sees a hang-up at once instead of a queue that never moves.
 *
 * Who has too many connections to the control socket is hung up on alike (control_guard.h).
 *
 * Threads: any; the reserve and the administrators are behind a mutex. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/base/check.h"

#define ACCEPT_GUARD_HEADROOM 8u
#define ACCEPT_GUARD_FAVOURED 4u
#define ACCEPT_GUARD_ADMINS   24u /* 4 sessions and a full status socket */
#define ACCEPT_GUARD_UIDS_MAX 40u

/* accept_guard_init() - raise RLIMIT_NOFILE to its hard limit, and take the reserve. 0 or negative
 * errno. Before it is called accept() is the plain system call. */
int accept_guard_init(void) GD_MUST_CHECK;
void accept_guard_finish(void);

/* accept_guard_favour() - the listener whose connections may use the descriptors that are kept from
 * others: the status socket's. One at a time; -1: none. */
void accept_guard_favour(int listen_fd);

/* accept_guard_set_admins() - whose connections may use the descriptors that are kept for
 * administrators; at most ACCEPT_GUARD_UIDS_MAX. Nobody's until it is called. */
void accept_guard_set_admins(const uid_t *uids, uint32_t n);

/* accept_guard_is_kept() - is that descriptor, which a client would have the daemon hold, one of
 * those that are kept? False before accept_guard_init(). */
bool accept_guard_is_kept(int fd);

/* accept_guard_limit() - RLIMIT_NOFILE now. accept_guard_used() - descriptors open now, by a look
 * into /proc/self/fd; 0: unknown. accept_guard_shed() - connections closed so far, for want of
 * descriptors or since their user has too many. */
uint64_t accept_guard_limit(void);
uint64_t accept_guard_used(void);
uint64_t accept_guard_shed(void);
