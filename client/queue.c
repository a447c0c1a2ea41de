/* queue.c - tickets of one path.
 *
 * The table has as many places as the ring has entries, so whoever gets a ticket has room in the
 * ring as well. A ticket's id carries its place and a serial number: a spent id never names a later
 * one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/clock.h"

#include "client/client.h"

#define INDEX_BITS 16u
#define PATH_BITS  8u
#define SERIAL_MAX (UINT64_MAX >> (INDEX_BITS + PATH_BITS)) /* and then 1 again: 0 is no ticket */

uint64_t ticket_id(uint64_t serial, uint32_t path, uint32_t index)
{
    return serial << (INDEX_BITS + PATH_BITS) | (uint64_t)path << INDEX_BITS | index;
}

uint32_t ticket_path(uint64_t id)
{
    return (uint32_t)(id >> INDEX_BITS) & ((1u << PATH_BITS) - 1);
}

void queue_init_changed(pthread_cond_t *changed)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

void queue_init(struct queue *queue)
{
    *queue = (struct queue){.lane = LANE_NULL, .turns.region = REGION_NULL};
    queue_init_changed(&queue->changed);
    pthread_mutex_init(&queue->lock, NULL);
}

void queue_finish(struct queue *queue)
{
    lane_finish(&queue->lane);
    free(queue->tickets);
    queue->tickets = NULL;
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
}

int queue_open(struct queue *queue, struct lane *lane, uint32_t n_tickets, uint32_t path)
{
    queue->tickets = calloc(n_tickets, sizeof(*queue->tickets));
    if (!queue->tickets) {
        return -ENOMEM;
    }
    if (lane) {
        queue->lane = *lane;
        *lane = LANE_NULL;
    }
    queue->n_tickets = n_tickets;
    queue->path = path;
    atomic_store(&queue->is_open, true);
    return 0;
}

struct ticket *queue_take(struct queue *queue)
{
    if (queue->n_in_use == queue->n_tickets) {
        return NULL;
    }
    while (queue->tickets[queue->i_next].state != TICKET_FREE) {
        queue->i_next = (queue->i_next + 1) % queue->n_tickets;
    }
    struct ticket *ticket = &queue->tickets[queue->i_next];
    queue->n_serial = queue->n_serial < SERIAL_MAX ? queue->n_serial + 1 : 1;
    ticket->id = ticket_id(queue->n_serial, queue->path, queue->i_next);
    ticket->state = TICKET_IN_FLIGHT;
    ticket->first_failure = NULL;
    ticket->is_cancelled = false;
    queue->n_in_use++;
    queue->i_next = (queue->i_next + 1) % queue->n_tickets;
    return ticket;
}

static void forget_cancel(struct queue *queue, struct ticket *ticket)
{
    queue->n_cancels_due -= ticket->is_cancel_due;
    ticket->is_cancel_due = false;
}

void queue_give(struct queue *queue, struct ticket *ticket)
{
    forget_cancel(queue, ticket);
    ticket->state = TICKET_FREE;
    ticket->id = 0;
    queue->n_in_use--;
}

struct ticket *queue_find(struct queue *queue, uint64_t id)
{
    uint32_t index = (uint32_t)(id & ((1u << INDEX_BITS) - 1));
    if (index >= queue->n_tickets || queue->tickets[index].state == TICKET_FREE ||
        queue->tickets[index].id != id) {
        return NULL;
    }
    return &queue->tickets[index];
}

/* Nobody will ask for the result. */
static void spend(struct queue *queue, struct ticket *ticket)
{
    struct reason *kept = ticket->first_failure;
    if (ticket->result.status != STATUS_OK && kept->status == 0) {
        kept->status = (int)ticket->result.status;
        memcpy(kept->text, ticket->result.text, sizeof(kept->text));
    }
    queue_give(queue, ticket);
}

/* Does the daemon say so because it is about to go? Then the next one may do it. */
static bool is_farewell(const struct queue *queue, const struct ticket *ticket)
{
    uint32_t status = ticket->result.status;
    return queue->hold_usec > 0 && ticket->state == TICKET_IN_FLIGHT && !ticket->first_failure &&
           !ticket->is_cancelled &&
           (status == STATUS_DEVICE_LOST || status == STATUS_SHUTTING_DOWN);
}

void queue_settle(struct ticket *ticket)
{
    if (ticket->state == TICKET_HELD &&
        clock_now_nsec() / CLOCK_NSEC_PER_USEC >= ticket->held_until_usec) {
        ticket->state = TICKET_DONE;
    }
}

/* A result for an id that is not in flight is dropped: a daemon's mistake must not become ours. */
void queue_result(struct queue *queue, const struct request_result *result)
{
    struct ticket *ticket = queue_find(queue, result->request_id);
    if (!ticket || (ticket->state != TICKET_IN_FLIGHT && ticket->state != TICKET_HELD)) {
        return;
    }
    ticket->result = *result;
    ticket->result.text[REASON_TEXT_BYTES - 1] = '\0';
    if (is_farewell(queue, ticket)) {
        ticket->state = TICKET_HELD;
        ticket->held_until_usec = clock_now_nsec() / CLOCK_NSEC_PER_USEC + queue->hold_usec;
        return;
    }
    ticket->state = TICKET_DONE;
    forget_cancel(queue, ticket);
    if (ticket->first_failure) {
        spend(queue, ticket);
    }
    pthread_cond_broadcast(&queue->changed);
}

void queue_expire(struct queue *queue, const struct ticket *ticket, uint64_t now_usec)
{
    if (ticket->desc.timeout_usec == 0 || now_usec < ticket->expires_usec) {
        return;
    }
    struct request_result result = {.request_id = ticket->id, .status = STATUS_TIMEOUT};
    (void)snprintf(result.text, sizeof(result.text),
                   "not launched in time: the daemon is away, and the next one is waited for");
    queue_result(queue, &result);
}

static void fail(struct queue *queue, const struct reason *why, bool is_of_streams_only)
{
    struct request_result result = {.status = (uint32_t)why->status};
    static_assert(sizeof(result.text) == sizeof(why->text), "a result holds any sentence");
    memcpy(result.text, why->text, sizeof(result.text));
    for (uint32_t i = 0; i < queue->n_tickets; i++) {
        if (queue->tickets[i].first_failure || !is_of_streams_only) {
            result.request_id = queue->tickets[i].id;
            queue_result(queue, &result);
        }
    }
}

void queue_fail_all(struct queue *queue, const struct reason *why)
{
    fail(queue, why, false);
}

void queue_fail_streams(struct queue *queue, const struct reason *why)
{
    fail(queue, why, true);
}

/* False when the ring is full. One whose indices were overwritten takes nothing any more; what is
 * in flight there ends when its completions are looked at. */
static bool send_cancel(struct queue *queue, const struct ticket *ticket)
{
    struct request_desc desc = {.request_id = ticket->id, .op = REQUEST_OP_CANCEL};
    return lane_submit(&queue->lane, &desc) != RING_FULL;
}

void queue_cancel(struct queue *queue, struct ticket *ticket)
{
    if (!ticket->is_cancel_due && !send_cancel(queue, ticket)) {
        ticket->is_cancel_due = true;
        queue->n_cancels_due++;
    }
}

void queue_send_cancels(struct queue *queue)
{
    for (uint32_t i = 0; i < queue->n_tickets && queue->n_cancels_due > 0; i++) {
        struct ticket *ticket = &queue->tickets[i];
        if (!ticket->is_cancel_due) {
            continue;
        }
        if (!send_cancel(queue, ticket)) {
            return;
        }
        forget_cancel(queue, ticket);
    }
}
