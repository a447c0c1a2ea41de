/* Files of a checkpoint are read with pread and not mapped: a file that is truncated under us is
 * then an error of one load and not a SIGBUS of the daemon. */
#include "daemon/weights/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

static int status_of_open(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return STATUS_NOT_FOUND;
    case EACCES:
    case EPERM:
        return STATUS_PERMISSION;
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO: /* a socket */
        return STATUS_BAD_CHECKPOINT;
    default:
        return STATUS_INTERNAL;
    }
}

int file_open_regular(int folder_fd, const char *name, const char *shown, int *ret_fd,
                      uint64_t *ret_size_bytes, struct reason *why)
{
    CLEAN_FD int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return reason_set(why, status_of_open(errno), "cannot open '%s': %s", shown,
                          strerror(errno));
    }
    struct stat info;
    if (fstat(fd, &info) < 0) {
        return reason_errno(why, -errno, "cannot look at '%s'", shown);
    }
    if (!S_ISREG(info.st_mode)) {
        return reason_set(why, STATUS_BAD_CHECKPOINT, "'%s' is %s, not a regular file", shown,
                          S_ISDIR(info.st_mode) ? "a folder" : "a special file");
    }
    *ret_fd = steal_fd(&fd);
    *ret_size_bytes = (uint64_t)info.st_size;
    return 0;
}

int file_read_at(int fd, const char *shown, uint64_t offset_bytes, void *ret_bytes,
                 size_t size_bytes, struct reason *why)
{
    char *to = ret_bytes;
    while (size_bytes > 0) {
        ssize_t n = pread(fd, to, size_bytes, (off_t)offset_bytes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return reason_errno(why, -errno, "cannot read '%s' at byte %" PRIu64, shown,
                                offset_bytes);
        }
        if (n == 0) {
            return reason_set(why, STATUS_BAD_CHECKPOINT,
                              "'%s' ends at byte %" PRIu64 ", %zu bytes early: it was cut while "
                              "being read",
                              shown, offset_bytes, size_bytes);
        }
        to += n;
        offset_bytes += (uint64_t)n;
        size_bytes -= (size_t)n;
    }
    return 0;
}

int file_read_whole(int folder_fd, const char *name, uint64_t limit_bytes, char **ret_bytes,
                    size_t *ret_size_bytes, struct reason *why)
{
    CLEAN_FD int fd = -1;
    uint64_t size_bytes;
    int r = file_open_regular(folder_fd, name, name, &fd, &size_bytes, why);
    if (r != 0) {
        return r;
    }
    if (size_bytes > limit_bytes) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          "'%s' has %" PRIu64 " bytes, over the limit of %" PRIu64, name,
                          size_bytes, limit_bytes);
    }
    CLEAN_FREE char *bytes = malloc(size_bytes + 1);
    if (!bytes) {
        return err_raise(-ENOMEM);
    }
    r = file_read_at(fd, name, 0, bytes, size_bytes, why);
    if (r != 0) {
        return r;
    }
    bytes[size_bytes] = '\0';
    *ret_bytes = steal_ptr(&bytes);
    *ret_size_bytes = size_bytes;
    return 0;
}
