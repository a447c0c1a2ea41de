/* listen.c - how threads wait for results together.
 *
 * One thread at a time listens, on the lane's futex or the ZeroMQ socket; the others sleep on the
 * queue's condition until a result comes in or the place is free. Every slice of listening ends
 * with a look at the session socket, whose hang-up is the daemon's death: then the listener looks
 * for the next daemon, and the others wait for what comes of it. */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "ipc/base/clock.h"

#include "client/client.h"

uint64_t listen_now_usec(void)
{
    return clock_now_nsec() / CLOCK_NSEC_PER_USEC;
}

void listen_drain(struct gemmd_client *client, struct queue *queue)
{
    if (queue == &client->zeromq) {
        exchange_drain(client);
        return;
    }
    if (queue->n_cancels_due > 0) {
        queue_send_cancels(queue);
    }
    struct request_result result;
    enum ring_result popped = RING_EMPTY;
    while (queue->is_open && (popped = ring_pop(&queue->lane.complete, &result)) == RING_OK) {
        queue_result(queue, &result);
    }
    if (popped == RING_CORRUPT) {
        struct reason why;
        (void)reason_set(&why, STATUS_BAD_MESSAGE, "the completion ring of lane %u was overwritten",
                         queue->path);
        queue_fail_all(queue, &why);
    }
}

static void sleep_until_changed(struct queue *queue, uint64_t timeout_usec)
{
    uint64_t end = listen_now_usec() + timeout_usec;
    struct timespec until = {.tv_sec = (time_t)(end / 1000000),
                             .tv_nsec = (long)(end % 1000000) * 1000};
    (void)pthread_cond_timedwait(&queue->changed, &queue->lock, &until);
}

/* Without the lock. False when the daemon is gone. */
static bool listen_once(struct gemmd_client *client, struct queue *queue, uint64_t timeout_usec)
{
    if (queue == &client->zeromq) {
        exchange_poll(client, timeout_usec);
        return session_is_alive(client);
    }
    int r = lane_wait_completion(&queue->lane, client->options.spin_usec, timeout_usec);
    return r == 0 || session_is_alive(client);
}

void listen_await_quiet(struct queue *queue)
{
    while (queue->is_listening) {
        sleep_until_changed(queue, CLIENT_WAIT_SLICE_USEC);
    }
}

static void fail_all(struct gemmd_client *client, struct queue *queue, int status)
{
    struct reason why = {.status = status};
    (void)snprintf(why.text, sizeof(why.text), "%s", gemmd_last_error());
    queue_fail_all(queue, &why);
    if (queue == &client->zeromq) {
        exchange_fail_calls(client, &why);
    }
}

/* Without the lock, so that whoever revives the client can go on with its queues. */
static void look_for_another(struct gemmd_client *client, struct queue *queue, uint32_t epoch,
                             uint64_t until_usec)
{
    pthread_mutex_unlock(&queue->lock);
    int r = client->revive(client, epoch, until_usec);
    pthread_mutex_lock(&queue->lock);
    if (r != 0 && r != STATUS_TIMEOUT) {
        fail_all(client, queue, r);
        pthread_cond_broadcast(&queue->changed);
    }
}

/* True: the daemon is gone. */
static bool listen_unlocked(struct gemmd_client *client, struct queue *queue, uint64_t timeout_usec)
{
    queue->is_listening = true;
    pthread_mutex_unlock(&queue->lock);
    bool is_alive = listen_once(client, queue, timeout_usec);
    pthread_mutex_lock(&queue->lock);
    queue->is_listening = false;
    listen_drain(client, queue); /* what the daemon said before it went still counts */
    pthread_cond_broadcast(&queue->changed);
    return !is_alive;
}

void listen_sleep(struct gemmd_client *client, struct queue *queue, uint64_t timeout_usec)
{
    uint32_t epoch = atomic_load(&client->epoch);
    uint64_t until_usec = listen_now_usec() + timeout_usec;
    if (queue->is_listening || atomic_load(&client->is_reviving)) {
        sleep_until_changed(queue, timeout_usec);
        return;
    }
    if (listen_unlocked(client, queue, timeout_usec)) {
        look_for_another(client, queue, epoch, until_usec);
    }
}

/* Of those who revive the client, too, which is why it does not. */
void listen_for_reply(struct gemmd_client *client, uint64_t timeout_usec)
{
    struct queue *queue = &client->zeromq;
    if (queue->is_listening || client->exchange.is_renewing) {
        sleep_until_changed(queue, timeout_usec);
        return;
    }
    if (listen_unlocked(client, queue, timeout_usec)) {
        struct reason why = {.status = session_gone(client)};
        (void)snprintf(why.text, sizeof(why.text), "%s", gemmd_last_error());
        exchange_fail_calls(client, &why);
    }
}
