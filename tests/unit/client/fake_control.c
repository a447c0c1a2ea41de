/* fake_control.c - the fake daemon's requests, on rings and on the control socket, and its verbs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/codec.h"
#include "ipc/side.h"
#include "tests/unit/client/fake_daemon_internal.h"

/* ---- requests ---- */

static const float *place(const struct fake_session *session, uint64_t buffer_id, uint64_t offset)
{
    const struct region *region = &session->buffers[buffer_id % BUFFERS_MAX];
    return region->base ? (const float *)(const void *)((const char *)region->base + offset) : NULL;
}

/* An element of x, times its row's scale if x comes with scales. */
static float value_of(const struct fake_session *session, const struct request_desc *desc,
                      uint64_t row, uint64_t i)
{
    const float *x = place(session, desc->x_buffer_id, desc->x_offset_bytes);
    uint64_t at = row * desc->x_stride_elems + i;
    if (desc->x_dtype != DTYPE_I8) {
        return x[at];
    }
    const float *scales = place(session, desc->x_scale_buffer_id, desc->x_scale_offset_bytes);
    return (float)((const int8_t *)x)[at] * scales[row * desc->x_scale_stride_elems];
}

static void multiply(const struct fake_session *session, const struct request_desc *desc)
{
    const float *x = place(session, desc->x_buffer_id, desc->x_offset_bytes);
    float *y = (float *)(uintptr_t)place(session, desc->y_buffer_id, desc->y_offset_bytes);
    for (uint64_t row = 0; row < desc->m && x && y; row++) {
        for (uint64_t i = 0; i < FAKE_N; i++) {
            y[row * desc->y_stride_elems + i] = 2 * value_of(session, desc, row, i);
        }
    }
}

static void send_reply(struct fake_daemon *fake, const struct frame_route *route,
                       struct msg_reply *reply)
{
    CLEAN_FREE uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    if (fake_has(fake, FAKE_WRONG_STATUS)) {
        reply->status = -5;
    }
    if (fake_has(fake, FAKE_SAYS_GONE)) {
        reply->status = STATUS_DISCONNECTED;
    }
    if (fake_has(fake, FAKE_WRONG_BODY)) {
        uint64_t request_id = reply->request_id;
        msg_reply_finish(reply);
        *reply = (struct msg_reply){.request_id = request_id, .body = MSG_BODY_PONG};
        (void)snprintf(reply->version, sizeof(reply->version), "9");
    }
    fake_be_late(fake, FAKE_LATE_REPLY);
    if (codec_encode_reply(reply, &bytes, &n_bytes) == 0 && !fake_has(fake, FAKE_NO_REPLY)) {
        memset(bytes, 0xff, fake_has(fake, FAKE_GARBAGE_REPLY) ? n_bytes : 0);
        (void)!frame_send(fake->router.socket, route, bytes, n_bytes);
    }
    msg_reply_finish(reply);
}

static void answer(struct fake_daemon *fake, const struct held *held, int status, const char *text)
{
    struct request_result result = {.request_id = held->desc.request_id,
                                    .status = (uint32_t)status,
                                    .batch_rows = held->desc.m,
                                    .batch_requests = 1,
                                    .batch_sessions = 1,
                                    .accumulation =
                                        (held->desc.flags & REQUEST_FLAG_FAST_ACCUMULATION) != 0
                                            ? REQUEST_ACCUMULATION_FAST
                                            : REQUEST_ACCUMULATION_PROMOTED,
                                    .run_nsec = 1000};
    (void)snprintf(result.text, sizeof(result.text), "%s", text);
    if (held->is_by_message) {
        struct msg_reply reply = {.request_id = result.request_id,
                                  .status = status,
                                  .body = MSG_BODY_SUBMITTED,
                                  .submitted = result};
        (void)snprintf(reply.text, sizeof(reply.text), "%s", text);
        send_reply(fake, &held->route, &reply);
        return;
    }
    struct lane *lane = &held->session->lane;
    if (fake_has(fake, FAKE_FOREIGN_RESULT)) {
        struct request_result foreign = result;
        foreign.request_id = ~result.request_id;
        (void)!lane_complete(lane, &foreign);
    }
    if (fake_has(fake, FAKE_CORRUPT_RING)) {
        atomic_store(&lane->shared->complete_tail, 0x7fffffff);
        return;
    }
    (void)!lane_complete(lane, &result);
}

static void serve(struct fake_daemon *fake, const struct held *held)
{
    if (fake_has(fake, FAKE_REFUSE_REQUEST)) {
        answer(fake, held, STATUS_INVALID_ARGUMENT, FAKE_SENTENCE);
        return;
    }
    multiply(held->session, &held->desc);
    answer(fake, held, STATUS_OK, "");
}

static void take_request(struct fake_daemon *fake, const struct held *held)
{
    if (fake_has(fake, FAKE_HOLD) && fake->n_held < HELD_MAX) {
        fake->held[fake->n_held++] = *held;
        return;
    }
    serve(fake, held);
}

static bool cancel(struct fake_daemon *fake, const struct fake_session *session, uint64_t id)
{
    for (uint32_t i = 0; i < fake->n_held; i++) {
        struct held held = fake->held[i];
        if (held.session == session && held.desc.request_id == id) {
            fake->held[i] = fake->held[--fake->n_held];
            answer(fake, &held, STATUS_CANCELLED, "");
            return true;
        }
    }
    return false;
}

