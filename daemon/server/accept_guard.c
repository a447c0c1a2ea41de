/* accept_guard.c - see accept_guard.h.
 *
 * The alternative, a listener of our own in front of libzmq, would put a copy of every byte through
 * this process a second time; a cap on connections inside libzmq does not exist. The system call is
 * made with syscall() since the C library's name is the one that is replaced. */
#include "daemon/server/accept_guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipc/base/error.h"
#include "ipc/base/foreign.h"
#include "ipc/base/num.h"

#include "daemon/server/control_guard.h"
#include "daemon/server/message_guard.h"

#define LIMIT_MAX 1048576u /* "unlimited" would make every close-all loop of a child endless */

static struct {
    pthread_mutex_t lock;
    int reserve_fd; /* -1: none */
    uid_t admins[ACCEPT_GUARD_UIDS_MAX];
    uint32_t n_admins;
    _Atomic int favoured_fd;
    _Atomic bool is_on;
    _Atomic uint64_t limit;
    _Atomic uint64_t n_shed;
} guard = {.lock = PTHREAD_MUTEX_INITIALIZER, .reserve_fd = -1, .favoured_fd = -1};

static int plain_accept(int fd, struct sockaddr *address, socklen_t *n_bytes, int flags)
{
    return (int)syscall(SYS_accept4, fd, address, n_bytes, flags);
}

static void take_reserve(void)
{
    if (guard.reserve_fd < 0) {
        guard.reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
}

/* Accept on the reserve and hang up. If another thread takes the descriptor in between, the
 * connection waits for the next round: the listener stays readable. */
static void shed_one(int fd)
{
    (void)pthread_mutex_lock(&guard.lock);
    if (guard.reserve_fd >= 0) {
        (void)close(guard.reserve_fd);
        guard.reserve_fd = -1;
    }
    int connection = plain_accept(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
        foreign_hang_up(connection);
        atomic_fetch_add_explicit(&guard.n_shed, 1, memory_order_relaxed);
    }
    take_reserve();
    (void)pthread_mutex_unlock(&guard.lock);
}

static bool is_of_admin(int connection)
{
    struct ucred peer;
    socklen_t n_bytes = sizeof(peer);
    bool is_found = false;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes) < 0) {
        return false;
    }
    (void)pthread_mutex_lock(&guard.lock);
    for (uint32_t i = 0; i < guard.n_admins && !is_found; i++) {
        is_found = guard.admins[i] == peer.uid;
    }
    (void)pthread_mutex_unlock(&guard.lock);
    return is_found;
}

/* Descriptors are handed out lowest first: a high one means that few are left. */
static uint64_t n_left_above(int fd)
{
    uint64_t limit = atomic_load_explicit(&guard.limit, memory_order_relaxed);
    return limit - num_min((uint64_t)fd + 1, limit);
}

bool accept_guard_is_kept(int fd)
{
    uint64_t limit = atomic_load_explicit(&guard.limit, memory_order_relaxed);
    uint64_t n_kept =
        ACCEPT_GUARD_HEADROOM + ACCEPT_GUARD_FAVOURED + num_min(ACCEPT_GUARD_ADMINS, limit / 8);
    return atomic_load_explicit(&guard.is_on, memory_order_acquire) && n_left_above(fd) < n_kept;
}

/* Is it kept, and for others than who connects at that listener? */
static bool is_for_others(int fd, int connection)
{
    uint64_t n_left = n_left_above(connection);
    uint64_t n_favoured = ACCEPT_GUARD_HEADROOM + ACCEPT_GUARD_FAVOURED;
    if (!accept_guard_is_kept(connection)) {
        return false;
    }
    if (fd == atomic_load_explicit(&guard.favoured_fd, memory_order_relaxed)) {
        return n_left < ACCEPT_GUARD_HEADROOM;
    }
    return n_left < n_favoured || !is_of_admin(connection);
}

/* Administrators are trusted with as many as there are for them. */
static bool may_stay(int fd, int connection)
{
    if (is_for_others(fd, connection)) {
        return false;
    }
    return !message_guard_accepted(connection) || is_of_admin(connection) ||
           control_guard_admit(connection);
}

static int guarded_accept(int fd, struct sockaddr *address, socklen_t *n_bytes, int flags)
{
    int connection = plain_accept(fd, address, n_bytes, flags);
    if (!atomic_load_explicit(&guard.is_on, memory_order_acquire)) {
        return connection;
    }
    if (connection < 0 && (errno == EMFILE || errno == ENFILE)) {
        shed_one(fd);
        errno = ECONNABORTED;
        return -1;
    }
    if (connection >= 0 && !may_stay(fd, connection)) {
        foreign_hang_up(connection);
        atomic_fetch_add_explicit(&guard.n_shed, 1, memory_order_relaxed);
        errno = ECONNABORTED;
        return -1;
    }
    return connection;
}

GD_PUBLIC int accept4(int fd, struct sockaddr *address, socklen_t *n_bytes, int flags)
{
    return guarded_accept(fd, address, n_bytes, flags);
}

GD_PUBLIC int accept(int fd, struct sockaddr *address, socklen_t *n_bytes)
{
    return guarded_accept(fd, address, n_bytes, 0);
}

int accept_guard_init(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        return err_raise(-errno);
    }
    limit.rlim_cur = limit.rlim_max < LIMIT_MAX ? limit.rlim_max : LIMIT_MAX;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0) {
        return err_raise(-errno);
    }
    (void)pthread_mutex_lock(&guard.lock);
    take_reserve();
    bool has_reserve = guard.reserve_fd >= 0;
    (void)pthread_mutex_unlock(&guard.lock);
    if (!has_reserve) {
        return err_raise(-EMFILE);
    }
    atomic_store_explicit(&guard.limit, limit.rlim_cur, memory_order_relaxed);
    atomic_store_explicit(&guard.is_on, true, memory_order_release);
    return 0;
}

void accept_guard_favour(int listen_fd)
{
    atomic_store_explicit(&guard.favoured_fd, listen_fd, memory_order_relaxed);
}

void accept_guard_set_admins(const uid_t *uids, uint32_t n)
{
    GD_ASSERT(n <= ACCEPT_GUARD_UIDS_MAX);
    (void)pthread_mutex_lock(&guard.lock);
    memcpy(guard.admins, uids, n * sizeof(*uids));
    guard.n_admins = n;
    (void)pthread_mutex_unlock(&guard.lock);
}

void accept_guard_finish(void)
{
    accept_guard_favour(-1);
    atomic_store_explicit(&guard.is_on, false, memory_order_release);
    (void)pthread_mutex_lock(&guard.lock);
    guard.n_admins = 0;
    if (guard.reserve_fd >= 0) {
        (void)close(guard.reserve_fd);
        guard.reserve_fd = -1;
    }
    (void)pthread_mutex_unlock(&guard.lock);
}

uint64_t accept_guard_limit(void)
{
    return atomic_load_explicit(&guard.limit, memory_order_relaxed);
}

uint64_t accept_guard_shed(void)
{
    return atomic_load_explicit(&guard.n_shed, memory_order_relaxed);
}

uint64_t accept_guard_used(void)
{
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL) {
        return 0;
    }
    uint64_t n = 0;
    while (readdir(dir) != NULL) {
        n++;
    }
    (void)closedir(dir);
    return n >= 3 ? n - 3 : 0; /* ".", ".." and the folder's own descriptor */
}
