/* fake_daemon.c - see fake_daemon.h. One thread looks at everything once a millisecond: slow, and
 * simple enough to be believed. */
#include "tests/unit/client/fake_daemon.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/num.h"
#include "ipc/codec.h"
#include "ipc/frame.h"
#include "ipc/lane.h"
#include "ipc/shm.h"
#include "ipc/side.h"
#include "ipc/sock.h"

#define SESSIONS_MAX 8u
#define BUFFERS_MAX  64u
#define HELD_MAX     256u

struct fake_session {
    int fd; /* -1: free */
    struct lane lane;
    struct region buffers[BUFFERS_MAX];
};

struct held {
    struct fake_session *session;
    bool is_by_message;
    struct frame_route route;
    struct request_desc desc;
};

struct fake_daemon {
    char dir[64];
    _Atomic uint32_t quirks;
    _Atomic bool is_stopping;
    pthread_t thread;
    bool is_running;
    int listen_fd;
    struct sock router;
    struct fake_session sessions[SESSIONS_MAX];
    struct held held[HELD_MAX];
    uint32_t n_held;
};

static bool has(const struct fake_daemon *fake, uint32_t quirk)
{
    return (atomic_load(&fake->quirks) & quirk) != 0;
}

static void be_late_once(struct fake_daemon *fake, uint32_t quirk)
{
    if (has(fake, quirk)) {
        (void)atomic_fetch_and(&fake->quirks, ~quirk);
        (void)nanosleep(&(struct timespec){.tv_nsec = FAKE_LATE_MSEC * 1000000L}, NULL);
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

static const float *place(const struct fake_session *session, uint64_t buffer_id, uint64_t offset)
{
    const struct region *region = &session->buffers[buffer_id % BUFFERS_MAX];
    return region->base ? (const float *)(const void *)((const char *)region->base + offset) : NULL;
}

static void multiply(const struct fake_session *session, const struct request_desc *desc)
{
    const float *x = place(session, desc->x_buffer_id, desc->x_offset_bytes);
    float *y = (float *)(uintptr_t)place(session, desc->y_buffer_id, desc->y_offset_bytes);
    for (uint64_t row = 0; row < desc->m && x && y; row++) {
        for (uint64_t i = 0; i < FAKE_N; i++) {
            y[row * desc->y_stride_elems + i] = 2 * x[row * desc->x_stride_elems + i];
        }
    }
}

static void send_reply(struct fake_daemon *fake, const struct frame_route *route,
                       struct msg_reply *reply)
{
    CLEAN_FREE uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    if (has(fake, FAKE_WRONG_STATUS)) {
        reply->status = -5;
    }
    if (has(fake, FAKE_WRONG_BODY)) {
        uint64_t request_id = reply->request_id;
        msg_reply_finish(reply);
        *reply = (struct msg_reply){.request_id = request_id, .body = MSG_BODY_PONG};
        (void)snprintf(reply->version, sizeof(reply->version), "9");
    }
    be_late_once(fake, FAKE_LATE_REPLY);
    if (codec_encode_reply(reply, &bytes, &n_bytes) == 0 && !has(fake, FAKE_NO_REPLY)) {
        memset(bytes, 0xff, has(fake, FAKE_GARBAGE_REPLY) ? n_bytes : 0);
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
    if (has(fake, FAKE_FOREIGN_RESULT)) {
        struct request_result foreign = result;
        foreign.request_id = ~result.request_id;
        (void)!lane_complete(lane, &foreign);
    }
    if (has(fake, FAKE_CORRUPT_RING)) {
        atomic_store(&lane->shared->complete_tail, 0x7fffffff);
        return;
    }
    (void)!lane_complete(lane, &result);
}

static void serve(struct fake_daemon *fake, const struct held *held)
{
    if (has(fake, FAKE_REFUSE_REQUEST)) {
        answer(fake, held, STATUS_INVALID_ARGUMENT, FAKE_SENTENCE);
        return;
    }
    multiply(held->session, &held->desc);
    answer(fake, held, STATUS_OK, "");
}

static void take_request(struct fake_daemon *fake, const struct held *held)
{
    if (has(fake, FAKE_HOLD) && fake->n_held < HELD_MAX) {
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

static void release_held(struct fake_daemon *fake)
{
    for (uint32_t i = 0; i < fake->n_held && !has(fake, FAKE_HOLD); i++) {
        serve(fake, &fake->held[i]);
    }
    fake->n_held = has(fake, FAKE_HOLD) ? fake->n_held : 0;
}

static void look_at_lane(struct fake_daemon *fake, struct fake_session *session)
{
    struct held held = {.session = session};
    if (!session->lane.shared || has(fake, FAKE_NO_READING)) {
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

/* ---- control -------------------------------------------------------------------------------- */

static struct msg_weight make_weight(const char *name)
{
    struct msg_weight weight = {
        .weight_id = 7, .n = FAKE_N, .k = FAKE_K, .act_dtype = DTYPE_F32, .generation = 1};
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
    is_over = is_over && !has(fake, FAKE_HOLD);
    struct msg_job *job = &reply->job;
    bool is_bad = is_over && has(fake, FAKE_REFUSE_REQUEST);
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

static void look_at_router(struct fake_daemon *fake)
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

/* ---- session socket ------------------------------------------------------------------------- */

static void end_session(struct fake_daemon *fake, struct fake_session *session)
{
    for (uint32_t i = 0; i < fake->n_held;) {
        if (fake->held[i].session == session) {
            fake->held[i] = fake->held[--fake->n_held];
        } else {
            i++;
        }
    }
    cleanup_fd(&session->fd);
    session->fd = -1;
    lane_finish(&session->lane);
    for (uint32_t i = 0; i < BUFFERS_MAX; i++) {
        region_finish(&session->buffers[i]);
    }
}

static uint32_t free_buffer(const struct fake_session *session)
{
    uint32_t i = 1; /* 0 is no buffer */
    while (i < BUFFERS_MAX - 1 && session->buffers[i].base) {
        i++;
    }
    return i;
}

static uint32_t make_buffer(struct fake_daemon *fake, struct fake_session *session,
                            struct side_packet *question, union side_message *reply, int *fds)
{
    uint32_t i = free_buffer(session);
    struct region *region = &session->buffers[i];
    uint64_t n_bytes = question->message.alloc_buffer.size_bytes;
    reply->buffer.buffer_id = i;
    reply->buffer.size_bytes = n_bytes;
    if (question->message.header.type == SIDE_IMPORT_BUFFER) {
        struct reason why;
        (void)!region_import(region, steal_fd(&question->fds[0]), n_bytes, &why);
        return 0;
    }
    (void)!region_create(region, "fake", has(fake, FAKE_SMALL_REGION) ? 1 : n_bytes);
    fds[0] = region->fd;
    return has(fake, FAKE_NO_FDS) ? 0 : 1;
}

static uint32_t make_lane(struct fake_daemon *fake, struct fake_session *session,
                          union side_message *reply, int *fds)
{
    if (!session->lane.shared) {
        (void)!lane_create(&session->lane, FAKE_LANE_ENTRIES, 0);
    }
    reply->lane.n_entries = FAKE_LANE_ENTRIES;
    fds[0] = session->lane.region.fd;
    fds[1] = session->lane.doorbell_fd;
    return has(fake, FAKE_NO_FDS) ? 0 : 2;
}

static void welcome(struct fake_daemon *fake, const struct fake_session *session,
                    union side_message *reply)
{
    reply->welcome.version = has(fake, FAKE_WRONG_VERSION) ? 99 : SIDE_VERSION_MAX;
    reply->welcome.n_devices = 1;
    reply->welcome.rows_max = FAKE_ROWS_MAX;
    reply->welcome.in_flight_max = FAKE_LANE_ENTRIES;
    memset(reply->welcome.token, (int)('a' + (session - fake->sessions)), SIDE_TOKEN_BYTES);
}

static enum side_type answer_type(const struct fake_daemon *fake, uint16_t question)
{
    if (has(fake, FAKE_REFUSE | FAKE_REFUSE_WITH_OK)) {
        return SIDE_REFUSED;
    }
    if (question == SIDE_HELLO || has(fake, FAKE_WRONG_TYPE)) {
        return SIDE_WELCOME;
    }
    return question == SIDE_OPEN_LANE ? SIDE_LANE : SIDE_BUFFER;
}

static void answer_side(struct fake_daemon *fake, struct fake_session *session,
                        struct side_packet *question)
{
    union side_message reply;
    int fds[SIDE_FDS_MAX];
    uint32_t n_fds = 0;
    uint16_t asked = question->message.header.type;
    side_init(&reply, answer_type(fake, asked), question->message.header.sequence);
    switch (reply.header.type) {
    case SIDE_REFUSED:
        reply.refused.status = has(fake, FAKE_REFUSE) ? STATUS_QUOTA : STATUS_OK;
        (void)snprintf(reply.refused.text, sizeof(reply.refused.text), "3 of 3 are in use");
        break;
    case SIDE_WELCOME:
        welcome(fake, session, &reply);
        break;
    case SIDE_LANE:
        n_fds = make_lane(fake, session, &reply, fds);
        break;
    default:
        if (asked == SIDE_RELEASE_BUFFER) {
            region_finish(&session->buffers[question->message.release_buffer.buffer_id % 64]);
        } else {
            n_fds = make_buffer(fake, session, question, &reply, fds);
        }
    }
    be_late_once(fake, FAKE_LATE_ANSWER);
    (void)!side_send(session->fd, &reply, fds, n_fds);
}

static void look_at_session(struct fake_daemon *fake, struct fake_session *session)
{
    struct side_packet packet;
    struct reason why;
    int r = 1;
    while (session->fd >= 0 && (r = side_receive(session->fd, &packet, &why)) == 1) {
        if (has(fake, FAKE_HANG_UP)) {
            end_session(fake, session);
        } else {
            answer_side(fake, session, &packet);
        }
        side_packet_finish(&packet);
    }
    if (r == 0) {
        end_session(fake, session);
    }
}

static void look_for_sessions(struct fake_daemon *fake)
{
    int fd;
    while ((fd = side_accept(fake->listen_fd)) >= 0) {
        uint32_t i = 0;
        while (i < SESSIONS_MAX - 1 && fake->sessions[i].fd >= 0) {
            i++;
        }
        fake->sessions[i].fd = fd;
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

static void close_all(struct fake_daemon *fake)
{
    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        end_session(fake, &fake->sessions[i]);
    }
    cleanup_fd(&fake->listen_fd);
    fake->listen_fd = -1;
    sock_finish(&fake->router);
}

static void *run(void *argument)
{
    struct fake_daemon *fake = argument;
    while (!atomic_load(&fake->is_stopping)) {
        look_for_sessions(fake);
        for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
            if (fake->sessions[i].fd >= 0) {
                look_at_session(fake, &fake->sessions[i]);
                look_at_lane(fake, &fake->sessions[i]);
            }
        }
        look_at_router(fake);
        release_held(fake);
        (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    close_all(fake);
    return NULL;
}

struct fake_daemon *fake_new(void)
{
    struct fake_daemon *fake = calloc(1, sizeof(*fake));
    char path[128];
    GD_ASSERT(fake);
    fake->router = SOCK_NULL;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        fake->sessions[i].fd = -1;
        fake->sessions[i].lane = LANE_NULL;
        for (uint32_t j = 0; j < BUFFERS_MAX; j++) {
            fake->sessions[i].buffers[j] = REGION_NULL;
        }
    }
    (void)snprintf(fake->dir, sizeof(fake->dir), "/tmp/gemmd-fake-XXXXXX");
    GD_ASSERT(mkdtemp(fake->dir));
    (void)snprintf(path, sizeof(path), "%s/%s", fake->dir, SIDE_SOCKET_NAME);
    fake->listen_fd = side_listen(path, 0600);
    GD_ASSERT(fake->listen_fd >= 0);
    (void)snprintf(path, sizeof(path), "%s/%s", fake->dir, SIDE_CONTROL_NAME);
    GD_ASSERT(sock_bind_router(&fake->router, path, 0600) == 0);
    GD_ASSERT(pthread_create(&fake->thread, NULL, run, fake) == 0);
    fake->is_running = true;
    return fake;
}

void fake_die(struct fake_daemon *fake)
{
    if (fake->is_running) {
        atomic_store(&fake->is_stopping, true);
        (void)pthread_join(fake->thread, NULL);
        fake->is_running = false;
    }
}

struct fake_daemon *fake_free(struct fake_daemon *fake)
{
    if (!fake) {
        return NULL;
    }
    char path[128];
    fake_die(fake);
    (void)snprintf(path, sizeof(path), "%s/%s", fake->dir, SIDE_SOCKET_NAME);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/%s", fake->dir, SIDE_CONTROL_NAME);
    (void)unlink(path);
    (void)rmdir(fake->dir);
    free(fake);
    return NULL;
}

void fake_set(struct fake_daemon *fake, uint32_t quirks)
{
    atomic_store(&fake->quirks, quirks);
}

const char *fake_dir(const struct fake_daemon *fake)
{
    return fake->dir;
}
