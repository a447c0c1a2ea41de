/* revive.c - a client's next life, after the daemon's death.
 *
 * Whichever thread finds the daemon gone does it, the others wait for it or go on waiting for their
 * results: connect and say HELLO under the old descriptor's number, make a new control socket,
 * share the buffers again, find the weights again, attach lanes, send what was in flight. Until
 * the last step nothing of the client has changed, so that a second daemon that dies in the middle
 * is no different from one that is not there yet. */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include "ipc/base/num.h"

#include "client/client.h"

#define PAUSE_USEC     10000u
#define PAUSE_USEC_MAX 200000u

static bool can_try_again(int status)
{
    return status == STATUS_DISCONNECTED || status == STATUS_TIMEOUT || status == STATUS_BUSY ||
           status == STATUS_SHUTTING_DOWN || status == STATUS_DEVICE_LOST ||
           status == STATUS_NO_SESSION;
}

static int attempt(struct gemmd_client *client)
{
    struct resend resend;
    resend_init(&resend);
    pthread_mutex_lock(&client->lanes_lock);
    int r = connection_open(client);
    r = r != 0 ? r : exchange_renew(client);
    r = r != 0 ? r : resend_prepare(client, &resend);
    if (r == 0) {
        resend_commit(client, &resend);
        atomic_fetch_add(&client->epoch, 1);
    } else {
        /* A connection that came too late must look as gone as the one before it. */
        (void)shutdown(client->session_fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&client->lanes_lock);
    resend_finish(&resend);
    return r;
}

static int attempt_until(struct gemmd_client *client, uint64_t until_usec)
{
    uint64_t pause_usec = PAUSE_USEC;
    for (;;) {
        int r = attempt(client);
        uint64_t now_usec = listen_now_usec();
        if (r == 0 || !can_try_again(r) || now_usec >= until_usec) {
            return r;
        }
        pause_usec = num_min(pause_usec, until_usec - now_usec);
        const struct timespec pause = {.tv_nsec = (long)pause_usec * 1000};
        (void)nanosleep(&pause, NULL);
        pause_usec = num_min(2 * pause_usec, PAUSE_USEC_MAX);
    }
}

/* By one thread at a time. */
static int revive_alone(struct gemmd_client *client, uint64_t until_usec)
{
    if (client->gone_usec == 0) {
        client->gone_usec = listen_now_usec();
    }
    uint64_t deadline_usec = client->gone_usec + client->options.reconnect_msec * 1000ull;
    turns_stop(client); /* streams end with the daemon that they began with */
    int r = attempt_until(client, num_min(deadline_usec, until_usec));
    if (r == 0) {
        client->gone_usec = 0;
    }
    if (r == 0 || !can_try_again(r)) {
        return r;
    }
    if (listen_now_usec() < deadline_usec) {
        return STATUS_TIMEOUT; /* the caller's own time is over */
    }
    return client_refuse(STATUS_DISCONNECTED,
                         "the daemon at %s hung up, and none was there within %u ms",
                         client->socket_dir, client->options.reconnect_msec);
}

/* With life_lock held. Another thread may be at it for longer than this one wants to wait. */
static int await_turn(struct gemmd_client *client, uint64_t until_usec)
{
    const struct timespec until = {.tv_sec = (time_t)num_min(until_usec / 1000000, INT32_MAX),
                                   .tv_nsec = (long)(until_usec % 1000000) * 1000};
    while (atomic_load(&client->is_reviving)) {
        if (pthread_cond_timedwait(&client->life_changed, &client->life_lock, &until) ==
            ETIMEDOUT) {
            return STATUS_TIMEOUT;
        }
    }
    return 0;
}

int revive(struct gemmd_client *client, uint32_t epoch, uint64_t until_usec)
{
    if (client->options.reconnect_msec == 0) {
        return session_gone(client);
    }
    pthread_mutex_lock(&client->life_lock);
    int r = await_turn(client, until_usec);
    if (r == 0 && atomic_load(&client->epoch) == epoch) {
        atomic_store(&client->is_reviving, true);
        pthread_mutex_unlock(&client->life_lock);
        r = revive_alone(client, until_usec);
        pthread_mutex_lock(&client->life_lock);
        atomic_store(&client->is_reviving, false);
        pthread_cond_broadcast(&client->life_changed);
    }
    pthread_mutex_unlock(&client->life_lock);
    return r;
}
