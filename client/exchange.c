/* exchange.c - the ZeroMQ socket: messages out, replies in.
 *
 * Many threads, one socket. Whoever holds the lock takes in every reply that is there and hands it
 * to the call or ticket it belongs to; the late answer to a call that was given up on is dropped.
 * One thread at a time sleeps on the socket's fd, without the lock. That fd is edge-triggered and
 * any use of the socket may swallow the edge: so every send is followed by a look, and a look that
 * found something kicks the sleeper.
 *
 * The alternative, to hold the lock while receiving, makes a submit wait for another thread's
 * product. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/num.h"
#include "ipc/codec.h"

#include "client/client.h"

static int connect_socket(struct gemmd_client *client)
{
    struct exchange *exchange = &client->exchange;
    char path[CLIENT_DIR_BYTES + sizeof("/" SIDE_CONTROL_NAME)];
    (void)snprintf(path, sizeof(path), "%s/%s", client->socket_dir, SIDE_CONTROL_NAME);
    int r = sock_connect_dealer(&exchange->sock, path, client->welcome.token, SIDE_TOKEN_BYTES);
    exchange->socket_fd = -1;
    if (r < 0) {
        return client_fail_errno(r, "connecting to the control socket");
    }
    exchange->socket_fd = sock_fd(&exchange->sock);
    return 0;
}

int exchange_init(struct gemmd_client *client)
{
    client->exchange.kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->exchange.kick_fd < 0) {
        return client_fail_errno(-errno, "making an eventfd");
    }
    return connect_socket(client);
}

void exchange_end(struct gemmd_client *client)
{
    struct reason why;
    (void)reason_set(&why, STATUS_DISCONNECTED, "the daemon at %s hung up", client->socket_dir);
    pthread_mutex_lock(&client->zeromq.lock);
    exchange_drain(client); /* what the daemon said before it went still counts */
    exchange_fail_calls(client, &why);
    pthread_mutex_unlock(&client->zeromq.lock);
}

static int renew_locked(struct gemmd_client *client)
{
    client->exchange.is_renewing = true;
    (void)!write(client->exchange.kick_fd, &(uint64_t){1}, sizeof(uint64_t));
    listen_await_quiet(&client->zeromq);
    client->exchange.is_renewing = false;
    exchange_drain(client);
    sock_finish(&client->exchange.sock);
    return connect_socket(client);
}

int exchange_renew(struct gemmd_client *client)
{
    pthread_mutex_lock(&client->zeromq.lock);
    int r = renew_locked(client);
    pthread_mutex_unlock(&client->zeromq.lock);
    return r;
}

void exchange_finish(struct gemmd_client *client)
{
    sock_finish(&client->exchange.sock);
    cleanup_fd(&client->exchange.kick_fd);
}

static struct call *find_call(struct exchange *exchange, uint64_t id)
{
    list_for_each (node, &exchange->calls) {
        struct call *call = LIST_OWNER(node, struct call, node);
        if (call->id == id && !call->is_done) {
            return call;
        }
    }
    return NULL;
}

/* Takes the reply over. */
static void hand_out(struct gemmd_client *client, struct msg_reply *reply)
{
    struct call *call = find_call(&client->exchange, reply->request_id);
    if (call) {
        call->reply = *reply;
        call->is_done = true;
        pthread_cond_broadcast(&client->zeromq.changed);
        return;
    }
    struct request_result result = {0};
    if (reply->body == MSG_BODY_SUBMITTED) {
        result = reply->submitted;
    }
    result.request_id = reply->request_id;
    result.status = (uint32_t)reply->status;
    memcpy(result.text, reply->text, sizeof(result.text));
    queue_result(&client->zeromq, &result);
    msg_reply_finish(reply);
}

void exchange_fail_calls(struct gemmd_client *client, const struct reason *why)
{
    list_for_each (node, &client->exchange.calls) {
        struct call *call = LIST_OWNER(node, struct call, node);
        if (!call->is_done) {
            call->why = *why;
            call->is_done = true;
        }
    }
    pthread_cond_broadcast(&client->zeromq.changed);
}

/* -ETIMEDOUT when nothing is there. */
static int receive(struct sock *sock, struct msg_reply *ret_reply, struct reason *why)
{
    CLEAN_FREE uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    int r = sock_receive_reply(sock, 0, &bytes, &n_bytes, why);
    return r != 0 ? r : codec_decode_reply(bytes, n_bytes, ret_reply, why);
}

/* Nobody can tell whose reply it was that made no sense, so it ends whatever waits for one. */
static void fail_all(struct gemmd_client *client, int r, struct reason *why)
{
    if (r < 0) {
        (void)reason_errno(why, r, "receiving a control reply");
    }
    exchange_fail_calls(client, why);
    queue_fail_all(&client->zeromq, why);
}

static bool drain(struct gemmd_client *client)
{
    if (client->exchange.sock.socket == NULL) {
        return false; /* the next one could not be made yet */
    }
    for (bool has_taken = false;; has_taken = true) {
        struct msg_reply reply = MSG_REPLY_NULL;
        struct reason why = REASON_NULL;
        int r = receive(&client->exchange.sock, &reply, &why);
        if (r == -ETIMEDOUT) {
            return has_taken;
        }
        if (r == 0) {
            hand_out(client, &reply);
            continue;
        }
        fail_all(client, r, &why);
        if (r < 0) {
            return true;
        }
    }
}

void exchange_drain(struct gemmd_client *client)
{
    if (drain(client) && client->zeromq.is_listening) {
        (void)!write(client->exchange.kick_fd, &(uint64_t){1}, sizeof(uint64_t));
    }
}

/* A look at the session first: to a daemon that is gone, the socket is merely not connected. There
 * is none where a reviver could not make the next one yet. */
int exchange_send(struct gemmd_client *client, const struct msg_request *request)
{
    CLEAN_FREE uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    if (!session_is_alive(client) || client->exchange.sock.socket == NULL) {
        return session_gone(client);
    }
    int r = codec_encode_request(request, &bytes, &n_bytes);
    if (r < 0) {
        return client_fail_errno(r, "encoding a control message");
    }
    r = sock_send_request(&client->exchange.sock, bytes, n_bytes, 0);
    exchange_drain(client);
    if (r < 0 && !session_is_alive(client)) {
        return session_gone(client);
    }
    if (r == -ETIMEDOUT) {
        return client_refuse(STATUS_BUSY,
                             "the control socket takes no message now: it is full or connecting");
    }
    return r < 0 ? client_fail_errno(r, "sending on the control socket") : 0;
}

void exchange_poll(const struct gemmd_client *client, uint64_t timeout_usec)
{
    struct timespec limit = {.tv_sec = (time_t)(timeout_usec / 1000000),
                             .tv_nsec = (long)(timeout_usec % 1000000) * 1000};
    struct pollfd fds[] = {
        {.fd = client->exchange.socket_fd, .events = POLLIN},
        {.fd = client->exchange.kick_fd, .events = POLLIN},
        {.fd = client->session_fd, .events = POLLRDHUP},
    };
    uint64_t n_kicks;
    (void)ppoll(fds, ARRAY_LENGTH(fds), &limit, NULL);
    (void)!read(client->exchange.kick_fd, &n_kicks, sizeof(n_kicks));
}
