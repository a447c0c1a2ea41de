/* worker_expected.c - requests that an armed launch expects.
 *
 * The requests of streams are there before their x is. So where each session that should share the
 * launch that comes next has its request waiting, the device is told of all of them when that is
 * armed, and looks at their streams' words itself: when all are ready it begins, and neither the
 * bus nor this CPU is in the way. The worker sees the same a few microseconds later, and tells the
 * scheduler, to whom it is as if all had come and been given out.
 *
 * From then on until the launch comes back, nobody else may launch these requests, since the device
 * may have begun with them: they are in no queue, as those in flight. Where the launch has to be
 * given up, because one of them does not come or something else goes first, it comes back within
 * microseconds, and those it has not begun with wait in their streams again. */
#include "daemon/engine/worker_internal.h"

#include "ipc/base/clock.h"

#define LIMIT_WAITS 4u /* a request whose time is shorter than so many waits is not expected */

/* ---- gathering ---- */

/* It may have to wait for the others for so long, and nobody looks at its own limits then. */
static bool may_wait(const struct worker_request *request, const struct sched_ahead *ahead)
{
    uint64_t wait_usec = ahead->wait_nsec / CLOCK_NSEC_PER_USEC;
    return ahead->n_sessions == 1 ||
           (request->item.hold_nsec_max >= ahead->wait_nsec &&
            (request->timeout_usec == 0 || request->timeout_usec > LIMIT_WAITS * wait_usec));
}

static bool can_be_expected(const struct worker *worker, const struct worker_request *request,
                            const struct sched_ahead *ahead)
{
    const struct checked *checked = &request->checked;
    struct device_signal done;
    return request->item.weight_key == ahead->weight_key &&
           request->item.class_key == ahead->class_key && !request_is_prefill(request) &&
           !buffer_is_cpu_memory(checked->x_buffer) && checked->x_scales == NULL &&
           order_signal(request, &done) && may_wait(request, ahead) &&
           sched_ahead_awaits(worker->sched, &request->session->sched);
}

bool expected_gather(struct worker *worker, struct worker_batch *batch,
                     const struct sched_ahead *ahead)
{
    struct sched_item *items[GK_BATCH_ROWS_MAX];
    uint32_t n_items = 0;
    uint32_t n_rows = 0;
    list_for_each (node, &worker->orders) {
        struct worker_request *request =
            order_first(LIST_OWNER(node, struct order_stream, in_orders));
        if (!can_be_expected(worker, request, ahead)) {
            continue;
        }
        n_rows += request->item.n_rows;
        if (n_items == ahead->n_sessions || n_rows > ahead->n_rows) {
            return false;
        }
        items[n_items++] = &request->item;
    }
    if (n_items != ahead->n_sessions || n_rows != ahead->n_rows) {
        return false;
    }
    for (uint32_t i = 0; i < n_items; i++) {
        struct worker_request *request = request_of_item(items[i]);
        bool was_waiting = order_drop(worker, request);
        GD_ASSERT(was_waiting);
        request->is_expected = true;
    }
    batch_fill(worker, batch, items, n_items, n_rows);
    batch->is_expecting = true;
    batch->come = 0;
    return true;
}

uint32_t expected_rows(const struct worker_batch *batch,
                       struct device_expected ret_rows[GK_BATCH_ROWS_MAX])
{
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < batch->n_requests; i++) {
        const struct worker_request *request = batch->requests[i];
        for (uint32_t j = 0; j < request->item.n_rows; j++, n_rows++) {
            ret_rows[n_rows] = (struct device_expected){
                .x = batch->x_rows[n_rows],
                .y = batch->y_rows[n_rows],
                .ready = order_device_ready(request),
            };
        }
        ret_rows[n_rows - 1].done = batch->signals[i];
    }
    return n_rows;
}

/* ---- looking ---- */

bool expected_poll(struct worker_batch *batch)
{
    bool have_all = true;
    for (uint32_t i = 0; i < batch->n_requests; i++) {
        struct worker_request *request = batch->requests[i];
        if ((batch->come >> i & 1) != 0) {
            continue;
        }
        if (!order_is_ready(request)) {
            have_all = false;
            continue;
        }
        batch->come |= 1ull << i;
        request->seen_nsec = clock_now_nsec();
    }
    return have_all;
}

/* ---- ending ---- */

static void forget(struct worker_batch *batch)
{
    batch->is_expecting = false;
    for (uint32_t i = 0; i < batch->n_requests; i++) {
        batch->requests[i]->is_expected = false;
    }
}

void expected_launched(struct worker *worker, struct worker_batch *batch)
{
    struct sched_item *items[GK_BATCH_ROWS_MAX];
    uint64_t now_nsec = clock_now_nsec();
    forget(batch);
    batch->oldest_nsec = now_nsec;
    for (uint32_t i = 0; i < batch->n_requests; i++) {
        struct worker_request *request = batch->requests[i];
        bool has_come = (batch->come >> i & 1) != 0;
        items[i] = &request->item;
        batch_enqueue(worker, request, has_come ? request->seen_nsec : now_nsec);
        batch->oldest_nsec = num_min(batch->oldest_nsec, request->seen_nsec);
    }
    sched_taken(worker->sched, items, batch->n_requests, now_nsec);
}

/* What has to end a request that comes back; 0: nothing. */
static int end_of(const struct worker *worker, const struct worker_request *request)
{
    bool is_cancelled = request->session->is_muted || request->is_called_off;
    return is_cancelled ? STATUS_CANCELLED : worker_door_status(worker);
}

/* The last one first, so that each is before those that came after it. */
void expected_return(struct worker *worker, struct worker_batch *batch)
{
    forget(batch);
    for (uint32_t i = batch->n_requests; i-- > 0;) {
        struct worker_request *request = batch->requests[i];
        int status = end_of(worker, request);
        if (status != 0) {
            request_refuse(worker, request, status, status_text(status));
        } else {
            order_hold_again(worker, request);
        }
    }
    batch->n_requests = 0;
}
