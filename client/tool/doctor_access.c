/* doctor_access.c - may this user reach the daemon's sockets, and who else may? */
#include "client/tool/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/base/num.h"
#include "ipc/side.h"

static const char *user_name(uid_t uid, char text[64])
{
    const struct passwd *entry = getpwuid(uid);
    if (entry) {
        (void)snprintf(text, 64, "%s", entry->pw_name);
    } else {
        (void)snprintf(text, 64, "%u", uid);
    }
    return text;
}

static const char *group_name(gid_t gid, char text[64])
{
    const struct group *entry = getgrgid(gid);
    if (entry) {
        (void)snprintf(text, 64, "%s", entry->gr_name);
    } else {
        (void)snprintf(text, 64, "%u", gid);
    }
    return text;
}

/* Nobody may reach it but for reasons of folders above: say which right is missing. */
static void explain_denial(struct findings *findings, const char *path, const struct stat *stat)
{
    char owner[64], group[64], own[64];
    struct finding *finding = findings_add(
        findings, FINDING_FAULT, "access", "%s is of %s:%s, mode 0%o, and this is user %s", path,
        user_name(stat->st_uid, owner), group_name(stat->st_gid, group), stat->st_mode & 07777u,
        user_name(geteuid(), own));
    if (S_ISDIR(stat->st_mode) && (stat->st_mode & 0010) == 0) {
        finding_mend(finding,
                     "chmod 0750 %s, and join its group; socket_mode = 0660 in gemmd.conf has its "
                     "sockets open to it",
                     path);
    } else if ((stat->st_mode & 0060) != 0) {
        finding_mend(finding, "join its group, usermod -aG %s %s, and log in again", group, own);
    } else {
        finding_mend(finding,
                     "set socket_mode = 0660 in gemmd.conf, restart gemmd, and join its group");
    }
}

static void check_path(struct findings *findings, const char *path, int right)
{
    struct stat stat;
    if (lstat(path, &stat) != 0) {
        if (errno != ENOENT && errno != EACCES) { /* EACCES: the folder's own finding */
            (void)findings_add(findings, FINDING_FAULT, "access", "%s: %s", path, strerror(errno));
        }
        return; /* what is not there is the daemon's finding */
    }
    if (faccessat(AT_FDCWD, path, right, AT_EACCESS) != 0) {
        explain_denial(findings, path, &stat);
    }
}

void doctor_access(struct findings *findings, const char *dir)
{
    static const char *const names[] = {SIDE_SOCKET_NAME, SIDE_CONTROL_NAME, SIDE_STATUS_NAME};
    uint32_t n_before = findings->n;
    struct stat stat;
    char owner[64], group[64];
    if (lstat(dir, &stat) != 0) {
        return;
    }
    check_path(findings, dir, X_OK);
    for (uint32_t i = 0; i < ARRAY_LENGTH(names); i++) {
        char path[256];
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        check_path(findings, path, R_OK | W_OK);
    }
    if (findings->n == n_before) {
        (void)findings_add(findings, FINDING_OK, "access",
                           "the sockets in %s, of %s:%s, can be used by this user", dir,
                           user_name(stat.st_uid, owner), group_name(stat.st_gid, group));
    }
}
