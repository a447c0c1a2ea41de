/* fake_supervisor.c - see fake_supervisor.h. */
#include "tests/harness/fake_supervisor.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/keeper/notice.h"
#include "ipc/base/cleanup.h"

#define AWAIT_SECONDS 10.0

/* A model may have more regions than the usual limit allows. */
static void raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

void fake_supervisor_init(struct fake_supervisor *supervisor)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t n_bytes = sizeof(address);
    raise_limit();
    *supervisor = (struct fake_supervisor){.store = FDSTORE_NULL};
    supervisor->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (supervisor->fd < 0 ||
        bind(supervisor->fd, (struct sockaddr *)&address, sizeof(sa_family_t)) < 0 ||
        getsockname(supervisor->fd, (struct sockaddr *)&address, &n_bytes) < 0) {
        perror("fake_supervisor");
        abort();
    }
    size_t name_bytes = n_bytes - offsetof(struct sockaddr_un, sun_path) - 1;
    (void)snprintf(supervisor->address, sizeof(supervisor->address), "@%.*s", (int)name_bytes,
                   address.sun_path + 1);
}

void fake_supervisor_finish(struct fake_supervisor *supervisor)
{
    fdstore_finish(&supervisor->store);
    (void)close(supervisor->fd);
}

static void in_child(void *arg)
{
    struct fake_supervisor *supervisor = arg;
    if (setenv("NOTIFY_SOCKET", supervisor->address, 1) < 0 ||
        (supervisor->watchdog_usec[0] != '\0' &&
         setenv("WATCHDOG_USEC", supervisor->watchdog_usec, 1) < 0) ||
        fdstore_hand_over(&supervisor->store) < 0) {
        _exit(126);
    }
}

void fake_supervisor_manage(struct fake_supervisor *supervisor, struct fixture_options *options)
{
    options->in_child = in_child;
    options->arg = supervisor;
}

static void take(struct fake_supervisor *supervisor, struct notice *notice)
{
    for (uint32_t i = 0; notice->wants_put && i < notice->fds.n; i++) {
        if (fdstore_put(&supervisor->store, notice->fd_name, steal_fd(&notice->fds.fds[i])) < 0) {
            abort();
        }
    }
    if (notice->wants_remove) {
        fdstore_remove(&supervisor->store, notice->fd_name);
    }
    supervisor->n_ready += notice->is_ready;
    supervisor->n_signs += notice->is_alive;
    supervisor->n_stopping += notice->is_stopping;
}

void fake_supervisor_read(struct fake_supervisor *supervisor)
{
    struct notice notice;
    while (notice_receive(supervisor->fd, &notice) == 0) {
        take(supervisor, &notice);
        notice_finish(&notice);
    }
}

void fake_supervisor_await(struct fake_supervisor *supervisor, const struct fixture *fixture,
                           const uint32_t *count, uint32_t n)
{
    double deadline = fixture_now() + AWAIT_SECONDS;
    for (fake_supervisor_read(supervisor); *count < n; fake_supervisor_read(supervisor)) {
        if (fixture_now() > deadline) {
            fixture_fail(fixture, "the daemon told its supervisor %u times, not %u", *count, n);
        }
        fixture_sleep(0.002);
    }
}

struct fdstore_item *fake_supervisor_find(struct fake_supervisor *supervisor, const char *prefix)
{
    for (uint32_t i = 0; i < supervisor->store.n; i++) {
        if (strncmp(supervisor->store.items[i].name, prefix, strlen(prefix)) == 0) {
            return &supervisor->store.items[i];
        }
    }
    return NULL;
}

uint32_t fake_supervisor_count(const struct fake_supervisor *supervisor, const char *prefix)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < supervisor->store.n; i++) {
        n += strncmp(supervisor->store.items[i].name, prefix, strlen(prefix)) == 0;
    }
    return n;
}
