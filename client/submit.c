/* submit.c - products: descriptors out, results in.
 *
 * Waiting threads share one place to listen (a lane's futex, or the ZeroMQ socket): the first takes
 * it and hears for all, the others sleep on the queue's condition until a result comes in or the
 * place is free. Every slice of waiting ends with a look at the session socket, whose hang-up is
 * the daemon's death. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/num.h"

#include "client/client.h"

#define SUBMIT_CHUNK 32u /* descriptors built at once, on the stack */

static int check_gemm(const struct gemmd_client *client, const struct gemmd_gemm *gemm)
{
    if (gemm->struct_bytes != sizeof(*gemm)) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_gemm.struct_bytes is %zu, this library's is %zu: start from "
                             "GEMMD_GEMM_INIT",
                             gemm->struct_bytes, sizeof(*gemm));
    }
    if (!gemm->weight) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_gemm.weight is NULL");
    }
    if (gemm->m > 0 && (!gemm->x || !gemm->y)) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_gemm.%s is NULL and m is %u",
                             gemm->x ? "y" : "x", gemm->m);
    }
    if ((gemm->x && gemm->x->client != client) || (gemm->y && gemm->y->client != client)) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_gemm.%s belongs to another client",
                             gemm->x && gemm->x->client != client ? "x" : "y");
    }
    if ((unsigned)gemm->x_dtype > UINT8_MAX || (unsigned)gemm->y_dtype > UINT8_MAX) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_gemm: x_dtype %d, y_dtype %d: not a gemmd_dtype",
                             (int)gemm->x_dtype, (int)gemm->y_dtype);
    }
    return 0;
}

static int check_gemms(const struct gemmd_client *client, const struct gemmd_gemm *gemms, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int r = check_gemm(client, &gemms[i]);
        if (r != 0) {
            return r;
        }
        if (gemms[i].weight->device_index != gemms[0].weight->device_index) {
            return client_refuse(STATUS_INVALID_ARGUMENT,
                                 "gemmd_submit: weights on devices %u and %u in one call",
                                 gemms[0].weight->device_index, gemms[i].weight->device_index);
        }
    }
    return 0;
}

static struct request_desc describe(const struct gemmd_gemm *gemm, uint64_t request_id)
{
    return (struct request_desc){
        .request_id = request_id,
        .weight_id = gemm->weight->id,
        .x_buffer_id = gemm->x ? gemm->x->id : 0,
        .x_offset_bytes = gemm->x_offset_bytes,
        .x_stride_elems = gemm->x_stride ? gemm->x_stride : gemm->weight->k,
        .y_buffer_id = gemm->y ? gemm->y->id : 0,
        .y_offset_bytes = gemm->y_offset_bytes,
        .y_stride_elems = gemm->y_stride ? gemm->y_stride : gemm->weight->n,
        .timeout_usec = gemm->timeout_usec,
        .m = gemm->m,
        .n = gemm->weight->n,
        .k = gemm->weight->k,
        .op = REQUEST_OP_GEMM,
        .x_dtype = (uint8_t)gemm->x_dtype,
        .y_dtype = (uint8_t)gemm->y_dtype,
    };
}

/* ---- paths -------------------------------------------------------------------------------------
 */

static int attach_lane(struct queue *queue, struct side_packet *packet, uint32_t device_index)
{
    struct reason why;
    if (packet->n_fds != 2) {
        return client_refuse(STATUS_BAD_MESSAGE, "the daemon sent %u fds with a lane, not 2",
                             packet->n_fds);
    }
    int r = lane_attach(&queue->lane, steal_fd(&packet->fds[0]), steal_fd(&packet->fds[1]), &why);
    if (r < 0) {
        return client_fail_errno(r, "mapping a lane");
    }
    if (r > 0) {
        return client_fail(&why);
    }
    r = queue_open(queue, queue->lane.n_entries, device_index);
    return r < 0 ? client_fail_errno(r, "a lane's tickets") : 0;
}

static int open_lane(struct gemmd_client *client, struct queue *queue, uint32_t device_index)
{
    union side_message question;
    struct side_packet packet;
    side_init(&question, SIDE_OPEN_LANE, 0);
    question.open_lane.device_index = device_index;
    int r = session_ask(client, &question, -1, SIDE_LANE, &packet);
    if (r != 0) {
        return r;
    }
    r = attach_lane(queue, &packet, device_index);
    side_packet_finish(&packet);
    return r;
}

