/* foreign.h - descriptors that a peer sends along (SCM_RIGHTS), asked for or not.
 *
 * To close one can take as long as whoever made it pleases: the last close() of a TCP connection
 * with SO_LINGER waits for its reader. The kernel closes for us, on our thread, what a receive has
 * no room for and what is still in the queue of a connection that we close. So everything that may
 * come is received, and closed by foreign_close(). What the process has no number free for is out
 * of reach. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/base/check.h"

#define FOREIGN_FDS_MAX 253u /* the kernel lets no message carry more */

/* What came with some bytes; the receiver's to close. */
struct foreign_fds {
    int fds[FOREIGN_FDS_MAX];
    uint32_t n;
};

struct foreign_signs {
    int flags; /* MSG_TRUNC, and MSG_CTRUNC where there was no number free for a descriptor */
    bool has_control; /* something came beside the bytes */
    pid_t sender;     /* with SO_PASSCRED; 0: unknown */
};

/* foreign_receive() - recv() that takes the descriptors that came along as well, CLOEXEC.
 * Return: bytes, 0 at the end or for an empty message, -1 with errno and no descriptors. */
ssize_t foreign_receive(int fd, void *bytes, size_t n_bytes, int flags, struct foreign_fds *ret_fds,
                        struct foreign_signs *ret_signs) GD_MUST_CHECK;

/* foreign_is_socket() - asks nobody: fstat() of a file may be its owner's to answer. */
bool foreign_is_socket(int fd);

/* foreign_close() - without waiting for what a socket still has to send: that is dropped.
 * foreign_close_all() - those that are left; one that was stolen is -1. Both leave errno alone. */
void foreign_close(int fd);
void foreign_close_all(struct foreign_fds *fds);

/* foreign_drain() - take what a peer has sent, and nobody will read, from a connection that is
 * about to be closed; nothing comes in behind it. foreign_hang_up() - and close it. */
void foreign_drain(int connection);
void foreign_hang_up(int connection);

/* foreign_forbid() - nobody can send descriptors to connections that this listener accepts from now
 * on; where the kernel does not know how (before Linux 6.16), they come as before. */
void foreign_forbid(int listen_fd);
