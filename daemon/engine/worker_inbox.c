/* worker_inbox.c - what the main thread asks of the worker: both ends of the inbox.
 *
 * The table of sessions belongs to the main thread, a session's content to the worker; a session
 * leaves the table when it is detached and is freed by the worker when its last request has ended.
 */
#include "daemon/engine/worker_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "ipc/base/clock.h"
#include "ipc/base/error.h"

#include "daemon/engine/hash.h"

/* ---- main thread ---- */

static void wake_locked(struct worker *worker)
{
    atomic_store_explicit(&worker->has_news, true, memory_order_release);
    if (worker->is_asleep) {
        (void)eventfd_write(worker->inbox_fd, 1);
    }
}

static void post(struct worker *worker, struct command *command)
{
    (void)pthread_mutex_lock(&worker->inbox_mutex);
    list_append(&worker->inbox, &command->in_inbox);
    wake_locked(worker);
    (void)pthread_mutex_unlock(&worker->inbox_mutex);
}

void inbox_wake(struct worker *worker)
{
    (void)pthread_mutex_lock(&worker->inbox_mutex);
    wake_locked(worker);
    (void)pthread_mutex_unlock(&worker->inbox_mutex);
}

static struct list *bucket_of(struct worker *worker, uint64_t session_id)
{
    return &worker->sessions[hash_mix(session_id) % WORKER_SESSION_BUCKETS];
}

static struct worker_session *session_find(struct worker *worker, uint64_t session_id)
{
    list_for_each (node, bucket_of(worker, session_id)) {
        struct worker_session *session = LIST_OWNER(node, struct worker_session, in_table);
        if (session->session_id == session_id) {
            return session;
        }
    }
    return NULL;
}

/* The session of a client, made at its first sight; NULL when there is no memory for it. */
static struct worker_session *session_get(struct worker *worker, const struct worker_client *client)
{
    struct worker_session *session = session_find(worker, client->session_id);
    if (session != NULL) {
        return session;
    }
    session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return NULL;
    }
    session->session_id = client->session_id;
    session->buffers = client->buffers;
    session->lane = LANE_NULL;
    session->detach = (struct command){.kind = COMMAND_DETACH, .session = session};
    list_init(&session->in_lanes);
    list_init(&session->requests);
    list_append(bucket_of(worker, client->session_id), &session->in_table);
    return session;
}

static struct command *command_new(enum command_kind kind, struct worker_session *session)
{
    struct command *command = calloc(1, sizeof(*command));
    if (command != NULL) {
        command->kind = kind;
        command->session = session;
    }
    return command;
}

int worker_attach(struct worker *worker, const struct worker_client *client, struct lane *lane)
{
    struct worker_session *session = session_get(worker, client);
    if (session == NULL) {
        return err_raise(-ENOMEM);
    }
    GD_ASSERT(!session->is_attached);
    struct command *command = command_new(COMMAND_ATTACH, session);
    if (command == NULL) {
        return err_raise(-ENOMEM);
    }
    /* Edge-triggered: that a client leaves its doorbell readable, or steals what is in it, is all
     * the same to a worker that looks at every ring whenever it wakes up. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    if (epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, lane->doorbell_fd, &event) != 0) {
        free(command);
        return err_raise(-errno);
    }
    command->lane = *lane;
    *lane = LANE_NULL;
    session->is_attached = true;
    post(worker, command);
    return 0;
}

int worker_open_order(struct worker *worker, uint64_t session_id, const struct worker_words *words)
{
    struct worker_session *session = session_find(worker, session_id);
    GD_ASSERT(session != NULL && session->is_attached);
    struct command *command = command_new(COMMAND_ORDER, session);
    int r = command != NULL ? order_new(words, &command->order) : err_raise(-ENOMEM);
    if (r != 0) {
        free(command);
        return r;
    }
    post(worker, command);
    return 0;
}

void worker_detach(struct worker *worker, uint64_t session_id)
{
    struct worker_session *session =
        session_get(worker, &(struct worker_client){.session_id = session_id});
    /* Only a session that never sent anything is made here. Without it, the promise to call back
     * could not be kept, and what the session holds would never be given back. */
    GD_ASSERT(session != NULL);
    list_remove(&session->in_table);
    post(worker, &session->detach);
}

int worker_submit(struct worker *worker, const struct worker_client *client,
                  const struct request_desc *desc, struct reason *why)
{
    struct worker_session *session = session_get(worker, client);
    if (session == NULL) {
        return err_raise(-ENOMEM);
    }
    if (atomic_load(&session->n_zmq) >= worker->limits.session_requests_max) {
        return reason_set(why, STATUS_BUSY, "the session has %u requests in flight, its limit",
                          worker->limits.session_requests_max);
    }
    struct command *command = command_new(COMMAND_SUBMIT, session);
    if (command == NULL) {
        return err_raise(-ENOMEM);
    }
    command->desc = *desc;
    atomic_fetch_add(&session->n_zmq, 1);
    post(worker, command);
    return 0;
}

