/* handover.c - requests name buffers by id, and hold them only once the daemon has looked at them:
 * the release of a buffer goes another way than a request, and must not overtake it.
 *
 * A lane's worker gives an entry's place back when it holds what the entry names, so the ring
 * itself tells: mostly at once, since a release is a call of tens of microseconds. Over ZeroMQ
 * nothing tells but the reply. */
#include <time.h>

#include "ipc/base/num.h"

#include "client/client.h"

#define LOOK_NSEC 20000L

struct handover {
    struct gemmd_client *client;
    uint64_t buffer_id;
    uint32_t session; /* that knows the buffer by this id */
    uint64_t deadline_usec;
};

static bool names(const struct request_desc *desc, uint64_t buffer_id)
{
    return desc->x_buffer_id == buffer_id || desc->y_buffer_id == buffer_id ||
           desc->x_scale_buffer_id == buffer_id;
}

/* By a request of that queue that may not have been looked at? */
static bool is_named(const struct queue *queue, uint64_t buffer_id)
{
    for (uint32_t i = 0; i < queue->n_tickets && queue->n_in_use > 0; i++) {
        const struct ticket *ticket = &queue->tickets[i];
        if (ticket->state == TICKET_IN_FLIGHT && names(&ticket->desc, buffer_id)) {
            return true;
        }
    }
    return false;
}

/* A daemon that is gone holds nothing, and one that is stuck is not waited for any longer. */
static bool is_worth_it(const struct handover *handover)
{
    struct gemmd_client *client = handover->client;
    return atomic_load(&client->session) == handover->session && session_is_alive(client) &&
           listen_now_usec() < handover->deadline_usec;
}

static void await_lane(const struct handover *handover, struct queue *queue)
{
    const struct timespec look = {.tv_nsec = LOOK_NSEC};
    pthread_mutex_lock(&queue->lock);
    uint32_t mark = queue->lane.submit.own;
    while (queue->is_open && !ring_is_taken(&queue->lane.submit, mark) &&
           is_named(queue, handover->buffer_id) && is_worth_it(handover)) {
        pthread_mutex_unlock(&queue->lock);
        (void)nanosleep(&look, NULL);
        pthread_mutex_lock(&queue->lock);
    }
    pthread_mutex_unlock(&queue->lock);
}

static void await_replies(const struct handover *handover, struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->is_open && is_named(queue, handover->buffer_id) && is_worth_it(handover)) {
        uint64_t left_usec =
            handover->deadline_usec - num_min(listen_now_usec(), handover->deadline_usec);
        listen_sleep(handover->client, queue, num_min(left_usec, CLIENT_WAIT_SLICE_USEC));
    }
    pthread_mutex_unlock(&queue->lock);
}

void handover_await(struct gemmd_client *client, const struct buffer_id *id)
{
    const struct handover handover = {
        .client = client,
        .buffer_id = id->number,
        .session = id->session,
        .deadline_usec = listen_now_usec() + client->options.timeout_msec * 1000ull,
    };
    for (uint32_t i = 0; i < CLIENT_DEVICES_MAX; i++) {
        await_lane(&handover, &client->lanes[i]);
    }
    await_replies(&handover, &client->zeromq);
}
