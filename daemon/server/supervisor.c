/* supervisor.c - see supervisor.h. */
#include "daemon/server/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"

/* gemmd.service counts on it: StartLimitBurst= in StartLimitIntervalSec= */
#define RETRY_SECONDS 2

int supervisor_take(struct supervisor *ret_supervisor)
{
    char **names = NULL;
    int n = sd_listen_fds_with_names(1, &names);
    if (n < 0) {
        return err_raise(n);
    }
    struct supervisor supervisor = {.items = calloc((size_t)n + 1, sizeof(*supervisor.items))};
    if (supervisor.items == NULL) {
        return err_raise(-ENOMEM);
    }
    for (int i = 0; i < n; i++) {
        supervisor.items[i] =
            (struct supervisor_fd){.name = names[i], .fd = SD_LISTEN_FDS_START + i};
        supervisor.n++;
    }
    free(names);
    *ret_supervisor = supervisor;
    return 0;
}

void supervisor_finish(struct supervisor *supervisor)
{
    for (uint32_t i = 0; i < supervisor->n; i++) {
        free(supervisor->items[i].name);
        cleanup_fd(&supervisor->items[i].fd);
    }
    free(supervisor->items);
    *supervisor = SUPERVISOR_NULL;
}

/* ---- sockets ---- */

static bool listens_at(int fd, const char *path)
{
    struct sockaddr_un address = {0};
    socklen_t n_bytes = sizeof(address);
    return sd_is_socket(fd, AF_UNIX, 0, 1) > 0 &&
           getsockname(fd, (struct sockaddr *)&address, &n_bytes) == 0 &&
           strncmp(address.sun_path, path, sizeof(address.sun_path)) == 0;
}

static struct supervisor_fd *find_socket(const struct supervisor *supervisor, const char *path)
{
    for (uint32_t i = 0; i < supervisor->n; i++) {
        if (supervisor->items[i].fd >= 0 && listens_at(supervisor->items[i].fd, path)) {
            return &supervisor->items[i];
        }
    }
    return NULL;
}

bool supervisor_has_socket(const struct supervisor *supervisor, const char *path)
{
    return find_socket(supervisor, path) != NULL;
}

int supervisor_socket(struct supervisor *supervisor, const char *path)
{
    struct supervisor_fd *found = find_socket(supervisor, path);
    bool is_usable =
        found != NULL && fcntl(found->fd, F_SETFL, fcntl(found->fd, F_GETFL) | O_NONBLOCK) == 0;
    return is_usable ? steal_fd(&found->fd) : -1;
}

/* ---- the store ---- */

/* FDPOLL=0: a GPU's descriptor reports a hang-up when the GPU is lost, and must stay for whoever
 * asks about it. */
static int put(GD_UNUSED void *arg, const char *name, int fd)
{
    char state[128];
    (void)snprintf(state, sizeof(state), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
    int r = sd_pid_notify_with_fds(0, 0, state, &fd, 1);
    return r > 0 ? 0 : err_raise(r < 0 ? r : -ENOTCONN);
}

static void drop(GD_UNUSED void *arg, const char *name)
{
    (void)sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
}

static bool is_kept_name(const char *name)
{
    return strchr("mwad", name[0]) != NULL && name[0] != '\0' && name[1] == '.' &&
           strlen(name) < KEEP_NAME_BYTES;
}

bool supervisor_has_weights(void)
{
    char **names = NULL;
    bool has_weights = false;
    int n = sd_listen_fds_with_names(0, &names);
    for (int i = 0; i < n; i++) {
        has_weights |= strncmp(names[i], "m.", 2) == 0;
        free(names[i]);
    }
    free(names);
    return has_weights;
}

enum exit_code supervisor_end_start(enum exit_code code)
{
    static const struct timespec pause = {.tv_sec = RETRY_SECONDS};
    sigset_t ends;
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigaddset(&ends, SIGINT);
    log_write(LOG_LEVEL_ERROR, "server",
              "the start has failed with code %d; the weights stay kept, and it is tried again in "
              "%d s",
              code, RETRY_SECONDS);
    return sigtimedwait(&ends, NULL, &pause) < 0 ? EXIT_CODE_FAILED : EXIT_CODE_DONE;
}

int supervisor_keep(struct supervisor *supervisor, struct keep *ret_keep)
{
    static const struct keep_ops ops = {.put = put, .drop = drop};
    struct keep keep = {.ops = getenv("NOTIFY_SOCKET") != NULL ? &ops : NULL};
    *ret_keep = KEEP_NULL;
    if (keep.ops == NULL) {
        return 0;
    }
    keep.found = calloc((size_t)supervisor->n + 1, sizeof(*keep.found));
    if (keep.found == NULL) {
        return err_raise(-ENOMEM);
    }
    for (uint32_t i = 0; i < supervisor->n; i++) {
        struct supervisor_fd *item = &supervisor->items[i];
        if (item->fd >= 0 && is_kept_name(item->name)) {
            struct keep_found *found = &keep.found[keep.n_found++];
            (void)snprintf(found->name, sizeof(found->name), "%s", item->name);
            found->fd = steal_fd(&item->fd);
        }
    }
    *ret_keep = keep;
    return 0;
}