void fake_release_held(struct fake_daemon *fake)
{
    for (uint32_t i = 0; i < fake->n_held && !fake_has(fake, FAKE_HOLD); i++) {
        serve(fake, &fake->held[i]);
    }
    fake->n_held = fake_has(fake, FAKE_HOLD) ? fake->n_held : 0;
}

void fake_look_at_lane(struct fake_daemon *fake, struct fake_session *session)
{
    struct held held = {.session = session};
    if (!session->lane.shared || fake_has(fake, FAKE_NO_READING)) {
        return;
    }
    while (ring_pop(&session->lane.submit, &held.desc) == RING_OK) {
        if (held.desc.op == REQUEST_OP_CANCEL) {
            (void)cancel(fake, session, held.desc.request_id);
        } else {
            take_request(fake, &held);
        }
    }
}

/* ---- verbs ---- */

static struct msg_weight make_weight(const char *name)
{
    struct msg_weight weight = {.weight_id = 7,
                                .n = FAKE_N,
                                .k = FAKE_K,
                                .act_dtype = DTYPE_F32,
                                .generation = 1,
                                .act = MSG_ACT_INT8_TOKEN};
    (void)snprintf(weight.name, sizeof(weight.name), "%s", name);
    (void)snprintf(weight.format, sizeof(weight.format), "f32");
    return weight;
}

static void put_weights(struct msg_reply *reply, const char *first, const char *second)
{
    reply->weights.items = calloc(2, sizeof(*reply->weights.items));
    reply->weights.n = second ? 2 : 1;
    reply->body = MSG_BODY_WEIGHTS;
    reply->weights.items[0] = make_weight(first);
    if (second) {
        reply->weights.items[1] = make_weight(second);
    }
}

static void refuse(struct msg_reply *reply, const char *text)
{
    reply->status = STATUS_NOT_FOUND;
    (void)snprintf(reply->text, sizeof(reply->text), "%s", text);
}

/* A job runs when it is started, and is over when it is asked for. */
static void put_job(const struct fake_daemon *fake, struct msg_reply *reply, bool is_over)
{
    is_over = is_over && !fake_has(fake, FAKE_HOLD);
    struct msg_job *job = &reply->job;
    bool is_bad = is_over && fake_has(fake, FAKE_REFUSE_REQUEST);
    const char *state = is_bad ? "failed" : "done";
    reply->body = MSG_BODY_JOB;
    job->job_id = 5;
    (void)snprintf(job->kind, sizeof(job->kind), "load");
    (void)snprintf(job->state, sizeof(job->state), "%s", is_over ? state : "running");
    job->status = is_bad ? STATUS_INVALID_ARGUMENT : STATUS_OK;
    (void)snprintf(job->text, sizeof(job->text), "%s", is_bad ? FAKE_SENTENCE : "36 weights");
}

static void do_verb(struct fake_daemon *fake, struct fake_session *session,
                    const struct msg_request *request, const struct frame_route *route)
{
    struct msg_reply reply = {.request_id = request->request_id};
    struct held held = {.session = session, .is_by_message = true, .route = *route};
    switch (request->verb) {
    case MSG_VERB_WEIGHT_FIND:
        if (strcmp(request->name, "m/missing") == 0) {
            refuse(&reply, "no weight is called 'm/missing'");
            break;
        }
        put_weights(&reply, request->name, NULL);
        break;
    case MSG_VERB_WEIGHT_LIST:
        put_weights(&reply, "m/b", "m/a");
        break;
    case MSG_VERB_SUBMIT:
        held.desc = request->submit;
        take_request(fake, &held);
        return;
    case MSG_VERB_CANCEL:
        if (!cancel(fake, session, request->cancel_request_id)) {
            refuse(&reply, "no such request");
        }
        break;
    case MSG_VERB_LOAD:
    case MSG_VERB_RELOAD:
    case MSG_VERB_VERIFY:
        put_job(fake, &reply, false);
        break;
    case MSG_VERB_JOB_STATUS:
        put_job(fake, &reply, true);
        break;
    case MSG_VERB_JOB_CANCEL: /* it ends, and as one that failed */
        atomic_store(&fake->quirks, FAKE_REFUSE_REQUEST);
        put_job(fake, &reply, true);
        break;
    default:
        reply.body = MSG_BODY_PONG;
        break;
    }
    send_reply(fake, route, &reply);
}

void fake_look_at_router(struct fake_daemon *fake)
{
    static uint8_t payload[FRAME_REQUEST_BYTES_MAX];
    struct frame_route route;
    size_t n_bytes = 0;
    struct reason why;
    while (frame_receive(fake->router.socket, &route, payload, &n_bytes, &why) == 0) {
        size_t n_token = 0;
        const uint8_t *token = frame_sender(&route, &n_token);
        struct msg_request request;
        uint32_t i_session =
            n_token == SIDE_TOKEN_BYTES ? (uint32_t)(token[0] - 'a') : SESSIONS_MAX;
        if (i_session < SESSIONS_MAX &&
            codec_decode_request(payload, n_bytes, &request, &why) == 0) {
            do_verb(fake, &fake->sessions[i_session], &request, &route);
        }
    }
}
