/* unix.c - Unix socket paths.
 *
 * The mode without a window: bind() gives the file the mode of the socket's own inode less the
 * umask. So fchmod() before bind() makes it narrow from the start, and chmod() afterwards adds the
 * bits that the umask took. Setting the umask instead would do it in one step, but the umask
 * belongs to the whole process and another thread may be creating a file. */
#include "ipc/unix.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define LISTEN_BACKLOG 128

static int fill_address(struct sockaddr_un *ret_address, const char *path)
{
    size_t n_bytes = strlen(path);
    if (n_bytes == 0) {
        return err_raise(-EINVAL); /* bind() would pick an abstract name that has no permissions */
    }
    if (n_bytes > UNIX_PATH_BYTES_MAX) {
        return err_raise(-ENAMETOOLONG);
    }
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_address->sun_path, path, n_bytes + 1);
    return 0;
}

static int remove_stale(const char *path)
{
    struct stat info;
    if (lstat(path, &info) < 0) {
        return errno == ENOENT ? 0 : err_raise(-errno);
    }
    if (!S_ISSOCK(info.st_mode)) {
        return err_raise(-EEXIST);
    }
    return unlink(path) < 0 ? err_raise(-errno) : 0;
}

int unix_listen(const char *path, int type, mode_t mode)
{
    struct sockaddr_un address;
    int r = fill_address(&address, path);
    if (r < 0) {
        return r;
    }
    CLEAN_FD int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || fchmod(fd, mode) < 0) {
        return err_raise(-errno);
    }
    r = remove_stale(path);
    if (r < 0) {
        return r;
    }
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        return err_raise(-errno);
    }
    if (chmod(path, mode) < 0 || listen(fd, LISTEN_BACKLOG) < 0) {
        r = err_raise(-errno);
        (void)unlink(path);
        return r;
    }
    return steal_fd(&fd);
}

static int limit_sends(int fd, uint64_t usec)
{
    struct timeval limit = {.tv_sec = (time_t)(usec / 1000000),
                            .tv_usec = (suseconds_t)(usec % 1000000)};
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ? err_raise(-errno)
                                                                              : 0;
}

/* A signal ends the call; what is left of the time is left for the next. */
static int connect_until(int fd, const struct sockaddr_un *address, uint64_t end_nsec)
{
    for (;;) {
        uint64_t left_nsec = end_nsec - num_min(clock_now_nsec(), end_nsec);
        int r = left_nsec < CLOCK_NSEC_PER_USEC ? -EAGAIN
                                                : limit_sends(fd, left_nsec / CLOCK_NSEC_PER_USEC);
        if (r < 0) {
            return r;
        }
        if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0) {
            return 0;
        }
        if (errno != EINTR) {
            return err_raise(-errno);
        }
    }
}

int unix_connect(const char *path, int type, uint32_t timeout_msec)
{
    struct sockaddr_un address;
    int r = fill_address(&address, path);
    if (r < 0) {
        return r;
    }
    CLEAN_FD int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return err_raise(-errno);
    }
    r = connect_until(fd, &address, clock_now_nsec() + timeout_msec * UINT64_C(1000000));
    if (r == 0) {
        r = limit_sends(fd, timeout_msec * UINT64_C(1000));
    }
    return r < 0 ? r : steal_fd(&fd);
}
