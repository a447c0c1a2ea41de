/* message_guard.c - see message_guard.h.
 *
 * The meters lie in a table by descriptor, which is a hole until used. That a number is used again
 * by another kind of descriptor is seen when it is accepted; those that come about otherwise are
 * not read with recv() here. */
#include "daemon/server/message_guard.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc/base/error.h"
#include "ipc/base/foreign.h"
#include "ipc/zmtp_meter.h"

struct watched {
    _Atomic bool is_on;
    bool is_cut;
    struct zmtp_meter meter;
};

static struct {
    struct watched *table; /* NULL: off */
    uint64_t n_fds_max;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    _Atomic uint64_t n_cut;
} guard;

int message_guard_init(const char *path, uint64_t n_fds_max)
{
    size_t n_bytes = strlen(path);
    if (n_bytes >= sizeof(guard.path)) {
        return err_raise(-ENAMETOOLONG);
    }
    guard.table = calloc(n_fds_max, sizeof(*guard.table));
    if (guard.table == NULL) {
        return err_raise(-ENOMEM);
    }
    guard.n_fds_max = n_fds_max;
    memcpy(guard.path, path, n_bytes + 1);
    return 0;
}

void message_guard_finish(void)
{
    free(guard.table);
    guard.table = NULL;
    guard.n_fds_max = 0;
}

static struct watched *find(int fd)
{
    return fd >= 0 && (uint64_t)fd < guard.n_fds_max ? &guard.table[fd] : NULL;
}

static bool is_of_control_socket(int fd)
{
    struct sockaddr_un address = {0};
    socklen_t n_bytes = sizeof(address) - 1; /* leaves a NUL */
    return getsockname(fd, (struct sockaddr *)&address, &n_bytes) == 0 &&
           address.sun_family == AF_UNIX && strcmp(address.sun_path, guard.path) == 0;
}

bool message_guard_accepted(int fd)
{
    struct watched *watched = find(fd);
    if (watched == NULL) {
        return false;
    }
    bool is_on = is_of_control_socket(fd);
    if (is_on) {
        watched->is_cut = false;
        zmtp_meter_init(&watched->meter);
    }
    atomic_store_explicit(&watched->is_on, is_on, memory_order_release);
    return is_on;
}

/* May these bytes be handed on? */
static bool is_allowed(int fd, const void *bytes, size_t n_bytes)
{
    struct watched *watched = find(fd);
    if (watched == NULL || !atomic_load_explicit(&watched->is_on, memory_order_acquire) ||
        zmtp_meter_take(&watched->meter, bytes, n_bytes)) {
        return true;
    }
    if (!watched->is_cut) {
        watched->is_cut = true;
        atomic_fetch_add_explicit(&guard.n_cut, 1, memory_order_relaxed);
    }
    return false;
}

/* Another name in C, since the C library's headers may define recv() as a wrapper of their own. */
GD_PUBLIC ssize_t guarded_recv(int fd, void *bytes, size_t n_bytes, int flags) __asm__("recv");

ssize_t guarded_recv(int fd, void *bytes, size_t n_bytes, int flags)
{
    struct foreign_fds fds;
    struct foreign_signs signs;
    ssize_t n = foreign_receive(fd, bytes, n_bytes, flags, &fds, &signs);
    foreign_close_all(&fds);
    if (n > 0 && !is_allowed(fd, bytes, (size_t)n)) {
        return 0;
    }
    return n;
}

uint64_t message_guard_cut(void)
{
    return atomic_load_explicit(&guard.n_cut, memory_order_relaxed);
}