void worker_cancel(struct worker *worker, uint64_t session_id, uint64_t request_id)
{
    struct worker_session *session = session_find(worker, session_id);
    struct command *command = session == NULL ? NULL : command_new(COMMAND_CANCEL, session);
    if (command != NULL) {
        command->request_id = request_id;
        post(worker, command);
    }
}

void worker_ask(struct worker *worker)
{
    atomic_store(&worker->is_asked, true);
    inbox_wake(worker);
}

bool worker_has_answered(const struct worker *worker)
{
    return !atomic_load(&worker->is_asked);
}

void worker_drain(struct worker *worker)
{
    atomic_store(&worker->is_draining, true);
}

/* ---- worker thread ---- */

static void open_lane(struct worker *worker, struct worker_session *session,
                      const struct lane *lane)
{
    session->lane = *lane;
    session->is_lane_open = true;
    list_append(&worker->lanes, &session->in_lanes);
    stats_add(&worker->counters->n_lanes, 1);
}

static void detach_session(struct worker *worker, struct worker_session *session)
{
    lane_drop(worker, session);
    session->is_muted = true;
    session->n_requests++; /* keeps the session while its requests are dropped one by one */
    list_for_each_safe (node, &session->requests) {
        struct worker_request *request = LIST_OWNER(node, struct worker_request, in_session);
        if (order_drop(worker, request) || batch_drop_waiting(worker, request)) {
            request_refuse(worker, request, STATUS_CANCELLED, NULL);
        }
    }
    session->n_requests--;
    session_finish_if_done(worker, session);
}

static void submit(struct worker *worker, struct worker_session *session,
                   const struct request_desc *desc)
{
    if (!list_is_empty(&worker->free_requests)) {
        intake_accept(worker, session, desc, false, clock_now_nsec());
        return;
    }
    struct request_result result = {.request_id = desc->request_id, .status = STATUS_BUSY};
    (void)snprintf(result.text, sizeof(result.text),
                   "the worker has %u requests in flight, its limit", worker->limits.requests_max);
    atomic_fetch_sub(&session->n_zmq, 1);
    stats_add(&worker->counters->n_requests, 1);
    stats_add(&worker->counters->n_failed, 1);
    worker->callbacks.on_reply(worker->callbacks.arg, session->session_id, &result);
}

static void carry_out(struct worker *worker, struct command *command)
{
    switch (command->kind) {
    case COMMAND_ATTACH:
        open_lane(worker, command->session, &command->lane);
        break;
    case COMMAND_DETACH:
        detach_session(worker, command->session); /* the command was a part of it */
        return;
    case COMMAND_SUBMIT:
        submit(worker, command->session, &command->desc);
        break;
    case COMMAND_CANCEL:
        intake_cancel(worker, command->session, command->request_id);
        break;
    case COMMAND_ORDER:
        command->session->order = command->order;
        break;
    }
    free(command);
}

static struct command *take_one(struct worker *worker)
{
    (void)pthread_mutex_lock(&worker->inbox_mutex);
    struct list *node = list_pop(&worker->inbox);
    if (list_is_empty(&worker->inbox)) {
        atomic_store_explicit(&worker->has_news, false, memory_order_relaxed);
    }
    (void)pthread_mutex_unlock(&worker->inbox_mutex);
    return node == NULL ? NULL : LIST_OWNER(node, struct command, in_inbox);
}

bool inbox_take(struct worker *worker)
{
    if (!atomic_load_explicit(&worker->has_news, memory_order_acquire)) {
        return false;
    }
    atomic_store(&worker->is_asked, false);
    for (struct command *command; (command = take_one(worker)) != NULL;) {
        carry_out(worker, command);
    }
    return true;
}

bool inbox_sleep_begin(struct worker *worker)
{
    (void)pthread_mutex_lock(&worker->inbox_mutex);
    bool has_news = atomic_load_explicit(&worker->has_news, memory_order_relaxed);
    worker->is_asleep = !has_news;
    (void)pthread_mutex_unlock(&worker->inbox_mutex);
    return !has_news;
}

void inbox_sleep_end(struct worker *worker)
{
    (void)pthread_mutex_lock(&worker->inbox_mutex);
    worker->is_asleep = false;
    (void)pthread_mutex_unlock(&worker->inbox_mutex);
    eventfd_t n;
    (void)eventfd_read(worker->inbox_fd, &n);
}
