/* revive.c - a client's next life, after the daemon's death.
 *
 * Whoever finds the daemon gone has a thread look for the next one, and waits for it no longer than
 * he wants to: connect and say HELLO under the old descriptor's number, make a new control socket,
 * share the buffers again, find the weights again, attach lanes, send what was in flight. Until
 * the last step nothing of the client has changed, so that a second daemon that dies in the middle
 * is no different from one that is not there yet.
 *
 * The alternative, to do it on the thread of whoever finds it out, cannot be both bounded by his
 * time limit and of use: a daemon takes a connection long before it answers, and a program that
 * only ever looks for a moment would begin anew each time. */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "ipc/base/num.h"

#include "client/client.h"

#define PAUSE_USEC     10000u
#define PAUSE_USEC_MAX 200000u
#define CONNECT_MSEC   200u /* an attempt's; whoever closes the client waits for that */

static struct timespec timespec_at(uint64_t usec)
{
    return (struct timespec){.tv_sec = (time_t)num_min(usec / 1000000, INT32_MAX),
                             .tv_nsec = (long)(usec % 1000000) * 1000};
}

/* ---- the thread ---- */

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
    int r = connection_open(client, (uint32_t)num_min(client->options.timeout_msec, CONNECT_MSEC));
    r = r != 0 ? r : exchange_renew(client);
    r = r != 0 ? r : resend_prepare(client, &resend);
    if (r == 0) {
        resend_commit(client, &resend);
        atomic_fetch_add(&client->epoch, 1);
    } else {
        /* A connection that came too late must look as gone as the one before it. */
        (void)shutdown(client->session_fd, SHUT_RDWR);
    }
    resend_finish(&resend);
    return r;
}

/* False: the client is being closed. */
static bool pause_until(struct gemmd_client *client, uint64_t until_usec)
{
    const struct timespec until = timespec_at(until_usec);
    pthread_mutex_lock(&client->life_lock);
    while (!atomic_load(&client->is_closing) &&
           pthread_cond_timedwait(&client->life_changed, &client->life_lock, &until) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&client->life_lock);
    return !atomic_load(&client->is_closing);
}

static int attempt_until(struct gemmd_client *client, uint64_t until_usec)
{
    uint64_t pause_usec = PAUSE_USEC;
    for (;;) {
        int r = attempt(client);
        uint64_t now_usec = listen_now_usec();
        if (r == 0 || !can_try_again(r) || now_usec >= until_usec ||
            !pause_until(client, num_min(now_usec + pause_usec, until_usec))) {
            return r;
        }
        pause_usec = num_min(2 * pause_usec, PAUSE_USEC_MAX);
    }
}

static uint64_t deadline_usec(const struct gemmd_client *client)
{
    return client->gone_usec + client->options.reconnect_msec * 1000ull;
}

static int none_was_there(const struct gemmd_client *client)
{
    return client_refuse(STATUS_DISCONNECTED,
                         "the daemon at %s hung up, and none was there within %u ms",
                         client->socket_dir, client->options.reconnect_msec);
}

/* Whoever was opening a queue or sharing a buffer when is_reviving was set has done with it. */
static void await_others(struct gemmd_client *client)
{
    pthread_mutex_lock(&client->lanes_lock);
    pthread_mutex_unlock(&client->lanes_lock);
    pthread_mutex_lock(&client->buffers_lock);
    pthread_mutex_unlock(&client->buffers_lock);
}

/* Whoever slept until the revival was over, rather than listen himself. */
static void wake_queues(struct gemmd_client *client)
{
    for (uint32_t i = 0; i <= CLIENT_DEVICES_MAX; i++) {
        struct queue *queue = i < CLIENT_DEVICES_MAX ? &client->lanes[i] : &client->zeromq;
        pthread_mutex_lock(&queue->lock);
        pthread_cond_broadcast(&queue->changed);
        pthread_mutex_unlock(&queue->lock);
    }
}

static void *look_for_daemon(void *arg)
{
    struct gemmd_client *client = arg;
    await_others(client);
    exchange_end(client);
    turns_stop(client); /* streams end with the daemon that they began with */
    int r = attempt_until(client, deadline_usec(client));
    r = can_try_again(r) ? none_was_there(client) : r;
    pthread_mutex_lock(&client->life_lock);
    if (r == 0) {
        client->gone_usec = 0;
    } else {
        client->why_gone.status = r;
        (void)snprintf(client->why_gone.text, sizeof(client->why_gone.text), "%s",
                       gemmd_last_error());
    }
    atomic_store(&client->is_reviving, false);
    pthread_cond_broadcast(&client->life_changed);
    pthread_mutex_unlock(&client->life_lock);
    wake_queues(client);
    return NULL;
}

/* ---- who waits ---- */

/* With life_lock held: the last one is about to return. */
static void join_reviver(struct gemmd_client *client)
{
    if (client->has_reviver) {
        (void)pthread_join(client->reviver, NULL);
        client->has_reviver = false;
    }
}

static int start_reviver(struct gemmd_client *client)
{
    join_reviver(client);
    if (client->gone_usec == 0) {
        client->gone_usec = listen_now_usec();
    }
    atomic_store(&client->is_reviving, true);
    int r = thread_start(&client->reviver, look_for_daemon, client);
    client->has_reviver = r == 0;
    atomic_store(&client->is_reviving, r == 0);
    return r;
}

/* Once reconnect_msec are over, a call may still wait for one attempt, but no longer than that. */
static int await_reviver(struct gemmd_client *client, uint64_t until_usec)
{
    uint64_t now_usec = listen_now_usec();
    uint64_t end_usec = deadline_usec(client);
    if (end_usec <= now_usec) {
        end_usec = now_usec + client->options.reconnect_msec * 1000ull;
    }
    const struct timespec until = timespec_at(num_min(end_usec, until_usec));
    while (atomic_load(&client->is_reviving)) {
        if (pthread_cond_timedwait(&client->life_changed, &client->life_lock, &until) !=
            ETIMEDOUT) {
            continue;
        }
        return until_usec < end_usec
                   ? client_refuse(STATUS_TIMEOUT,
                                   "the daemon at %s is away, and the time for this is over",
                                   client->socket_dir)
                   : none_was_there(client);
    }
    return client->gone_usec != 0 ? client_fail(&client->why_gone) : 0;
}

int revive(struct gemmd_client *client, uint32_t epoch, uint64_t until_usec)
{
    int r = 0;
    if (client->options.reconnect_msec == 0) {
        return session_gone(client);
    }
    pthread_mutex_lock(&client->life_lock);
    bool is_gone = !session_is_alive(client); /* else he asked during the last step of a revival */
    if (is_gone && !atomic_load(&client->is_reviving) && atomic_load(&client->epoch) == epoch) {
        r = start_reviver(client);
    }
    r = r != 0 ? r : await_reviver(client, until_usec);
    pthread_mutex_unlock(&client->life_lock);
    return r;
}

void revive_end(struct gemmd_client *client)
{
    atomic_store(&client->is_closing, true);
    pthread_mutex_lock(&client->life_lock);
    pthread_cond_broadcast(&client->life_changed);
    pthread_mutex_unlock(&client->life_lock);
    if (client->has_reviver) {
        (void)shutdown(client->session_fd, SHUT_RDWR);
        join_reviver(client);
    }
}
