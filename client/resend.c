/* resend.c - what was in flight when the daemon went, to the next one.
 *
 * A product is a pure function of its x and its weight, so that doing it again, wherever the first
 * daemon had got to, gives the same y. The requests that it takes are kept with their tickets; they
 * name buffers and weights as the daemon did that is gone, and are translated here. Nothing new
 * comes in meanwhile, no request and no buffer: is_reviving is set, and the lock of every queue and
 * of the buffers has been taken since. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/num.h"

#include "client/client.h"

void resend_init(struct resend *resend)
{
    *resend = (struct resend){.weights = NULL};
    for (uint32_t i = 0; i < CLIENT_DEVICES_MAX; i++) {
        resend->lanes[i] = LANE_NULL;
    }
}

void resend_finish(struct resend *resend)
{
    for (uint32_t i = 0; i < CLIENT_DEVICES_MAX; i++) {
        lane_finish(&resend->lanes[i]);
    }
    free(resend->weights);
    resend_init(resend);
}

static bool is_in_flight(const struct ticket *ticket)
{
    return ticket->state == TICKET_IN_FLIGHT || ticket->state == TICKET_HELD;
}

/* ---- buffers ---- */

static int share_again(struct gemmd_client *client, struct gemmd_buffer *buffer)
{
    union side_message question = buffer->question;
    struct side_packet packet;
    int fd = buffer->fd >= 0 ? buffer->fd : buffer->region.fd;
    int r = session_ask(client, &question, fd, SIDE_BUFFER, &packet);
    if (r == 0) {
        buffer->id_next = (struct buffer_id){.number = packet.message.buffer.buffer_id,
                                             .session = atomic_load(&client->session)};
        side_packet_finish(&packet);
    }
    return r;
}

static int share_all_again(struct gemmd_client *client)
{
    int r = 0;
    pthread_mutex_lock(&client->buffers_lock);
    list_for_each (node, &client->buffers) {
        r = r != 0 ? r : share_again(client, LIST_OWNER(node, struct gemmd_buffer, in_client));
    }
    pthread_mutex_unlock(&client->buffers_lock);
    return r;
}

/* ---- weights ---- */

static struct resend_weight *find_weight(const struct resend *resend, uint64_t id_before)
{
    for (uint32_t i = 0; i < resend->n_weights; i++) {
        if (resend->weights[i].id_before == id_before) {
            return &resend->weights[i];
        }
    }
    return NULL;
}

static int note_weight(struct gemmd_client *client, struct resend *resend, uint64_t id_before)
{
    if (find_weight(resend, id_before)) {
        return 0;
    }
    struct resend_weight *longer =
        realloc(resend->weights, ((size_t)resend->n_weights + 1) * sizeof(*longer));
    if (!longer) {
        return client_fail_errno(-ENOMEM, "weights in flight");
    }
    resend->weights = longer;
    struct resend_weight *noted = &longer[resend->n_weights++];
    *noted = (struct resend_weight){.id_before = id_before};
    if (!known_find_now(&client->known, id_before, atomic_load(&client->epoch), &noted->weight)) {
        noted->weight.name[0] = '\0'; /* a handle that came by another client */
    }
    return 0;
}

static int note_weights(struct gemmd_client *client, struct queue *queue, struct resend *resend)
{
    int r = 0;
    pthread_mutex_lock(&queue->lock);
    for (uint32_t i = 0; i < queue->n_tickets && r == 0; i++) {
        if (is_in_flight(&queue->tickets[i])) {
            r = note_weight(client, resend, queue->tickets[i].desc.weight_id);
        }
    }
    pthread_mutex_unlock(&queue->lock);
    return r;
}

/* That one is not there any more is for its requests to tell. */
static int find_weights(struct gemmd_client *client, struct resend *resend)
{
    for (uint32_t i = 0; i < resend->n_weights; i++) {
        struct resend_weight *noted = &resend->weights[i];
        int r = noted->weight.name[0] != '\0'
                    ? weights_find(client, control_call_next, &noted->weight, &noted->id_next)
                    : 0;
        if (r != 0 && r != STATUS_NOT_FOUND) {
            return r;
        }
    }
    return 0;
}

/* ---- preparing ---- */

/* A ping waits until the control socket is connected. */
static int ping(struct gemmd_client *client)
{
    struct msg_request request = {.verb = MSG_VERB_PING};
    struct msg_reply reply;
    int r = control_call_next(client, &request, &reply);
    if (r == 0) {
        msg_reply_finish(&reply);
    }
    return r;
}

static int attach_lanes(struct gemmd_client *client, struct resend *resend)
{
    int r = 0;
    for (uint32_t i = 0; i < CLIENT_DEVICES_MAX && r == 0; i++) {
        r = atomic_load(&client->lanes[i].is_open) ? path_attach_lane(client, i, &resend->lanes[i])
                                                   : 0;
    }
    return r;
}

int resend_prepare(struct gemmd_client *client, struct resend *resend)
{
    int r = note_weights(client, &client->zeromq, resend);
    for (uint32_t i = 0; i < CLIENT_DEVICES_MAX && r == 0; i++) {
        r = note_weights(client, &client->lanes[i], resend);
    }
    r = r != 0 ? r : ping(client);
    r = r != 0 ? r : share_all_again(client);
    r = r != 0 ? r : find_weights(client, resend);
    return r != 0 ? r : attach_lanes(client, resend);
}

