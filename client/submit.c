/* submit.c - products: descriptors out. See wait.c for the way back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/num.h"

#include "client/client.h"

#define SUBMIT_CHUNK 32u /* descriptors built at once, on the stack */

/* ---- taking ---- */

static int differing_sizes(size_t first_bytes, size_t its_bytes, size_t i)
{
    return client_refuse(STATUS_INVALID_ARGUMENT,
                         "gemmd_gemm.struct_bytes is %zu in the first request and %zu in request "
                         "%zu of one call",
                         first_bytes, its_bytes, i);
}

/* An array of the caller's: all of one size, which is the distance between them. */
static int take_all(const struct gemmd_gemm *gemms, size_t n, struct gemmd_gemm **ret_gemms)
{
    size_t struct_bytes = gemms->struct_bytes;
    CLEAN_FREE struct gemmd_gemm *taken = calloc(n, sizeof(*taken));
    if (!taken) {
        return client_fail_errno(-ENOMEM, "gemmd_submit");
    }
    for (size_t i = 0; i < n; i++) {
        const void *gemm = (const char *)gemms + i * struct_bytes;
        int r = gemm_take(gemm, &taken[i]);
        if (r != 0) {
            return r;
        }
        size_t its_bytes;
        memcpy(&its_bytes, gemm, sizeof(its_bytes));
        if (its_bytes != struct_bytes) {
            return differing_sizes(struct_bytes, its_bytes, i);
        }
    }
    *ret_gemms = steal_ptr(&taken);
    return 0;
}

