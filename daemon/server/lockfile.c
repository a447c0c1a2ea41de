/* lockfile.c - see lockfile.h. The order is the point: folder, lock, then a look at the paths; only
 * the holder of the lock judges what it finds, so that a daemon that is just starting is never
 * disturbed. */
#include "daemon/server/lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"
#include "ipc/side.h"
#include "ipc/stats.h"

static_assert(CONFIG_DIR_BYTES + sizeof("/" SIDE_SOCKET_NAME) - 1 == LOCKFILE_PATH_BYTES &&
                  sizeof(SIDE_CONTROL_NAME) == sizeof(SIDE_SOCKET_NAME) &&
                  sizeof(SIDE_STATUS_NAME) <= sizeof(SIDE_SOCKET_NAME) &&
                  sizeof(STATS_FILE_NAME) <= sizeof(SIDE_SOCKET_NAME),
              "the longest folder with a socket's name fills a socket address");

/* dir is at most CONFIG_DIR_BYTES - 1 long. */
static void make_path(char *ret_path, const char *dir, const char *name)
{
    (void)snprintf(ret_path, LOCKFILE_PATH_BYTES, "%s/%s", dir, name);
}

static int check_dir(int dir_fd, const char *dir, struct reason *why)
{
    struct stat stat;
    if (fstat(dir_fd, &stat) < 0) {
        return err_raise(-errno);
    }
    if (stat.st_uid != geteuid()) {
        return reason_set(why, STATUS_PERMISSION,
                          "the socket folder '%s' belongs to user %u, and this is user %u", dir,
                          stat.st_uid, geteuid());
    }
    if ((stat.st_mode & S_IWOTH) != 0) {
        return reason_set(why, STATUS_PERMISSION,
                          "anybody may write to the socket folder '%s' (mode 0%o)", dir,
                          stat.st_mode & 07777u);
    }
    return 0;
}

static int open_dir(const char *dir, mode_t mode, int *ret_fd, struct reason *why)
{
    if (mkdir(dir, mode) < 0 && errno != EEXIST) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "cannot make the socket folder '%s': %s; name another with "
                          "--socket-dir, for clients too, or with GEMMD_SOCKET_DIR",
                          dir, strerror(errno));
    }
    CLEAN_FD int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "cannot use the socket folder '%s': %s",
                          dir, strerror(errno));
    }
    int r = check_dir(fd, dir, why);
    if (r != 0) {
        return r;
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

/* One that was there before keeps its mode, and a umask narrows that of a new one. */
static void warn_of_dir(int dir_fd, const char *dir, mode_t socket_mode)
{
    struct stat stat;
    bool is_for_group = (socket_mode & S_IRWXG) != 0;
    if (fstat(dir_fd, &stat) != 0) {
        return;
    }
    if ((stat.st_mode & S_IWGRP) != 0) {
        log_write(LOG_LEVEL_WARNING, "server",
                  "the group of the socket folder '%s' may write there (mode 0%o), and so put "
                  "sockets of its own in the place of these; chmod g-w takes that away",
                  dir, stat.st_mode & 07777u);
    }
    if (is_for_group && (stat.st_mode & S_IXGRP) == 0) {
        log_write(LOG_LEVEL_WARNING, "server",
                  "socket_mode is 0%o, but others cannot reach the sockets: the mode of their "
                  "folder '%s' is 0%o; chmod 0750 opens it to its group",
                  socket_mode, dir, stat.st_mode & 07777u);
    }
}

static int take_lock(int dir_fd, const char *dir, int *ret_fd, struct reason *why)
{
    CLEAN_FD int fd = openat(dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "cannot open '%s/lock': %s", dir,
                          strerror(errno));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        return errno == EWOULDBLOCK
                   ? reason_set(why, STATUS_EXISTS, "another gemmd is running on '%s'", dir)
                   : err_raise(-errno);
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

static int check_socket_path(const char *path, struct reason *why)
{
    struct stat stat;
    if (lstat(path, &stat) < 0) {
        return errno == ENOENT ? 0 : err_raise(-errno);
    }
    if (!S_ISSOCK(stat.st_mode)) {
        return reason_set(why, STATUS_EXISTS,
                          "'%s' is in the way and is not a socket; nothing was deleted", path);
    }
    return 0;
}

int lockfile_take(struct lockfile *lockfile, const char *dir, mode_t socket_mode,
                  struct reason *why)
{
    struct lockfile made = LOCKFILE_NULL;
    if (dir[0] == '\0' || dir[0] == '@') {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "the socket folder '%s' is not a path",
                          dir);
    }
    if (strlen(dir) >= CONFIG_DIR_BYTES) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "the socket folder '%.160s' has %zu bytes, over the limit of %u", dir,
                          strlen(dir), CONFIG_DIR_BYTES - 1);
    }
    make_path(made.session_path, dir, SIDE_SOCKET_NAME);
    make_path(made.control_path, dir, SIDE_CONTROL_NAME);
    make_path(made.status_path, dir, SIDE_STATUS_NAME);
    make_path(made.stats_path, dir, STATS_FILE_NAME);
    CLEAN_FD int dir_fd = -1;
    int r = open_dir(dir, (socket_mode & 0060) != 0 ? 0750 : 0700, &dir_fd, why);
    if (r != 0) {
        return r;
    }
    CLEAN_FD int fd = -1;
    r = take_lock(dir_fd, dir, &fd, why);
    r = r != 0 ? r : check_socket_path(made.session_path, why);
    r = r != 0 ? r : check_socket_path(made.control_path, why);
    r = r != 0 ? r : check_socket_path(made.status_path, why);
    if (r != 0) {
        return r;
    }
    warn_of_dir(dir_fd, dir, socket_mode);
    made.fd = steal_fd(&fd);
    *lockfile = made;
    return 0;
}

static void remove_socket(const char *path)
{
    struct stat stat;
    if (lstat(path, &stat) == 0 && S_ISSOCK(stat.st_mode)) {
        (void)unlink(path);
    }
}

void lockfile_finish(struct lockfile *lockfile)
{
    if (lockfile->fd < 0) {
        return;
    }
    if (!lockfile->has_foreign_sockets) {
        remove_socket(lockfile->session_path);
        remove_socket(lockfile->control_path);
        remove_socket(lockfile->status_path);
    }
    (void)close(lockfile->fd);
    *lockfile = LOCKFILE_NULL;
}
