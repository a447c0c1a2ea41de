/* control.c - see control.h.
 *
 * A message is decoded, its sender looked up, its verb called, its reply sent; or remembered
 * replies are sent again. A reply that ZeroMQ has no room for waits in the session's outbox, and
 * behind it every later one, so that replies of a session stay in order. */
#include "daemon/server/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server/verbs.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"
#include "ipc/codec.h"
#include "ipc/frame.h"

#define LINES_A_SECOND 10u

int control_init(struct control *control, struct core *core, struct session_table *table)
{
    *control = (struct control){.core = core, .table = table, .sock = SOCK_NULL};
    control->payload = malloc(FRAME_REQUEST_BYTES_MAX);
    return control->payload != NULL ? 0 : err_raise(-ENOMEM);
}

int control_open(struct control *control, const char *path, mode_t mode, int fd)
{
    return fd >= 0 ? sock_adopt_router(&control->sock, path, fd)
                   : sock_bind_router(&control->sock, path, mode);
}

void control_finish(struct control *control)
{
    sock_finish(&control->sock);
    free(control->payload);
    control->payload = NULL;
}

/* ---- replies ---- */

static void hold(struct control *control, struct session *session, const struct frame_route *route,
                 const uint8_t *bytes, size_t n_bytes)
{
    bool was_empty = replies_first_unsent(&session->replies) == NULL;
    int r = replies_hold(&session->replies, route, bytes, n_bytes);
    if (r != 0) {
        control->on_overflow(control->arg, session,
                             r == -ENOBUFS ? "it does not read its replies"
                                           : "there is no memory to hold its replies");
        return;
    }
    control->core->counters.n_replies_held++;
    control->n_holding += was_empty;
}

/* session: NULL for a sender that is none. */
static void send_bytes(struct control *control, struct session *session,
                       const struct frame_route *route, const uint8_t *bytes, size_t n_bytes)
{
    if (session != NULL && replies_first_unsent(&session->replies) != NULL) {
        hold(control, session, route, bytes, n_bytes);
        return;
    }
    int r = frame_send(control->sock.socket, route, bytes, n_bytes);
    if (r == -EAGAIN && session != NULL) {
        hold(control, session, route, bytes, n_bytes);
        return;
    }
    control->core->counters.n_replies_lost += r != 0;
}

static bool is_worth_remembering(const struct verb *verb, int status)
{
    return verb->is_mutating && status != STATUS_BUSY && status != STATUS_SHUTTING_DOWN &&
           status != STATUS_NO_MEMORY;
}

/* Encode; a reply over the frame limit becomes one that says so. */
static int encode(const struct msg_reply *reply, uint8_t **ret_bytes, size_t *ret_n_bytes)
{
    int r = codec_encode_reply(reply, ret_bytes, ret_n_bytes);
    if (r != -EMSGSIZE) {
        return r;
    }
    struct msg_reply small = {.request_id = reply->request_id, .status = STATUS_UNSUPPORTED};
    (void)snprintf(small.text, sizeof(small.text),
                   "the reply is over %u bytes; ask for less at a time", FRAME_REPLY_BYTES_MAX);
    return codec_encode_reply(&small, ret_bytes, ret_n_bytes);
}

/* session and verb: NULL for senders and messages that are none. */
static void send_reply(struct control *control, struct session *session, const struct verb *verb,
                       const struct frame_route *route, const struct msg_reply *reply)
{
    CLEAN_FREE uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    control->core->counters.n_refused += reply->status != 0;
    if (encode(reply, &bytes, &n_bytes) != 0) {
        control->core->counters.n_replies_lost++;
        return;
    }
    if (session != NULL && verb != NULL && is_worth_remembering(verb, reply->status)) {
        replies_remember(&session->replies, verb->verb, reply->request_id, bytes, n_bytes);
    }
    send_bytes(control, session, route, bytes, n_bytes);
}

static void send_refusal(struct control *control, struct session *session,
                         const struct frame_route *route, uint64_t request_id,
                         const struct reason *why)
{
    struct msg_reply reply = {.request_id = request_id, .status = why->status};
    memcpy(reply.text, why->text, sizeof(reply.text));
    if (log_allows(&control->rate, LINES_A_SECOND, clock_now_nsec())) {
        log_write(LOG_LEVEL_WARNING, "control", "a message is refused: %s", why->text);
    }
    send_reply(control, session, NULL, route, &reply);
}

void control_on_reply(struct control *control, uint64_t session_id,
                      const struct request_result *result)
{
    struct session *session = session_table_by_id(control->table, session_id);
    if (session == NULL || session->state != SESSION_LIVE) {
        control->core->counters.n_replies_lost++;
        return;
    }
    CLEAN_FREE struct pending *pending =
        replies_take_pending(&session->replies, result->request_id);
    if (pending == NULL) {
        control->core->counters.n_replies_lost++;
        return;
    }
    struct msg_reply reply = {
        .request_id = pending->message_id,
        .status = (int)result->status,
        .body = MSG_BODY_SUBMITTED,
        .submitted = *result,
    };
    memcpy(reply.text, result->text, sizeof(reply.text));
    send_reply(control, session, verb_find(MSG_VERB_SUBMIT), &pending->route, &reply);
}