static int check_gemms(const struct gemmd_client *client, const struct gemmd_gemm *gemms, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (gemms[i].struct_bytes != sizeof(*gemms)) {
            return differing_sizes(sizeof(*gemms), gemms[i].struct_bytes, i);
        }
        int r = gemm_check(client, &gemms[i]);
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

/* ---- submitting ---- */

static uint64_t end_of(uint64_t timeout_usec)
{
    uint64_t now_usec = listen_now_usec();
    return timeout_usec > UINT64_MAX - now_usec ? UINT64_MAX : now_usec + timeout_usec;
}

/* Until when a daemon may be waited for: as long as one of the requests still wants it. */
static uint64_t end_of_patience(const struct gemmd_gemm *gemms, size_t n)
{
    uint64_t timeout_usec = 0;
    for (size_t i = 0; i < n; i++) {
        if (gemms[i].timeout_usec == 0) {
            return REVIVE_NO_LIMIT;
        }
        timeout_usec = num_max(timeout_usec, gemms[i].timeout_usec);
    }
    return end_of(timeout_usec);
}

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

static struct ticket *take_ticket(struct gemmd_client *client, struct queue *queue,
                                  const struct gemmd_gemm *gemm)
{
    struct ticket *ticket = queue_take(queue);
    ticket->desc = gemm_describe(client, gemm, ticket->id);
    ticket->expires_usec = gemm->timeout_usec != 0 ? end_of(gemm->timeout_usec) : 0;
    return ticket;
}

static int submit_to_lane(struct gemmd_client *client, struct queue *queue,
                          const struct gemmd_gemm *gemms, size_t n, gemmd_ticket_t *ret_tickets)
{
    uint32_t n_free;
    if (n > queue->n_tickets - queue->n_in_use) {
        listen_drain(client, queue); /* nobody waits for the end of a stream's products */
    }
    enum ring_result room = ring_room(&queue->lane.submit, &n_free);
    /* A corrupt ring is not a full one: no waiting helps, and push_chunk() says so. */
    if (n > queue->n_tickets - queue->n_in_use || (room == RING_OK && n > n_free)) {
        return no_room(queue, n);
    }
    struct request_desc descs[SUBMIT_CHUNK];
    for (size_t i = 0; i < n; i += SUBMIT_CHUNK) {
        uint32_t n_chunk = (uint32_t)num_min(n - i, SUBMIT_CHUNK);
        for (uint32_t j = 0; j < n_chunk; j++) {
            const struct ticket *ticket = take_ticket(client, queue, &gemms[i + j]);
            ret_tickets[i + j] = ticket->id;
            descs[j] = ticket->desc;
        }
        push_chunk(queue, descs, n_chunk);
    }
    return 0;
}

static int post(struct gemmd_client *client, const struct ticket *ticket)
{
    struct msg_request request = {
        .request_id = ticket->id,
        .verb = MSG_VERB_SUBMIT,
        .submit = ticket->desc,
    };
    return exchange_send(client, &request);
}

/* A message that cannot be sent ends its request: those before it are in flight already. If there
 * is nobody to send it to, whoever waits for it finds the next daemon, and it goes there. */
static void end_unsent(const struct gemmd_client *client, struct queue *queue,
                       gemmd_ticket_t ticket, int status)
{
    if (status == STATUS_DISCONNECTED && client->options.reconnect_msec > 0) {
        return;
    }
    struct request_result result = {.request_id = ticket, .status = (uint32_t)status};
    (void)snprintf(result.text, sizeof(result.text), "%s", gemmd_last_error());
    queue_result(queue, &result);
}

static int submit_by_message(struct gemmd_client *client, const struct gemmd_gemm *gemms, size_t n,
                             gemmd_ticket_t *ret_tickets)
{
    struct queue *queue = &client->zeromq;
    if (n > queue->n_tickets - queue->n_in_use) {
        return no_room(queue, n);
    }
    for (size_t i = 0; i < n; i++) {
        struct ticket *ticket = take_ticket(client, queue, &gemms[i]);
        int r = post(client, ticket);
        if (r == STATUS_BUSY && i == 0) {
            queue_give(queue, ticket);
            return r;
        }
        ret_tickets[i] = ticket->id;
        if (r != 0) {
            end_unsent(client, queue, ticket->id, r);
        }
    }
    return 0;
}

/* *ret_is_late: the daemon that this was meant for is being replaced, or has been; nothing was
 * sent. */
static int submit_once(struct gemmd_client *client, const struct gemmd_gemm *gemms, size_t n,
                       uint64_t until_usec, gemmd_ticket_t *ret_tickets, bool *ret_is_late)
{
    struct queue *queue = NULL;
    uint32_t epoch = atomic_load(&client->epoch);
    *ret_is_late = false;
    int r = path_queue_for(client, gemms[0].weight->device_index, until_usec, &queue);
    if (r != 0) {
        return r;
    }
    r = weights_settle(client, gemms, n);
    if (r == STATUS_DISCONNECTED && client->options.reconnect_msec > 0) {
        r = client->revive(client, epoch, until_usec);
        *ret_is_late = r == 0;
        return r;
    }
    if (r != 0) {
        return r;
    }
    pthread_mutex_lock(&queue->lock);
    *ret_is_late = atomic_load(&client->is_reviving) || atomic_load(&client->epoch) != epoch;
    if (!*ret_is_late) {
        r = queue == &client->zeromq ? submit_by_message(client, gemms, n, ret_tickets)
                                     : submit_to_lane(client, queue, gemms, n, ret_tickets);
    }
    pthread_mutex_unlock(&queue->lock);
    return r;
}

static int submit_taken(struct gemmd_client *client, const struct gemmd_gemm *gemms, size_t n,
                        gemmd_ticket_t *ret_tickets)
{
    int r = forked_check(client);
    r = r != 0 ? r : check_gemms(client, gemms, n);
    bool is_late = r == 0;
    uint64_t until_usec = is_late ? end_of_patience(gemms, n) : 0;
    while (is_late) {
        r = submit_once(client, gemms, n, until_usec, ret_tickets, &is_late);
    }
    return r;
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
    if (gemms->struct_bytes == sizeof(*gemms)) {
        return submit_taken(client, gemms, n, ret_tickets);
    }
    CLEAN_FREE struct gemmd_gemm *taken = NULL;
    int r = take_all(gemms, n, &taken);
    return r != 0 ? r : submit_taken(client, taken, n, ret_tickets);
}