static int open_zeromq(struct gemmd_client *client, struct queue *queue)
{
    uint32_t n = (uint32_t)num_min(num_max(client->welcome.in_flight_max, 1), LANE_ENTRIES_MAX);
    int r = queue_open(queue, n, CLIENT_PATH_ZEROMQ);
    return r < 0 ? client_fail_errno(r, "tickets") : 0;
}

/* The queue that a weight on that device is submitted through, opened at its first use. */
static int queue_for(struct gemmd_client *client, uint32_t device_index, struct queue **ret_queue)
{
    bool is_ring = client->options.path == GEMMD_PATH_RING;
    if (device_index >= CLIENT_DEVICES_MAX) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "device_index %u is over the limit of %u",
                             device_index, CLIENT_DEVICES_MAX - 1);
    }
    struct queue *queue = is_ring ? &client->lanes[device_index] : &client->zeromq;
    int r = 0;
    pthread_mutex_lock(&client->lanes_lock);
    if (!queue->is_open) {
        r = is_ring ? open_lane(client, queue, device_index) : open_zeromq(client, queue);
    }
    pthread_mutex_unlock(&client->lanes_lock);
    if (r == 0) {
        *ret_queue = queue;
    }
    return r;
}

/* The queue a ticket came from; NULL when there is none. */
static struct queue *queue_of(struct gemmd_client *client, gemmd_ticket_t ticket)
{
    uint32_t path = ticket_path(ticket);
    struct queue *queue = path == CLIENT_PATH_ZEROMQ ? &client->zeromq : NULL;
    if (path < CLIENT_DEVICES_MAX) {
        queue = &client->lanes[path];
    }
    return queue;
}

/* ---- submitting --------------------------------------------------------------------------------
 */

static int no_room(const struct queue *queue, size_t n)
{
    return client_refuse(STATUS_BUSY, "%zu requests do not fit in flight: %u of at most %u are", n,
                         queue->n_in_use, queue->n_tickets);
}

/* Room was checked, so only a lane whose indices were overwritten can refuse; its requests then end
 * with that as their result. */
static void push_chunk(struct queue *queue, const struct request_desc *descs, uint32_t n)
{
    int n_pushed = lane_submit_many(&queue->lane, descs, n);
    for (uint32_t i = n_pushed < 0 ? 0 : (uint32_t)n_pushed; i < n; i++) {
        struct request_result result = {.request_id = descs[i].request_id,
                                        .status = STATUS_BAD_MESSAGE};
        static const char text[] = "the lane's indices were overwritten";
        memcpy(result.text, text, sizeof(text));
        queue_result(queue, &result);
    }
}

static int submit_to_lane(struct queue *queue, const struct gemmd_gemm *gemms, size_t n,
                          gemmd_ticket_t *ret_tickets)
{
    if (n > queue->n_tickets - queue->n_in_use || n > ring_free(&queue->lane.submit)) {
        return no_room(queue, n);
    }
    struct request_desc descs[SUBMIT_CHUNK];
    for (size_t i = 0; i < n; i += SUBMIT_CHUNK) {
        uint32_t n_chunk = (uint32_t)num_min(n - i, SUBMIT_CHUNK);
        for (uint32_t j = 0; j < n_chunk; j++) {
            ret_tickets[i + j] = queue_take(queue)->id;
            descs[j] = describe(&gemms[i + j], ret_tickets[i + j]);
        }
        push_chunk(queue, descs, n_chunk);
    }
    return 0;
}

static int take_tickets(struct queue *queue, size_t n, gemmd_ticket_t *ret_tickets)
{
    if (n > queue->n_tickets - queue->n_in_use) {
        return no_room(queue, n);
    }
    for (size_t i = 0; i < n; i++) {
        ret_tickets[i] = queue_take(queue)->id;
    }
    return 0;
}