/* ---- messages ---- */

static struct session *find_sender(const struct control *control, const struct frame_route *route)
{
    if (route->n_routes == 0) {
        return NULL;
    }
    size_t n_bytes;
    const uint8_t *token = frame_sender(route, &n_bytes);
    return session_table_by_token(control->table, token, n_bytes);
}

static void call_verb(struct control *control, struct session *session,
                      const struct frame_route *route, const struct msg_request *request)
{
    const struct verb *verb = verb_find(request->verb);
    if (verb == NULL) {
        struct reason why = REASON_NULL;
        (void)reason_set(&why, STATUS_BAD_MESSAGE, "the message has no verb");
        control->core->counters.n_bad_messages++;
        send_refusal(control, session, route, request->request_id, &why);
        return;
    }
    const struct remembered *told =
        verb->is_mutating ? replies_recall(&session->replies, verb->verb, request->request_id)
                          : NULL;
    if (told != NULL) {
        send_bytes(control, session, route, told->bytes, told->n_bytes);
        return;
    }
    struct msg_reply reply = {.request_id = request->request_id};
    struct call call = {.core = control->core,
                        .table = control->table,
                        .session = session,
                        .route = route,
                        .request = request,
                        .reply = &reply};
    verb_call(verb, &call);
    if (!call.is_deferred) {
        send_reply(control, session, verb, route, &reply);
    }
    msg_reply_finish(&reply);
}

static void serve(struct control *control, const struct frame_route *route, size_t n_bytes)
{
    struct msg_request request = {0};
    struct reason why = REASON_NULL;
    struct session *session = find_sender(control, route);
    int r = codec_decode_request(control->payload, n_bytes, &request, &why);
    if (session == NULL) {
        control->core->counters.n_unknown_senders++;
        (void)reason_set(&why, STATUS_NO_SESSION, "the sender is not the token of a live session");
        send_refusal(control, NULL, route, request.request_id, &why);
        return;
    }
    if (r != 0) {
        control->core->counters.n_bad_messages++;
        if (r < 0) {
            (void)reason_errno(&why, r, "session %ju", (uintmax_t)session->id);
        }
        send_refusal(control, session, route, request.request_id, &why);
        return;
    }
    call_verb(control, session, route, &request);
}

/* The socket's own failures: nobody's message, so nobody can be answered. */
static void tell_trouble(struct control *control, int r)
{
    if (r != -EAGAIN && log_allows(&control->rate, LINES_A_SECOND, clock_now_nsec())) {
        log_write(LOG_LEVEL_ERROR, "control", "receiving a message: %s", strerror(-r));
    }
}

bool control_pump(struct control *control, uint32_t n_max, uint64_t usec_max)
{
    struct frame_route route;
    uint64_t end_nsec = clock_now_nsec() + usec_max * CLOCK_NSEC_PER_USEC;
    for (uint32_t i = 0; i < n_max && (i == 0 || clock_now_nsec() < end_nsec); i++) {
        if (control->sock.socket == NULL || !sock_can_receive(&control->sock)) {
            return false;
        }
        size_t n_bytes = 0;
        struct reason why = REASON_NULL;
        int r = frame_receive(control->sock.socket, &route, control->payload, &n_bytes, &why);
        if (r < 0) {
            tell_trouble(control, r);
            return r != -EAGAIN;
        }
        control->core->counters.n_messages++;
        if (r == 0) {
            serve(control, &route, n_bytes);
            continue;
        }
        control->core->counters.n_bad_framing++;
        if (route.n_routes != 0) {
            send_refusal(control, find_sender(control, &route), &route, 0, &why);
        }
    }
    return true;
}

/* ---- outboxes ---- */

static void flush_session(struct control *control, struct session *session)
{
    struct unsent *unsent;
    while ((unsent = replies_first_unsent(&session->replies)) != NULL) {
        int r = frame_send(control->sock.socket, &unsent->route, unsent->bytes, unsent->n_bytes);
        if (r == -EAGAIN) {
            control->n_holding++;
            return;
        }
        control->core->counters.n_replies_lost += r != 0;
        replies_drop_unsent(&session->replies, unsent);
    }
}

void control_flush(struct control *control)
{
    control->n_holding = 0;
    list_for_each (node, &control->table->all) {
        struct session *session = LIST_OWNER(node, struct session, in_all);
        if (session->state == SESSION_LIVE) {
            flush_session(control, session);
        }
    }
}

bool control_is_quiet(const struct control *control)
{
    list_for_each (node, &control->table->all) {
        const struct session *session = LIST_OWNER(node, struct session, in_all);
        bool owes = session->replies.n_pending != 0 || session->replies.n_unsent != 0;
        if (session->state == SESSION_LIVE && owes) {
            return false;
        }
    }
    return true;
}
