/* control.c - verbs: one message and its reply. */
#include "ipc/base/num.h"

#include "client/client.h"

#define SEND_SLICE_USEC 2000u /* between two attempts on a full socket, if no event comes first */

/* The lock is let go meanwhile, so that no call waits for another's message. */
static int send(struct gemmd_client *client, const struct msg_request *request, uint64_t deadline)
{
    int r;
    while ((r = exchange_send(client, request)) == STATUS_BUSY) {
        uint64_t now = listen_now_usec();
        if (now >= deadline) {
            return client_refuse(STATUS_TIMEOUT, "the daemon did not take a message within %u ms",
                                 client->options.timeout_msec);
        }
        listen_for_reply(client, num_min(deadline - now, SEND_SLICE_USEC));
    }
    return r;
}

static int await(struct gemmd_client *client, const struct call *call, uint64_t deadline)
{
    while (!call->is_done) {
        uint64_t now = listen_now_usec();
        if (now >= deadline) {
            return client_refuse(STATUS_TIMEOUT, "the daemon did not reply within %u ms",
                                 client->options.timeout_msec);
        }
        listen_for_reply(client, num_min(deadline - now, CLIENT_WAIT_SLICE_USEC));
    }
    return call->why.status != STATUS_OK ? client_fail(&call->why) : 0;
}

static int send_and_await(struct gemmd_client *client, struct msg_request *request,
                          struct call *call)
{
    call->id = ticket_id(++client->exchange.n_ids, CLIENT_PATH_CONTROL, 0);
    request->request_id = call->id;
    list_append(&client->exchange.calls, &call->node);
    uint64_t deadline = listen_now_usec() + client->options.timeout_msec * 1000ull;
    int r = send(client, request, deadline);
    r = r != 0 ? r : await(client, call, deadline);
    list_remove(&call->node);
    return r;
}

static int call_once(struct gemmd_client *client, struct msg_request *request, bool is_reviver,
                     struct msg_reply *ret_reply)
{
    struct call call = {.why = REASON_NULL, .reply = MSG_REPLY_NULL};
    pthread_mutex_lock(&client->zeromq.lock);
    int r = !is_reviver && atomic_load(&client->is_reviving)
                ? session_gone(client)
                : send_and_await(client, request, &call);
    pthread_mutex_unlock(&client->zeromq.lock);
    if (r == 0 && call.reply.status == STATUS_OK) {
        *ret_reply = call.reply;
        return 0;
    }
    if (r == 0) {
        r = client_fail_wire((uint32_t)call.reply.status, call.reply.text);
    }
    msg_reply_finish(&call.reply);
    return r;
}

int control_call_once(struct gemmd_client *client, struct msg_request *request,
                      struct msg_reply *ret_reply)
{
    return call_once(client, request, false, ret_reply);
}

int control_call_next(struct gemmd_client *client, struct msg_request *request,
                      struct msg_reply *ret_reply)
{
    return call_once(client, request, true, ret_reply);
}

int control_call(struct gemmd_client *client, struct msg_request *request,
                 struct msg_reply *ret_reply)
{
    int inherited = forked_check(client);
    if (inherited != 0) {
        return inherited;
    }
    for (;;) {
        uint32_t epoch = atomic_load(&client->epoch);
        int r = control_call_once(client, request, ret_reply);
        if (r != STATUS_DISCONNECTED || client->options.reconnect_msec == 0) {
            return r;
        }
        r = client->revive(client, epoch, REVIVE_NO_LIMIT);
        if (r != 0) {
            return r;
        }
    }
}