/* A message that cannot be sent ends its request; those before it are in flight already. */
static void post(struct gemmd_client *client, const struct gemmd_gemm *gemm, gemmd_ticket_t ticket)
{
    struct msg_request request = {
        .request_id = ticket,
        .verb = MSG_VERB_SUBMIT,
        .submit = describe(gemm, ticket),
    };
    int r = control_post(client, &request);
    if (r != 0) {
        struct request_result result = {.request_id = ticket, .status = (uint32_t)r};
        (void)strncpy(result.text, gemmd_last_error(), sizeof(result.text) - 1);
        pthread_mutex_lock(&client->zeromq.lock);
        queue_result(&client->zeromq, &result);
        pthread_mutex_unlock(&client->zeromq.lock);
    }
}

int gemmd_submit(gemmd_client_t *client, const struct gemmd_gemm *gemms, size_t n,
                 gemmd_ticket_t *ret_tickets)
{
    if (!client || (n > 0 && (!gemms || !ret_tickets))) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_submit: an argument is NULL");
    }
    if (n == 0) {
        return GEMMD_OK;
    }
    struct queue *queue = NULL;
    int r = check_gemms(client, gemms, n);
    r = r != 0 ? r : queue_for(client, gemms[0].weight->device_index, &queue);
    if (r != 0) {
        return r;
    }
    bool is_ring = queue != &client->zeromq;
    pthread_mutex_lock(&queue->lock);
    r = is_ring ? submit_to_lane(queue, gemms, n, ret_tickets)
                : take_tickets(queue, n, ret_tickets);
    pthread_mutex_unlock(&queue->lock);
    for (size_t i = 0; r == 0 && !is_ring && i < n; i++) {
        post(client, &gemms[i], ret_tickets[i]);
    }
    return r;
}

/* ---- waiting -----------------------------------------------------------------------------------
 */

