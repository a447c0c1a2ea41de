/* control_guard.c - see control_guard.h. A list that is searched from end to end: it is as long as
 * there are sessions, and a connection is made once for each. */
#include "daemon/server/control_guard.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct connection {
    int fd;
    uid_t uid;
    ino_t inode; /* of the socket: another one under the same number has another */
};

static struct {
    _Atomic uint64_t limit; /* 0: none */
    struct connection *items;
    uint64_t n;
    uint64_t n_allocated;
} guard;

void control_guard_finish(void)
{
    atomic_store(&guard.limit, 0);
    free(guard.items);
    guard.items = NULL;
    guard.n = 0;
    guard.n_allocated = 0;
}

void control_guard_set_limit(uint64_t n_connections)
{
    atomic_store(&guard.limit, n_connections);
}

static bool identify(int fd, struct connection *ret_connection)
{
    struct ucred peer;
    struct stat info;
    socklen_t n_bytes = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes) < 0 || fstat(fd, &info) < 0) {
        return false;
    }
    *ret_connection = (struct connection){.fd = fd, .uid = peer.uid, .inode = info.st_ino};
    return true;
}

static void forget(uint64_t i)
{
    guard.items[i] = guard.items[--guard.n];
}

/* Whoever had that number before has been closed. */
static void forget_number(int fd)
{
    for (uint64_t i = guard.n; i-- > 0;) {
        if (guard.items[i].fd == fd) {
            forget(i);
        }
    }
}

static void forget_closed(uid_t uid)
{
    for (uint64_t i = guard.n; i-- > 0;) {
        struct connection now;
        bool is_his = guard.items[i].uid == uid;
        if (is_his && (!identify(guard.items[i].fd, &now) || now.inode != guard.items[i].inode)) {
            forget(i);
        }
    }
}

static uint64_t count(uid_t uid)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < guard.n; i++) {
        n += guard.items[i].uid == uid;
    }
    return n;
}

/* False without memory for it. */
static bool add(const struct connection *connection)
{
    if (guard.n == guard.n_allocated) {
        uint64_t n_allocated = guard.n_allocated == 0 ? 64 : 2 * guard.n_allocated;
        struct connection *longer = reallocarray(guard.items, n_allocated, sizeof(*guard.items));
        if (longer == NULL) {
            return false;
        }
        guard.items = longer;
        guard.n_allocated = n_allocated;
    }
    guard.items[guard.n++] = *connection;
    return true;
}

bool control_guard_admit(int connection)
{
    struct connection made;
    uint64_t limit = atomic_load(&guard.limit);
    if (limit == 0 || !identify(connection, &made)) {
        return true;
    }
    forget_number(connection);
    if (count(made.uid) >= limit) {
        forget_closed(made.uid);
    }
    return count(made.uid) < limit && add(&made);
}
