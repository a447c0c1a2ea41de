/* wait.c - products: results back.
 *
 * Whoever waits takes in everybody's results, so no thread of the library's own is needed. A ticket
 * stays in its table until its owner has taken the result; the daemon being gone is a result like
 * any other. */
#include "ipc/base/num.h"

#include "client/client.h"

#define RESULT_BYTES_MIN STRUCT_END(struct gemmd_result, run_nsec)

static int unknown_ticket(gemmd_ticket_t ticket)
{
    return client_refuse(STATUS_NOT_FOUND, "ticket %#llx is not in flight",
                         (unsigned long long)ticket);
}

/* 0 with the ticket, which is DONE; NOT_FOUND; or TIMEOUT with the ticket still in flight. */
static int wait_locked(struct gemmd_client *client, struct queue *queue, uint64_t id,
                       uint64_t timeout_usec, struct ticket **ret_ticket)
{
    uint64_t start = listen_now_usec();
    uint64_t deadline = timeout_usec > UINT64_MAX - start ? UINT64_MAX : start + timeout_usec;
    for (bool is_first = true;; is_first = false) {
        listen_drain(client, queue);
        struct ticket *ticket = queue_find(queue, id);
        if (!ticket) {
            return unknown_ticket(id);
        }
        queue_settle(ticket);
        if (atomic_load(&client->is_reviving)) {
            queue_expire(queue, ticket, listen_now_usec());
        }
        if (ticket->state == TICKET_DONE) {
            *ret_ticket = ticket;
            return 0;
        }
        uint64_t now = listen_now_usec();
        if (now >= deadline && !is_first) {
            return client_refuse(STATUS_TIMEOUT, "the request is still in flight after %llu us",
                                 (unsigned long long)timeout_usec);
        }
        listen_sleep(client, queue,
                     num_min(now < deadline ? deadline - now : 0, CLIENT_WAIT_SLICE_USEC));
    }
}

static void tell(const struct request_result *result, int status, struct gemmd_result *ret_result)
{
    if (ret_result) {
        const struct gemmd_result told = {
            .status = status,
            .batch_rows = result->batch_rows,
            .batch_requests = result->batch_requests,
            .batch_sessions = result->batch_sessions,
            .queue_nsec = result->queue_nsec,
            .run_nsec = result->run_nsec,
            .accumulation = (enum gemmd_accumulation)result->accumulation,
        };
        filled_write(ret_result, ret_result->struct_bytes, &told, sizeof(told));
    }
}

/* Take the result of a ticket that is DONE and give its place back. */
static int spend(struct queue *queue, struct ticket *ticket, struct gemmd_result *ret_result)
{
    struct request_result result = ticket->result;
    queue_give(queue, ticket);
    int r = result.status == STATUS_OK ? GEMMD_OK : client_fail_result(result.status, result.text);
    tell(&result, r, ret_result);
    return r;
}

int gemmd_wait(gemmd_client_t *client, gemmd_ticket_t ticket, uint64_t timeout_usec,
               struct gemmd_result *ret_result)
{
    if (!client) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_wait: client is NULL");
    }
    int r = forked_check(client);
    if (r == 0 && ret_result) {
        r = filled_check("gemmd_result", ret_result->struct_bytes, RESULT_BYTES_MIN);
    }
    if (r != 0) {
        return r;
    }
    struct queue *queue = path_queue_of(client, ticket);
    if (!queue) {
        return unknown_ticket(ticket);
    }
    struct ticket *found = NULL;
    pthread_mutex_lock(&queue->lock);
    r = wait_locked(client, queue, ticket, timeout_usec, &found);
    if (r == 0) {
        r = spend(queue, found, ret_result);
    } else if (r == STATUS_TIMEOUT) {
        tell(&(struct request_result){0}, GEMMD_BUSY, ret_result);
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

/* The daemon does not find a request that has just ended; its result is on the way. */
static int cancel_by_message(struct gemmd_client *client, gemmd_ticket_t ticket)
{
    struct msg_request request = {.verb = MSG_VERB_CANCEL, .cancel_request_id = ticket};
    struct msg_reply reply;
    int r = control_call(client, &request, &reply);
    if (r == 0) {
        msg_reply_finish(&reply);
    }
    return r == STATUS_NOT_FOUND ? GEMMD_OK : r;
}

int gemmd_cancel(gemmd_client_t *client, gemmd_ticket_t ticket)
{
    if (!client) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_cancel: client is NULL");
    }
    int r = forked_check(client);
    if (r != 0) {
        return r;
    }
    struct queue *queue = path_queue_of(client, ticket);
    if (!queue) {
        return unknown_ticket(ticket);
    }
    pthread_mutex_lock(&queue->lock);
    listen_drain(client, queue);
    struct ticket *found = queue_find(queue, ticket);
    bool is_known = found != NULL;
    bool is_done = is_known && found->state == TICKET_DONE;
    if (is_known) {
        found->is_cancelled = true; /* the next daemon is not asked for it */
    }
    if (is_known && !is_done && queue != &client->zeromq) {
        queue_cancel(queue, found);
    }
    pthread_mutex_unlock(&queue->lock);
    if (!is_known) {
        return unknown_ticket(ticket);
    }
    return queue == &client->zeromq && !is_done ? cancel_by_message(client, ticket) : GEMMD_OK;
}