static uint64_t now_usec(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void drain_lane(struct queue *queue)
{
    struct request_result result;
    while (ring_pop(&queue->lane.complete, &result) == RING_OK) {
        queue_result(queue, &result);
    }
}

/* Without the queue's lock. 0, or a status with its sentence set when the daemon is gone. */
static int listen_for_results(struct gemmd_client *client, struct queue *queue, uint64_t slice_usec)
{
    if (queue == &client->zeromq) {
        return control_listen(client, (int)num_div_up(slice_usec, 1000));
    }
    int r = lane_wait_completion(&queue->lane, client->options.spin_usec, slice_usec);
    if (r == -ETIMEDOUT) {
        return client_is_connected(client) ? 0 : client_disconnected(client);
    }
    return r < 0 ? client_fail_errno(r, "waiting on a lane") : 0;
}

static int sleep_or_listen(struct gemmd_client *client, struct queue *queue, uint64_t slice_usec)
{
    if (queue->is_listening) {
        uint64_t end = now_usec() + slice_usec;
        struct timespec until = {.tv_sec = (time_t)(end / 1000000),
                                 .tv_nsec = (long)(end % 1000000) * 1000};
        (void)pthread_cond_timedwait(&queue->changed, &queue->lock, &until);
        return 0;
    }
    queue->is_listening = true;
    pthread_mutex_unlock(&queue->lock);
    int r = listen_for_results(client, queue, slice_usec);
    pthread_mutex_lock(&queue->lock);
    queue->is_listening = false;
    pthread_cond_broadcast(&queue->changed);
    return r;
}

/* 0 when the ticket is DONE; otherwise a status, with the ticket still in flight. */
static int wait_locked(struct gemmd_client *client, struct queue *queue, uint64_t ticket_id,
                       uint64_t timeout_usec)
{
    uint64_t start = now_usec();
    uint64_t deadline = timeout_usec > UINT64_MAX - start ? UINT64_MAX : start + timeout_usec;
    int r = 0;
    for (bool is_first = true;; is_first = false) {
        if (queue != &client->zeromq) {
            drain_lane(queue);
        }
        const struct ticket *ticket = queue_find(queue, ticket_id);
        if (!ticket) {
            return client_refuse(STATUS_NOT_FOUND, "ticket %#llx is not in flight",
                                 (unsigned long long)ticket_id);
        }
        if (ticket->state == TICKET_DONE) {
            return 0;
        }
        uint64_t now = now_usec();
        if (r != 0) {
            return r;
        }
        if (now >= deadline && !is_first) {
            return client_refuse(STATUS_TIMEOUT, "the request is still in flight after %llu us",
                                 (unsigned long long)timeout_usec);
        }
        uint64_t left = now < deadline ? deadline - now : 0;
        r = sleep_or_listen(client, queue, num_min(left, CLIENT_WAIT_SLICE_USEC));
    }
}

static void tell(const struct request_result *result, int status, struct gemmd_result *ret_result)
{
    if (ret_result) {
        *ret_result = (struct gemmd_result){
            .struct_bytes = sizeof(*ret_result),
            .status = status,
            .batch_rows = result->batch_rows,
            .batch_requests = result->batch_requests,
            .batch_sessions = result->batch_sessions,
            .queue_nsec = result->queue_nsec,
            .run_nsec = result->run_nsec,
        };
    }
}

/* Take the result of a ticket that is DONE and give its place back. */
static int spend(struct queue *queue, struct ticket *ticket, struct gemmd_result *ret_result)
{
    struct request_result result = ticket->result;
    queue_give(queue, ticket);
    tell(&result, (int)result.status, ret_result);
    if (result.status == STATUS_OK) {
        return GEMMD_OK;
    }
    struct reason why;
    (void)reason_set(&why, (int)result.status, "%s", result.text);
    return client_fail(&why);
}

int gemmd_wait(gemmd_client_t *client, gemmd_ticket_t ticket, uint64_t timeout_usec,
               struct gemmd_result *ret_result)
{
    struct queue *queue = client ? queue_of(client, ticket) : NULL;
    if (!queue) {
        return client_refuse(client ? STATUS_NOT_FOUND : STATUS_INVALID_ARGUMENT,
                             client ? "ticket %#llx is not in flight"
                                    : "gemmd_wait: client is NULL (ticket %#llx)",
                             (unsigned long long)ticket);
    }
    pthread_mutex_lock(&queue->lock);
    int r = queue->is_open ? wait_locked(client, queue, ticket, timeout_usec)
                           : client_refuse(STATUS_NOT_FOUND, "ticket %#llx is not in flight",
                                           (unsigned long long)ticket);
    struct ticket *found = r != STATUS_NOT_FOUND ? queue_find(queue, ticket) : NULL;
    if (r == 0) {
        r = spend(queue, found, ret_result);
    } else if (r == STATUS_TIMEOUT) {
        tell(&(struct request_result){0}, GEMMD_BUSY, ret_result);
    } else if (found) { /* the daemon is gone, and the request with it */
        queue_give(queue, found);
        tell(&(struct request_result){0}, r, ret_result);
    }
    pthread_mutex_unlock(&queue->lock);
    return r;
}

int gemmd_gemm(gemmd_client_t *client, const struct gemmd_gemm *gemm)
{
    gemmd_ticket_t ticket;
    int r = gemmd_submit(client, gemm, 1, &ticket);
    return r != 0 ? r : gemmd_wait(client, ticket, GEMMD_WAIT_FOREVER, NULL);
}

static int cancel_on_lane(struct queue *queue, gemmd_ticket_t ticket)
{
    struct request_desc desc = {.request_id = ticket, .op = REQUEST_OP_CANCEL};
    pthread_mutex_lock(&queue->lock);
    int r = 0;
    if (!queue->is_open || !queue_find(queue, ticket)) {
        r = client_refuse(STATUS_NOT_FOUND, "ticket %#llx is not in flight",
                          (unsigned long long)ticket);
    } else if (lane_submit(&queue->lane, &desc) != RING_OK) {
        r = client_refuse(STATUS_BUSY, "the ring is full; cancel again");
    }
    pthread_mutex_unlock(&queue->lock);
    return r;
}

static int cancel_by_message(struct gemmd_client *client, gemmd_ticket_t ticket)
{
    struct msg_request request = {.verb = MSG_VERB_CANCEL, .cancel_request_id = ticket};
    struct msg_reply reply;
    int r = control_call(client, &request, &reply);
    if (r == 0) {
        msg_reply_finish(&reply);
    }
    return r;
}

int gemmd_cancel(gemmd_client_t *client, gemmd_ticket_t ticket)
{
    struct queue *queue = client ? queue_of(client, ticket) : NULL;
    if (!queue) {
        return client_refuse(client ? STATUS_NOT_FOUND : STATUS_INVALID_ARGUMENT,
                             "gemmd_cancel: ticket %#llx is not in flight",
                             (unsigned long long)ticket);
    }
    return queue == &client->zeromq ? cancel_by_message(client, ticket)
                                    : cancel_on_lane(queue, ticket);
}