/* ---- sending ---- */

static void end(struct queue *queue, const struct ticket *ticket, int status, const char *text)
{
    struct request_result result = {.request_id = ticket->id, .status = (uint32_t)status};
    (void)snprintf(result.text, sizeof(result.text), "%s", text);
    queue_result(queue, &result);
}

/* 0 stays 0; false for a buffer that was freed meanwhile. */
static bool translate_buffer(struct gemmd_client *client, uint64_t *id)
{
    if (*id == 0) {
        return true;
    }
    list_for_each (node, &client->buffers) {
        const struct gemmd_buffer *buffer = LIST_OWNER(node, struct gemmd_buffer, in_client);
        if (buffer->id.number == *id) {
            *id = buffer->id_next.number;
            return true;
        }
    }
    return false;
}

static bool translate(struct gemmd_client *client, const struct resend *resend,
                      struct request_desc *desc)
{
    const struct resend_weight *weight = find_weight(resend, desc->weight_id);
    if (!weight || weight->id_next == 0) {
        return false;
    }
    desc->weight_id = weight->id_next;
    return translate_buffer(client, &desc->x_buffer_id) &&
           translate_buffer(client, &desc->y_buffer_id) &&
           translate_buffer(client, &desc->x_scale_buffer_id);
}

static int send(struct gemmd_client *client, struct queue *queue, const struct ticket *ticket)
{
    if (queue != &client->zeromq) {
        return lane_submit(&queue->lane, &ticket->desc) == RING_OK
                   ? 0
                   : client_refuse(STATUS_BUSY, "the next daemon's lane takes fewer requests");
    }
    struct msg_request request = {
        .request_id = ticket->id, .verb = MSG_VERB_SUBMIT, .submit = ticket->desc};
    return exchange_send(client, &request);
}

/* What is left of it; 0 would be none. */
static void renew_timeout(struct ticket *ticket)
{
    uint64_t now_usec = listen_now_usec();
    if (ticket->desc.timeout_usec != 0) {
        bool is_over = now_usec >= ticket->expires_usec;
        ticket->desc.timeout_usec = is_over ? 1 : ticket->expires_usec - now_usec;
    }
}

static void resend_ticket(struct gemmd_client *client, struct queue *queue,
                          const struct resend *resend, struct ticket *ticket)
{
    if (ticket->is_cancelled) {
        end(queue, ticket, STATUS_CANCELLED, "cancelled");
        return;
    }
    if (client->options.has_no_repeat || ticket->first_failure) {
        end(queue, ticket, STATUS_DISCONNECTED, "the daemon went while the request was in flight");
        return;
    }
    if (!translate(client, resend, &ticket->desc)) {
        end(queue, ticket, STATUS_DISCONNECTED,
            "the daemon went, and the next one has not the weight or the buffers of the request");
        return;
    }
    renew_timeout(ticket);
    ticket->state = TICKET_IN_FLIGHT;
    int r = send(client, queue, ticket);
    if (r != 0 && r != STATUS_DISCONNECTED) { /* gone again: that is for the next revival */
        end(queue, ticket, r, gemmd_last_error());
    }
}

/* What the daemon said before it went still counts. */
static void resend_queue(struct gemmd_client *client, struct queue *queue,
                         const struct resend *resend, struct lane *lane)
{
    pthread_mutex_lock(&queue->lock);
    if (queue->is_open) {
        if (lane) {
            listen_await_quiet(queue);
            listen_drain(client, queue);
            lane_finish(&queue->lane);
            queue->lane = *lane;
            *lane = LANE_NULL;
        }
        for (uint32_t i = 0; i < queue->n_tickets; i++) {
            if (is_in_flight(&queue->tickets[i])) {
                resend_ticket(client, queue, resend, &queue->tickets[i]);
            }
        }
        queue->n_cancels_due = 0;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->lock);
}

static void take_over_names(struct gemmd_client *client, const struct resend *resend)
{
    for (uint32_t i = 0; i < resend->n_weights; i++) {
        struct known_weight weight = resend->weights[i].weight;
        if (resend->weights[i].id_next != 0) {
            weight.id_now = resend->weights[i].id_next;
            weight.epoch = atomic_load(&client->epoch) + 1;
            (void)!known_add(&client->known, &weight); /* else it is asked for once more */
        }
    }
    list_for_each (node, &client->buffers) {
        struct gemmd_buffer *buffer = LIST_OWNER(node, struct gemmd_buffer, in_client);
        buffer->id = buffer->id_next;
    }
}

void resend_commit(struct gemmd_client *client, struct resend *resend)
{
    pthread_mutex_lock(&client->buffers_lock);
    for (uint32_t i = 0; i < CLIENT_DEVICES_MAX; i++) {
        resend_queue(client, &client->lanes[i], resend, &resend->lanes[i]);
    }
    resend_queue(client, &client->zeromq, resend, NULL);
    take_over_names(client, resend);
    pthread_mutex_unlock(&client->buffers_lock);
}
