/* foreign.c - see foreign.h. That a connection is undone, rather than SO_LINGER switched off,
 * leaves a peer with a copy of it no moment to switch it on again before our close(). */
#include "ipc/base/foreign.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

union control {
    struct cmsghdr header;
    uint8_t bytes[CMSG_SPACE(FOREIGN_FDS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

static void take_fds(const struct cmsghdr *part, struct foreign_fds *fds)
{
    uint32_t n = (uint32_t)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    GD_ASSERT(n <= FOREIGN_FDS_MAX - fds->n);
    memcpy(&fds->fds[fds->n], CMSG_DATA(part), n * sizeof(int));
    fds->n += n;
}

static pid_t sender_of(const struct cmsghdr *part)
{
    struct ucred sender;
    memcpy(&sender, CMSG_DATA(part), sizeof(sender));
    return sender.pid;
}

static void take_control(struct msghdr *header, struct foreign_fds *fds,
                         struct foreign_signs *signs)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET) {
            continue;
        }
        if (c->cmsg_type == SCM_RIGHTS) {
            take_fds(c, fds);
        } else if (c->cmsg_type == SCM_CREDENTIALS) {
            signs->sender = sender_of(c);
        }
    }
}

ssize_t foreign_receive(int fd, void *bytes, size_t n_bytes, int flags, struct foreign_fds *ret_fds,
                        struct foreign_signs *ret_signs)
{
    union control control;
    struct iovec place = {.iov_base = bytes, .iov_len = n_bytes};
    struct msghdr header = {
        .msg_iov = &place,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ret_fds->n = 0;
    ssize_t n = recvmsg(fd, &header, flags | MSG_CMSG_CLOEXEC);
    if (n < 0) {
        return n;
    }
    *ret_signs =
        (struct foreign_signs){.flags = header.msg_flags, .has_control = header.msg_controllen > 0};
    take_control(&header, ret_fds, ret_signs);
    return n;
}

/* SO_DOMAIN or SO_TYPE; -1: it is no socket. */
static int kind_of(int fd, int option)
{
    int kind = -1;
    socklen_t n_bytes = sizeof(kind);
    return getsockopt(fd, SOL_SOCKET, option, &kind, &n_bytes) == 0 ? kind : -1;
}

bool foreign_is_socket(int fd)
{
    return kind_of(fd, SO_TYPE) != -1;
}

void foreign_close(int fd)
{
    int saved = errno;
    int domain = kind_of(fd, SO_DOMAIN);
    if (domain != -1 && domain != AF_UNIX) {
        const struct linger none = {.l_onoff = 0};
        const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
        (void)connect(fd, &nowhere, sizeof(nowhere));
    }
    (void)close(fd);
    errno = saved;
}

void foreign_close_all(struct foreign_fds *fds)
{
    while (fds->n > 0) {
        int fd = fds->fds[--fds->n];
        if (fd >= 0) {
            foreign_close(fd);
        }
    }
}

/* One more message, or the next bytes of a stream. */
static bool drop_one(int connection)
{
    uint8_t bytes[4096];
    struct foreign_fds fds;
    struct foreign_signs signs = {0};
    ssize_t n = foreign_receive(connection, bytes, sizeof(bytes), MSG_DONTWAIT, &fds, &signs);
    foreign_close_all(&fds);
    return n > 0 || (n == 0 && signs.has_control) || (n < 0 && errno == EINTR);
}

void foreign_drain(int connection)
{
    const int yes = 1;
    if (kind_of(connection, SO_DOMAIN) != AF_UNIX) {
        return; /* no descriptors come over TCP, and more bytes do, however often one looks */
    }
    /* An empty message of a SEQPACKET looks like the end but for who sent it. */
    if (kind_of(connection, SO_TYPE) == SOCK_SEQPACKET) {
        (void)setsockopt(connection, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes));
    }
    (void)shutdown(connection, SHUT_RD);
    while (drop_one(connection)) {
    }
}

void foreign_hang_up(int connection)
{
    int saved = errno;
    foreign_drain(connection);
    (void)close(connection);
    errno = saved;
}

void foreign_forbid(int listen_fd)
{
    const int no = 0;
    (void)setsockopt(listen_fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}
