/* fake_daemon.c - see fake_daemon.h. One thread looks at everything and sleeps a little, in turns:
 * slow, and simple enough to be believed. Requests and verbs are in fake_control.c, questions on
 * the session socket in fake_side.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/side.h"
#include "tests/unit/client/fake_daemon_internal.h"

bool fake_has(const struct fake_daemon *fake, uint32_t quirk)
{
    return (atomic_load(&fake->quirks) & quirk) != 0;
}

static void sleep_a_little(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

void fake_be_late(const struct fake_daemon *fake, uint32_t quirk)
{
    while (fake_has(fake, quirk) && !atomic_load(&fake->is_stopping)) {
        sleep_a_little();
    }
}

static void look_for_sessions(struct fake_daemon *fake)
{
    int fd;
    while ((fd = side_accept(fake->listen_fd)) >= 0) {
        uint32_t i = 0;
        while (i < SESSIONS_MAX - 1 && fake->sessions[i].fd >= 0) {
            i++;
        }
        fake->sessions[i].fd = fd;
    }
}

static void close_all(struct fake_daemon *fake)
{
    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        fake_end_session(fake, &fake->sessions[i]);
    }
    cleanup_fd(&fake->listen_fd);
    fake->listen_fd = -1;
    sock_finish(&fake->router);
}

static void *run(void *argument)
{
    struct fake_daemon *fake = argument;
    while (!atomic_load(&fake->is_stopping)) {
        look_for_sessions(fake);
        for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
            if (fake->sessions[i].fd >= 0) {
                fake_look_at_session(fake, &fake->sessions[i]);
                fake_look_at_lane(fake, &fake->sessions[i]);
            }
        }
        fake_look_at_router(fake);
        fake_release_held(fake);
        sleep_a_little();
    }
    close_all(fake);
    return NULL;
}

static void unlink_sockets(const struct fake_daemon *fake)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", fake->dir, SIDE_SOCKET_NAME);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/%s", fake->dir, SIDE_CONTROL_NAME);
    (void)unlink(path);
}

void fake_rise(struct fake_daemon *fake)
{
    char path[128];
    unlink_sockets(fake);
    atomic_store(&fake->is_stopping, false);
    (void)snprintf(path, sizeof(path), "%s/%s", fake->dir, SIDE_CONTROL_NAME);
    GD_ASSERT(sock_bind_router(&fake->router, path, 0600) == 0);
    (void)snprintf(path, sizeof(path), "%s/%s", fake->dir, SIDE_SOCKET_NAME);
    fake->listen_fd = side_listen(path, 0600);
    GD_ASSERT(fake->listen_fd >= 0);
    GD_ASSERT(pthread_create(&fake->thread, NULL, run, fake) == 0);
    fake->is_running = true;
}

struct fake_daemon *fake_new(void)
{
    struct fake_daemon *fake = calloc(1, sizeof(*fake));
    GD_ASSERT(fake);
    fake->router = SOCK_NULL;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        fake->sessions[i].fd = -1;
        fake->sessions[i].lane = LANE_NULL;
        for (uint32_t j = 0; j < BUFFERS_MAX; j++) {
            fake->sessions[i].buffers[j] = REGION_NULL;
        }
    }
    (void)snprintf(fake->dir, sizeof(fake->dir), "/tmp/gemmd-fake-XXXXXX");
    GD_ASSERT(mkdtemp(fake->dir));
    fake_rise(fake);
    return fake;
}

void fake_die(struct fake_daemon *fake)
{
    if (fake->is_running) {
        atomic_store(&fake->is_stopping, true);
        (void)pthread_join(fake->thread, NULL);
        fake->is_running = false;
    }
}

struct fake_daemon *fake_free(struct fake_daemon *fake)
{
    if (!fake) {
        return NULL;
    }
    fake_die(fake);
    unlink_sockets(fake);
    (void)rmdir(fake->dir);
    free(fake);
    return NULL;
}

void fake_set(struct fake_daemon *fake, uint32_t quirks)
{
    atomic_store(&fake->quirks, quirks);
}

const char *fake_dir(const struct fake_daemon *fake)
{
    return fake->dir;
}
