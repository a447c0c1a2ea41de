/* worker_finish.c - the pool of requests, and the one way in which each of them ends. */
#include "daemon/engine/worker_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "ipc/base/log.h"

#include "daemon/engine/hash.h"

/* ---- the pool ---- */

/* Clients choose request ids: without the secret one could make them all meet in one bucket. */
static struct list *bucket_of(struct worker *worker, const struct worker_session *session,
                              uint64_t request_id)
{
    uint64_t hash = hash_mix(request_id ^ hash_mix(session->session_id ^ worker->hash_secret));
    return &worker->request_buckets[hash & (worker->n_request_buckets - 1)];
}

struct worker_request *request_new(struct worker *worker, struct worker_session *session,
                                   uint64_t request_id, bool is_from_lane, uint64_t now_nsec)
{
    struct list *node = list_pop(&worker->free_requests);
    if (node == NULL) {
        return NULL;
    }
    struct worker_request *request = LIST_OWNER(node, struct worker_request, in_session);
    *request = (struct worker_request){
        .session = session,
        .request_id = request_id,
        .is_from_lane = is_from_lane,
        .seen_nsec = now_nsec,
    };
    list_init(&request->in_order);
    list_append(&session->requests, &request->in_session);
    list_append(bucket_of(worker, session, request_id), &request->in_bucket);
    session->n_requests++;
    session->n_lane_requests += is_from_lane;
    worker->n_requests++;
    stats_add(&worker->counters->n_requests, 1);
    stats_add(&worker->counters->n_in_flight, 1);
    return request;
}

struct worker_request *request_find(struct worker *worker, const struct worker_session *session,
                                    uint64_t request_id)
{
    list_for_each (node, bucket_of(worker, session, request_id)) {
        struct worker_request *request = LIST_OWNER(node, struct worker_request, in_bucket);
        if (request->session == session && request->request_id == request_id) {
            return request;
        }
    }
    return NULL;
}

/* Back to the pool, to its front: the next request finds it in the cache. */
static void request_release(struct worker *worker, struct worker_request *request)
{
    struct worker_session *session = request->session;
    checked_finish(&request->checked);
    list_remove(&request->in_session);
    list_remove(&request->in_bucket);
    list_insert_before(worker->free_requests.next, &request->in_session);
    session->n_requests--;
    session->n_lane_requests -= request->is_from_lane;
    worker->n_requests--;
    stats_add(&worker->counters->n_in_flight, UINT64_MAX);
}

/* ---- the end of a request ---- */

static _Atomic uint64_t *counter_of(struct stats_worker *counters, int status)
{
    switch (status) {
    case STATUS_OK:
        return &counters->n_ok;
    case STATUS_CANCELLED:
        return &counters->n_cancelled;
    case STATUS_TIMEOUT:
        return &counters->n_timed_out;
    default:
        break;
    }
    enum status_category category = status_category(status);
    bool is_refusal = category == STATUS_CATEGORY_USAGE || category == STATUS_CATEGORY_UNSUPPORTED;
    return is_refusal ? &counters->n_refused : &counters->n_failed;
}

static void count_end(struct worker *worker, const struct worker_request *request,
                      const struct outcome *outcome)
{
    struct stats_worker *counters = worker->counters;
    stats_add(counter_of(counters, outcome->status), 1);
    if (outcome->status != STATUS_OK) {
        return;
    }
    uint64_t end_nsec = outcome->end_nsec != 0 ? outcome->end_nsec : request->seen_nsec;
    if (request->start_nsec != 0) {
        stats_add(&counters->n_rows, request->checked.m);
        stats_count_time(&counters->queue, request->start_nsec - request->seen_nsec);
        stats_count_time(&counters->request, end_nsec - request->seen_nsec);
    }
    stats_set(&counters->last_ok_nsec, end_nsec);
    weight_count(request->checked.weight, request->checked.m);
}

static struct request_result result_of(const struct worker_request *request,
                                       const struct outcome *outcome)
{
    struct request_result result = {
        .request_id = request->request_id,
        .status = (uint32_t)outcome->status,
        .batch_rows = outcome->batch_rows,
        .batch_requests = outcome->batch_requests,
        .batch_sessions = outcome->batch_sessions,
        .accumulation = outcome->accumulation,
    };
    if (request->start_nsec != 0 && outcome->end_nsec != 0) {
        result.queue_nsec = request->start_nsec - request->seen_nsec;
        result.run_nsec = outcome->end_nsec - request->start_nsec;
    }
    if (outcome->text != NULL) {
        (void)snprintf(result.text, sizeof(result.text), "%s", outcome->text);
    }
    return result;
}

static void deliver(struct worker *worker, struct worker_session *session, bool is_from_lane,
                    const struct request_result *result)
{
    if (!is_from_lane) {
        atomic_fetch_sub(&session->n_zmq, 1);
        if (!session->is_muted) {
            worker->callbacks.on_reply(worker->callbacks.arg, session->session_id, result);
        }
        return;
    }
    /* The entry was free when the request was taken: a full ring is a peer that scribbled too. */
    if (session->is_lane_open && lane_complete(&session->lane, result) != RING_OK) {
        lane_mark_corrupt(worker, session);
    }
}

void request_finish(struct worker *worker, struct worker_request *request,
                    const struct outcome *outcome)
{
    struct worker_session *session = request->session;
    bool is_from_lane = request->is_from_lane;
    bool is_ordered = request->is_ordered;
    uint32_t entry = request->order_entry, value = request->order_value;
    struct request_result result = result_of(request, outcome);
    count_end(worker, request, outcome);
    request_release(worker, request);
    deliver(worker, session, is_from_lane, &result);
    if (is_ordered) { /* whom the word wakes finds the completion */
        order_end(session->order, entry, value);
    }
    session_finish_if_done(worker, session);
}

void request_refuse(struct worker *worker, struct worker_request *request, int status,
                    const char *text)
{
    request_finish(worker, request, &(struct outcome){.status = status, .text = text});
}

/* ---- the end of a lane and of a session ---- */

/* The client has the doorbell too, so that closing ours would leave it among those that wake us. */
void lane_drop(struct worker *worker, struct worker_session *session)
{
    if (session->is_lane_open) {
        session->is_lane_open = false;
        list_remove(&session->in_lanes);
        (void)epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, session->lane.doorbell_fd, NULL);
        stats_add(&worker->counters->n_lanes, UINT64_MAX);
    }
}

void lane_mark_corrupt(struct worker *worker, struct worker_session *session)
{
    lane_drop(worker, session);
    stats_add(&worker->counters->n_corrupt_lanes, 1);
    log_write(LOG_LEVEL_WARNING, "worker",
              "session %llu wrote impossible indices to its lane, which is ignored from now on",
              (unsigned long long)session->session_id);
}

void session_finish_if_done(struct worker *worker, struct worker_session *session)
{
    if (!session->is_muted || session->n_requests != 0) {
        return;
    }
    if (session->is_in_sched) {
        sched_leave(worker->sched, &session->sched);
    }
    lane_finish(&session->lane);
    free(session->order);
    worker->callbacks.on_detached(worker->callbacks.arg, session->session_id);
    free(session);
}
