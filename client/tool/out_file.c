/* out_file.c - see out_file.h. A symbolic link stays: what it points to is replaced. */
#include "client/tool/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

/* Something that is no regular file: a device, a pipe; a folder, which refuses to be opened. */
static bool is_written_in_place(const char *path, struct stat *ret_stat)
{
    return stat(path, ret_stat) == 0 && !S_ISREG(ret_stat->st_mode);
}

/* Where the file lies that path names, or will lie. */
static int find_target(const char *path, char ret_target[PATH_MAX])
{
    if (realpath(path, ret_target)) {
        return 0;
    }
    if (errno != ENOENT) {
        return err_raise(-errno);
    }
    if (strlen(path) >= PATH_MAX) {
        return err_raise(-ENAMETOOLONG);
    }
    memcpy(ret_target, path, strlen(path) + 1);
    return 0;
}

int out_file_check(const char *path)
{
    struct stat stat;
    char target[PATH_MAX];
    if (path[0] == '\0') { /* and not a name of nothing but the suffix that files are made under */
        return err_raise(-ENOENT);
    }
    if (is_written_in_place(path, &stat)) {
        int error = S_ISDIR(stat.st_mode) ? EISDIR : access(path, W_OK) < 0 ? errno : 0;
        return error ? err_raise(-error) : 0;
    }
    int r = find_target(path, target);
    if (r < 0) {
        return r;
    }
    if (access(target, F_OK) == 0 && access(target, W_OK) < 0) {
        return err_raise(-errno);
    }
    return access(dirname(target), W_OK | X_OK) < 0 ? err_raise(-errno) : 0;
}

int out_file_begin(struct out_file *out, const char *path)
{
    struct stat before;
    *out = (struct out_file){.target = ""};
    if (is_written_in_place(path, &before)) {
        int n = snprintf(out->path, sizeof(out->path), "%s", path);
        return n >= PATH_MAX ? err_raise(-ENAMETOOLONG) : 0;
    }
    int r = find_target(path, out->target);
    if (r < 0) {
        return r;
    }
    int n = snprintf(out->path, sizeof(out->path), "%s.%d", out->target, (int)getpid());
    if (n >= PATH_MAX) {
        return err_raise(-ENAMETOOLONG);
    }
    CLEAN_FD int fd = open(out->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        return err_raise(-errno);
    }
    if (stat(out->target, &before) == 0 && fchmod(fd, before.st_mode & 0777) < 0) {
        return out_file_end(out, err_raise(-errno));
    }
    return 0;
}

int out_file_end(struct out_file *out, int r)
{
    if (out->target[0] == '\0') {
        return r;
    }
    if (r == 0 && rename(out->path, out->target) < 0) {
        r = err_raise(-errno);
    }
    if (r < 0) {
        (void)unlink(out->path);
    }
    return r;
}
