/* worker_order.c - requests in stream order: they wait here until their client's stream is ready.
 *
 * A stream cannot ring a doorbell, so its words are polled: those of the first request of each
 * stream that has any, which is one look at a word that mostly lies in the cache. Nothing of a
 * stream that is not ready goes to the scheduler or the device: it holds up nobody but itself. Time
 * counts from the moment at which a request is ready, that of its deadline too.
 *
 * The alternative, to enqueue a wait for the client's word on the device's stream ahead of time,
 * saves the way through the CPU, and lets one client stop all; so that is done for those only who
 * have come together before, and for a moment (worker_expected.c). */
#include "daemon/engine/worker_internal.h"

#include <inttypes.h>

#include "ipc/base/clock.h"
#include "ipc/base/num.h"

/* Streams may never get ready: without this, those who wait for them could take every request that
 * the worker has, for as long as they like. */
int order_check_room(const struct worker *worker, struct reason *why)
{
    uint64_t n_max = num_max(1, worker->limits.requests_max / 2);
    return worker->n_ordered < n_max
               ? 0
               : reason_set(why, STATUS_BUSY, "%" PRIu64 " requests wait for their streams already",
                            n_max);
}

int order_check(const struct worker_session *session, const struct request_desc *desc,
                bool is_from_lane, struct reason *why)
{
    if (!is_from_lane) {
        return reason_set(why, STATUS_UNSUPPORTED, "a request in stream order goes through a lane");
    }
    if (session->order == NULL) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "a request in stream order, and the session has not opened its words");
    }
    if (desc->order_entry >= session->order->words.n_entries ||
        desc->order_stream >= ORDER_STREAMS_MAX) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "entry %" PRIu32 " of stream %" PRIu32 ": there are %" PRIu32
                          " entries, and at most %u streams",
                          desc->order_entry, desc->order_stream, session->order->words.n_entries,
                          ORDER_STREAMS_MAX);
    }
    return 0;
}

/* One more waits. */
static void count_waiting(struct worker *worker, struct order_stream *stream)
{
    worker->n_ordered++;
    if (list_is_empty(&stream->in_orders)) {
        list_append(&worker->orders, &stream->in_orders);
    }
}

void order_hold(struct worker *worker, struct worker_request *request, uint32_t i_stream)
{
    struct order_stream *stream = &request->session->order->streams[i_stream];
    request->i_stream = i_stream;
    list_append(&stream->waiting, &request->in_order);
    count_waiting(worker, stream);
}

void order_hold_again(struct worker *worker, struct worker_request *request)
{
    struct order_stream *stream = &request->session->order->streams[request->i_stream];
    list_insert_before(stream->waiting.next, &request->in_order);
    count_waiting(worker, stream);
}

struct worker_request *order_first(const struct order_stream *stream)
{
    return LIST_OWNER(stream->waiting.next, struct worker_request, in_order);
}

static struct worker_request *take_first(struct worker *worker, struct order_stream *stream)
{
    struct worker_request *request = order_first(stream);
    list_remove(&request->in_order);
    worker->n_ordered--;
    if (list_is_empty(&stream->waiting)) {
        list_remove(&stream->in_orders);
    }
    return request;
}

/* Bounded by the requests that a session can have in flight. */
static bool poll_stream(struct worker *worker, struct order_stream *stream)
{
    bool has_worked = false;
    while (!list_is_empty(&stream->waiting) && order_is_ready(order_first(stream))) {
        batch_enqueue(worker, take_first(worker, stream), clock_now_nsec());
        has_worked = true;
    }
    return has_worked;
}

static void refuse_stream(struct worker *worker, struct order_stream *stream, int status)
{
    while (!list_is_empty(&stream->waiting)) {
        request_refuse(worker, take_first(worker, stream), status, status_text(status));
    }
}

bool order_poll(struct worker *worker, int door_status)
{
    bool has_worked = door_status != 0 && !list_is_empty(&worker->orders);
    list_for_each_safe (node, &worker->orders) {
        struct order_stream *stream = LIST_OWNER(node, struct order_stream, in_orders);
        if (door_status != 0) {
            refuse_stream(worker, stream, door_status);
        } else {
            has_worked |= poll_stream(worker, stream);
        }
    }
    return has_worked;
}

bool order_drop(struct worker *worker, struct worker_request *request)
{
    struct list *neighbour = request->in_order.next;
    if (neighbour == &request->in_order) {
        return false;
    }
    list_remove(&request->in_order);
    worker->n_ordered--;
    if (list_is_empty(neighbour)) { /* the stream's sentinel */
        list_remove(&LIST_OWNER(neighbour, struct order_stream, waiting)->in_orders);
    }
    return true;
}
