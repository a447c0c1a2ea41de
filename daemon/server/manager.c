/* manager.c - see manager.h. */
#include "daemon/server/manager.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

int manager_take(struct manager *ret_manager)
{
    char **names = NULL;
    int n = sd_listen_fds_with_names(1, &names);
    if (n < 0) {
        return err_raise(n);
    }
    struct manager manager = {.items = calloc((size_t)n + 1, sizeof(*manager.items))};
    if (manager.items == NULL) {
        return err_raise(-ENOMEM);
    }
    for (int i = 0; i < n; i++) {
        manager.items[i] = (struct manager_fd){.name = names[i], .fd = SD_LISTEN_FDS_START + i};
        manager.n++;
    }
    free(names);
    *ret_manager = manager;
    return 0;
}

void manager_finish(struct manager *manager)
{
    for (uint32_t i = 0; i < manager->n; i++) {
        free(manager->items[i].name);
        cleanup_fd(&manager->items[i].fd);
    }
    free(manager->items);
    *manager = MANAGER_NULL;
}

/* ---- sockets -----------------------------------------------------------------------------------
 */

static bool listens_at(int fd, const char *path)
{
    struct sockaddr_un address = {0};
    socklen_t n_bytes = sizeof(address);
    return sd_is_socket(fd, AF_UNIX, 0, 1) > 0 &&
           getsockname(fd, (struct sockaddr *)&address, &n_bytes) == 0 &&
           strncmp(address.sun_path, path, sizeof(address.sun_path)) == 0;
}

int manager_socket(struct manager *manager, const char *path)
{
    for (uint32_t i = 0; i < manager->n; i++) {
        int fd = manager->items[i].fd;
        if (fd >= 0 && listens_at(fd, path) &&
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0) {
            return steal_fd(&manager->items[i].fd);
        }
    }
    return -1;
}

/* ---- the store ---------------------------------------------------------------------------------
 */

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
    return (strncmp(name, "m.", 2) == 0 || strncmp(name, "w.", 2) == 0) &&
           strlen(name) < KEEP_NAME_BYTES;
}

int manager_keep(struct manager *manager, struct keep *ret_keep)
{
    static const struct keep_ops ops = {.put = put, .drop = drop};
    struct keep keep = {.ops = getenv("NOTIFY_SOCKET") != NULL ? &ops : NULL};
    *ret_keep = KEEP_NULL;
    if (keep.ops == NULL) {
        return 0;
    }
    keep.found = calloc((size_t)manager->n + 1, sizeof(*keep.found));
    if (keep.found == NULL) {
        return err_raise(-ENOMEM);
    }
    for (uint32_t i = 0; i < manager->n; i++) {
        struct manager_fd *item = &manager->items[i];
        if (item->fd >= 0 && is_kept_name(item->name)) {
            struct keep_found *found = &keep.found[keep.n_found++];
            (void)snprintf(found->name, sizeof(found->name), "%s", item->name);
            found->fd = steal_fd(&item->fd);
        }
    }
    *ret_keep = keep;
    return 0;
}
