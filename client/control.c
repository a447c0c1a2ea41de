/* control.c - verbs over ZeroMQ.
 *
 * Many threads, one socket: whoever holds the lock receives for all. A reply to a SUBMIT goes to
 * its ticket; a reply to a call that was given up on is dropped. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ipc/base/cleanup.h"
#include "ipc/codec.h"

#include "client/client.h"

/* Message ids stay out of the space of ticket ids on the ZeroMQ path, which have their path in bits
 * 16 to 23. */
#define MESSAGE_ID_MASK 0xffffull

int control_init(struct gemmd_client *client)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", client->socket_dir, SIDE_CONTROL_NAME);
    int r =
        sock_connect_dealer(&client->control.sock, path, client->welcome.token, SIDE_TOKEN_BYTES);
    return r < 0 ? client_fail_errno(r, "connecting to the control socket") : 0;
}

void control_finish(struct gemmd_client *client)
{
    sock_finish(&client->control.sock);
}

static uint64_t now_msec(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int send_locked(struct gemmd_client *client, const struct msg_request *request)
{
    CLEAN_FREE uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    int r = codec_encode_request(request, &bytes, &n_bytes);
    if (r < 0) {
        return client_fail_errno(r, "encoding a control message");
    }
    r = sock_send_request(&client->control.sock, bytes, n_bytes, (int)client->options.timeout_msec);
    if (r < 0 && !client_is_connected(client)) {
        return client_disconnected(client);
    }
    return r < 0 ? client_fail_errno(r, "sending on the control socket") : 0;
}

/* -ETIMEDOUT when nothing came; a positive status has its sentence set. */
static int receive_locked(struct gemmd_client *client, int timeout_msec,
                          struct msg_reply *ret_reply)
{
    struct reason why = REASON_NULL;
    CLEAN_FREE uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    int r = sock_receive_reply(&client->control.sock, timeout_msec, &bytes, &n_bytes, &why);
    if (r == -ETIMEDOUT) {
        return client_is_connected(client) ? r : client_disconnected(client);
    }
    if (r == 0) {
        r = codec_decode_reply(bytes, n_bytes, ret_reply, &why);
    }
    if (r < 0) {
        return client_fail_errno(r, "receiving a control reply");
    }
    return r > 0 ? client_fail(&why) : 0;
}

/* A reply that is nobody's call: a request's end, or the late answer to a call that timed out. */
static void hand_on(struct gemmd_client *client, struct msg_reply *reply)
{
    if (ticket_path(reply->request_id) == CLIENT_PATH_ZEROMQ) {
        struct request_result result = {0};
        if (reply->body == MSG_BODY_SUBMITTED) {
            result = reply->submitted;
        }
        result.request_id = reply->request_id;
        result.status = (uint32_t)reply->status;
        memcpy(result.text, reply->text, sizeof(result.text));
        pthread_mutex_lock(&client->zeromq.lock);
        queue_result(&client->zeromq, &result);
        pthread_mutex_unlock(&client->zeromq.lock);
    }
    msg_reply_finish(reply);
}

/* Short slices, so that a daemon that dies is noticed long before the time is up. */
static int await_reply(struct gemmd_client *client, uint64_t message_id,
                       struct msg_reply *ret_reply)
{
    uint64_t deadline = now_msec() + client->options.timeout_msec;
    for (;;) {
        struct msg_reply reply = MSG_REPLY_NULL;
        int r = receive_locked(client, CLIENT_WAIT_SLICE_USEC / 1000, &reply);
        if (r == 0 && reply.request_id == message_id) {
            *ret_reply = reply;
            return 0;
        }
        if (r == 0) {
            hand_on(client, &reply);
        }
        if (r > 0) {
            return r;
        }
        if (now_msec() >= deadline) {
            return client_refuse(STATUS_TIMEOUT, "the daemon did not reply within %u ms",
                                 client->options.timeout_msec);
        }
    }
}

int control_call(struct gemmd_client *client, struct msg_request *request,
                 struct msg_reply *ret_reply)
{
    struct msg_reply reply = MSG_REPLY_NULL;
    pthread_mutex_lock(&client->control.lock);
    request->request_id = ++client->control.n_message_ids & MESSAGE_ID_MASK;
    int r = send_locked(client, request);
    if (r == 0) {
        r = await_reply(client, request->request_id, &reply);
    }
    pthread_mutex_unlock(&client->control.lock);
    if (r != 0) {
        return r;
    }
    if (reply.status != STATUS_OK) {
        struct reason why;
        (void)reason_set(&why, reply.status, "%s", reply.text);
        msg_reply_finish(&reply);
        return client_fail(&why);
    }
    *ret_reply = reply;
    return 0;
}

int control_post(struct gemmd_client *client, const struct msg_request *request)
{
    pthread_mutex_lock(&client->control.lock);
    int r = send_locked(client, request);
    pthread_mutex_unlock(&client->control.lock);
    return r;
}

int control_listen(struct gemmd_client *client, int timeout_msec)
{
    struct msg_reply reply = MSG_REPLY_NULL;
    pthread_mutex_lock(&client->control.lock);
    int r = receive_locked(client, timeout_msec, &reply);
    if (r == 0) {
        hand_on(client, &reply);
    }
    pthread_mutex_unlock(&client->control.lock);
    return r == -ETIMEDOUT ? 0 : r;
}
