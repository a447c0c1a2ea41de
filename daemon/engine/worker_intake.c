/* worker_intake.c - requests come in: from the lanes, polled in turn, and from the inbox.
 *
 * Fairness at the door: each pass takes at most LANE_BURST entries of a lane, the pass starts with
 * another lane each time, and while several lanes are open none may hold more than its share of the
 * worker's requests. So a lane that floods finds its own ring full, and nobody else's.
 *
 * Requests in stream order come long before they can be launched, many at once. A pass takes few of
 * them: those that are ready must not wait for others to be looked at. */
#include "daemon/engine/worker_internal.h"

#include "ipc/base/clock.h"
#include "ipc/base/num.h"

#define LANE_BURST  32u
#define ORDER_BURST 2u /* of all lanes together */

/* What a pass has taken so far. */
struct intake {
    uint64_t share;    /* of a lane */
    uint64_t now_nsec; /* one look at the clock for all that came in this pass; 0: none yet */
    uint32_t n_ordered;
};

/* The class of a request: batch_start() takes it apart again. */
static uint32_t class_of(const struct request_desc *desc)
{
    return desc->x_dtype | (uint32_t)desc->y_dtype << 8;
}

static uint64_t hold_nsec_max(uint32_t flags)
{
    uint64_t usec = flags >> REQUEST_HOLD_SHIFT;
    if ((flags & REQUEST_FLAG_NO_HOLD) != 0) {
        return 0;
    }
    return usec == 0 ? UINT64_MAX : usec * CLOCK_NSEC_PER_USEC;
}

static enum sched_priority priority_of(uint32_t flags)
{
    if ((flags & REQUEST_FLAG_HIGH) != 0) {
        return SCHED_HIGH;
    }
    return (flags & REQUEST_FLAG_LOW) != 0 ? SCHED_LOW : SCHED_NORMAL;
}

static void describe_item(struct worker *worker, struct worker_request *request,
                          const struct request_desc *desc)
{
    struct worker_session *session = request->session;
    if (!session->is_in_sched) {
        session->is_in_sched = true;
        sched_join(worker->sched, &session->sched);
    }
    request->item.weight_key =
        (uintptr_t)request->checked.weight; /* held: no other has its address */
    request->item.class_key = class_of(desc);
    request->item.session = &session->sched;
    request->item.n_rows = desc->m;
    request->item.n_chunk_rows = batch_chunk_rows(worker, request);
    request->item.hold_nsec_max = hold_nsec_max(desc->flags);
    request->item.priority = priority_of(desc->flags);
    request->timeout_usec = desc->timeout_usec;
    request->may_accumulate_fast = (desc->flags & REQUEST_FLAG_FAST_ACCUMULATION) != 0;
}

/* Whatever becomes of an ordered request from here on, its stream hears of the end. */
static int check_order(const struct worker *worker, struct worker_request *request,
                       const struct request_desc *desc, struct reason *why)
{
    if ((desc->flags & REQUEST_FLAG_ORDERED) == 0) {
        return 0;
    }
    int r = order_check(request->session, desc, request->is_from_lane, why);
    if (r != 0) {
        return r;
    }
    request->is_ordered = true;
    request->order_entry = desc->order_entry;
    request->order_value = desc->order_value;
    return order_check_room(worker, why);
}

static int check(struct worker *worker, struct worker_request *request,
                 const struct request_desc *desc, struct reason *why)
{
    int r = check_order(worker, request, desc, why);
    int status = worker_door_status(worker);
    if (r == 0 && status != 0) {
        return reason_set(why, status, "%s", status_text(status));
    }
    if (r == 0) {
        r = request_check(desc, worker->store, request->session->buffers, worker->device,
                          worker->limits.rows_max, &request->checked, why);
    }
    return r < 0 ? reason_errno(why, r, "checking the request") : r;
}

void intake_accept(struct worker *worker, struct worker_session *session,
                   const struct request_desc *desc, bool is_from_lane, uint64_t now_nsec)
{
    struct worker_request *request =
        request_new(worker, session, desc->request_id, is_from_lane, now_nsec);
    GD_ASSERT(request != NULL); /* both callers look first */
    struct reason why = REASON_NULL;
    int r = check(worker, request, desc, &why);
    if (is_from_lane) { /* now that it holds its buffers: who sees that may release them */
        ring_advance(&session->lane.submit);
    }
    if (r != 0) {
        request_refuse(worker, request, r, why.text);
        return;
    }
    if (desc->m == 0) {
        request_finish(worker, request, &(struct outcome){.status = STATUS_OK});
        return;
    }
    describe_item(worker, request, desc);
    if (request->is_ordered) {
        order_hold(worker, request, desc->order_stream);
    } else {
        batch_enqueue(worker, request, now_nsec);
    }
}

void intake_cancel(struct worker *worker, struct worker_session *session, uint64_t request_id)
{
    struct worker_request *request = request_find(worker, session, request_id);
    if (request != NULL && request->start_nsec == 0 &&
        (order_drop(worker, request) || batch_drop_waiting(worker, request))) {
        request_refuse(worker, request, STATUS_CANCELLED, status_text(STATUS_CANCELLED));
    } else if (request != NULL) {
        request->is_called_off = request->is_expected;
    }
}

/* ---- lanes ---- */

bool intake_is_stalled(const struct worker_session *session)
{
    return lane_room(&session->lane, session->n_lane_requests) == RING_FULL;
}

/* One entry of a lane, if there is one and its completion has a place. It stays in the ring. */
static enum ring_result look_at_entry(const struct worker_session *session,
                                      struct request_desc *ret_desc)
{
    enum ring_result r = lane_room(&session->lane, session->n_lane_requests);
    return r == RING_OK ? ring_peek(&session->lane.submit, ret_desc) : r;
}

static uint64_t lane_share(const struct worker *worker)
{
    uint64_t n_lanes = stats_read(&worker->counters->n_lanes);
    return num_max(1, worker->limits.requests_max / num_max(1, n_lanes));
}

static bool is_full(const struct worker *worker, const struct worker_session *session,
                    uint64_t share)
{
    return session->n_lane_requests >= share || list_is_empty(&worker->free_requests);
}

bool intake_is_full(const struct worker *worker, const struct worker_session *session)
{
    return is_full(worker, session, lane_share(worker));
}

/* Before it is known what the entry is: lanes mostly go on as they were. */
static bool may_take(const struct worker *worker, const struct worker_session *session,
                     const struct intake *intake)
{
    return session->is_lane_open && !is_full(worker, session, intake->share) &&
           (!session->has_ordered_last || intake->n_ordered < ORDER_BURST);
}

/* Take what one lane has, up to the burst; the number of entries taken. */
static uint32_t poll_lane(struct worker *worker, struct worker_session *session,
                          struct intake *intake)
{
    uint32_t n_taken = 0;
    while (n_taken < LANE_BURST && may_take(worker, session, intake)) {
        struct request_desc desc;
        enum ring_result r = look_at_entry(session, &desc);
        if (r == RING_CORRUPT) {
            lane_mark_corrupt(worker, session);
        }
        if (r != RING_OK) {
            break;
        }
        n_taken++;
        if (desc.op == REQUEST_OP_CANCEL) {
            ring_advance(&session->lane.submit);
            intake_cancel(worker, session, desc.request_id);
            continue;
        }
        session->has_ordered_last = (desc.flags & REQUEST_FLAG_ORDERED) != 0;
        intake->n_ordered += session->has_ordered_last;
        intake->now_nsec = intake->now_nsec != 0 ? intake->now_nsec : clock_now_nsec();
        intake_accept(worker, session, &desc, true, intake->now_nsec);
    }
    return n_taken;
}

bool intake_poll(struct worker *worker)
{
    struct intake intake = {.share = lane_share(worker)};
    uint32_t n_taken = 0;
    list_for_each_safe (node, &worker->lanes) {
        struct worker_session *session = LIST_OWNER(node, struct worker_session, in_lanes);
        n_taken += poll_lane(worker, session, &intake);
    }
    if (n_taken > 0) {
        struct list *first = list_pop(&worker->lanes);
        if (first != NULL) {
            list_append(&worker->lanes, first);
        }
    }
    return n_taken > 0;
}

/* ---- deadlines ---- */

bool intake_expire(struct worker *worker)
{
    if (sched_deadline(worker->sched) == UINT64_MAX) {
        return false;
    }
    uint64_t now_nsec = clock_now_nsec();
    bool has_worked = false;
    for (struct sched_item *item; (item = sched_expired(worker->sched, now_nsec)) != NULL;) {
        request_refuse(worker, request_of_item(item), STATUS_TIMEOUT, status_text(STATUS_TIMEOUT));
        has_worked = true;
    }
    return has_worked;
}
