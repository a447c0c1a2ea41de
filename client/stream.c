/* stream.c - products in the order of a CUDA stream.
 *
 * The request goes into the ring first, then the turn onto the stream: the worker holds the request
 * until the stream has come to it. Both happen under the stream's lock, so that the worker's order
 * is the stream's; the queue's lock is not held meanwhile, since a full CUDA stream makes its
 * caller wait, perhaps for a product of a daemon that is gone, and the watcher needs that lock. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

/* ---- opening and closing ---- */

static int choose_order(const struct turns *turns, enum gemmd_order wish,
                        enum gemmd_order *ret_order)
{
    if (wish != GEMMD_ORDER_AUTO && wish != GEMMD_ORDER_KERNEL && wish != GEMMD_ORDER_MEMORY) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_stream_open: order %d is no order",
                             (int)wish);
    }
    if (wish == GEMMD_ORDER_KERNEL && !turns->has_mps) {
        return client_refuse(STATUS_UNSUPPORTED,
                             "kernels that wait need MPS for the daemon and for this process: "
                             "without it, whoever waits has the GPU to himself; gemmctl doctor "
                             "says how to start it");
    }
    *ret_order = wish;
    if (wish == GEMMD_ORDER_AUTO) {
        *ret_order = turns->has_mps ? GEMMD_ORDER_KERNEL : GEMMD_ORDER_MEMORY;
    }
    return 0;
}

static int take_index(struct queue *queue, uint32_t *ret_index)
{
    int r = 0;
    pthread_mutex_lock(&queue->lock);
    uint64_t free_bits = ~queue->turns.streams_in_use;
    if (free_bits == 0) {
        r = client_refuse(STATUS_NO_SPACE, "gemmd_stream_open: %u streams are open on device %u",
                          ORDER_STREAMS_MAX, queue->path);
    } else {
        *ret_index = (uint32_t)__builtin_ctzll(free_bits);
        queue->turns.streams_in_use |= 1ull << *ret_index;
    }
    pthread_mutex_unlock(&queue->lock);
    return r;
}

static int set_up(struct gemmd_stream *stream, enum gemmd_order wish)
{
    struct gemmd_client *client = stream->client;
    int r = forked_check(client);
    if (r != 0) {
        return r;
    }
    if (client->options.path != GEMMD_PATH_RING) {
        return client_refuse(STATUS_UNSUPPORTED,
                             "stream order needs GEMMD_PATH_RING: its words belong to a lane");
    }
    r = path_queue_for(client, stream->device_index, REVIVE_NO_LIMIT, &stream->queue);
    r = r != 0 ? r : turns_open(client, stream->queue, stream->device_index);
    r = r != 0 ? r : choose_order(&stream->queue->turns, wish, &stream->order);
    r = r != 0 ? r
               : device_order_check(&stream->queue->turns.device, stream->handle, stream->order);
    return r != 0 ? r : take_index(stream->queue, &stream->index);
}

int gemmd_stream_open(gemmd_client_t *client, uint32_t device_index, struct CUstream_st *handle,
                      enum gemmd_order order, gemmd_stream_t **ret_stream)
{
    if (!client || !ret_stream) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_stream_open: %s is NULL",
                             client ? "ret_stream" : "client");
    }
    struct gemmd_stream *stream = calloc(1, sizeof(*stream));
    if (!stream) {
        return client_fail_errno(-ENOMEM, "gemmd_stream_open");
    }
    stream->client = client;
    stream->handle = handle;
    stream->device_index = device_index;
    int r = set_up(stream, order);
    if (r != 0) {
        free(stream);
        return r;
    }
    pthread_mutex_init(&stream->lock, NULL);
    *ret_stream = stream;
    return GEMMD_OK;
}

/* What is still in flight tells its end to nobody. */
void gemmd_stream_close(gemmd_stream_t *stream)
{
    if (!stream) {
        return;
    }
    if (forked_is_inherited(stream->client)) {
        free(stream);
        return;
    }
    struct queue *queue = stream->queue;
    pthread_mutex_lock(&queue->lock);
    for (uint32_t i = 0; i < queue->n_tickets; i++) {
        if (queue->tickets[i].first_failure == &stream->failure) {
            queue->tickets[i].first_failure = &queue->turns.unread;
        }
    }
    queue->turns.streams_in_use &= ~(1ull << stream->index);
    pthread_mutex_unlock(&queue->lock);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

enum gemmd_order gemmd_stream_order(const gemmd_stream_t *stream)
{
    return stream ? stream->order : GEMMD_ORDER_AUTO;
}

/* ---- products ---- */

static int check(const struct gemmd_stream *stream, const struct gemmd_gemm *gemm)
{
    int r = gemm_check(stream->client, gemm);
    if (r != 0) {
        return r;
    }
    if (gemm->weight->device_index != stream->device_index) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "the weight is on device %u, the stream on device %u",
                             gemm->weight->device_index, stream->device_index);
    }
    return device_order_check_capture(&stream->queue->turns.device, stream->handle);
}

static int told_failure(const struct reason *failure)
{
    return client_fail_result((uint32_t)failure->status, failure->text);
}

/* With the queue's lock held. */
static int check_room(struct gemmd_stream *stream)
{
    struct queue *queue = stream->queue;
    uint32_t n_free = 0;
    listen_drain(stream->client, queue);
    if (stream->failure.status != 0) {
        return told_failure(&stream->failure);
    }
    if (queue->turns.is_over) {
        return session_gone(stream->client);
    }
    if (queue->n_in_use == queue->n_tickets ||
        (ring_room(&queue->lane.submit, &n_free) == RING_OK && n_free == 0)) {
        return client_refuse(STATUS_BUSY,
                             "%u products are in flight, as many as can be: wait until some of the "
                             "stream's work has ended",
                             queue->n_in_use);
    }
    return 0;
}

/* With the queue's lock held: into the ring. */
static int push(struct gemmd_stream *stream, const struct gemmd_gemm *gemm, uint64_t *ret_id,
                struct gemmd_signal *ret_signal)
{
    struct queue *queue = stream->queue;
    int r = check_room(stream);
    if (r != 0) {
        return r;
    }
    struct ticket *ticket = queue_take(queue);
    uint32_t entry = (uint32_t)(ticket - queue->tickets);
    struct request_desc desc = gemm_describe(stream->client, gemm, ticket->id);
    desc.flags |= REQUEST_FLAG_ORDERED;
    desc.order_entry = entry;
    desc.order_value = ticket->order_value + 1;
    desc.order_stream = stream->index;
    if (lane_submit(&queue->lane, &desc) != RING_OK) {
        queue_give(queue, ticket);
        return client_refuse(STATUS_BAD_MESSAGE, "the lane's indices were overwritten");
    }
    ticket->desc = desc;
    ticket->order_value++;
    ticket->first_failure = &stream->failure;
    *ret_id = ticket->id;
    *ret_signal = device_order_signal(&queue->turns.device, entry, desc.order_value);
    return 0;
}

static int submit(struct gemmd_stream *stream, const struct gemmd_gemm *gemm, uint64_t *ret_id,
                  struct gemmd_signal *ret_signal)
{
    struct gemmd_gemm taken;
    int r = gemm_take(gemm, &taken);
    r = r != 0 ? r : check(stream, &taken);
    r = r != 0 ? r : weights_settle(stream->client, &taken, 1);
    if (r != 0) {
        return r;
    }
    pthread_mutex_lock(&stream->queue->lock);
    r = push(stream, &taken, ret_id, ret_signal);
    pthread_mutex_unlock(&stream->queue->lock);
    return r;
}

/* The stream never comes to it. */
static void take_back(struct queue *queue, uint64_t id)
{
    pthread_mutex_lock(&queue->lock);
    struct ticket *ticket = queue_find(queue, id);
    if (ticket) {
        ticket->first_failure = &queue->turns.unread;
        queue_cancel(queue, ticket);
    }
    pthread_mutex_unlock(&queue->lock);
}

static int run_turn(struct gemmd_stream *stream, const struct gemmd_gemm *gemm)
{
    struct gemmd_signal signal;
    uint64_t id;
    int r = submit(stream, gemm, &id, &signal);
    if (r != 0) {
        return r;
    }
    r = device_order_enqueue(&stream->queue->turns.device, stream->handle, stream->order, &signal);
    if (r != 0) {
        take_back(stream->queue, id);
    }
    return r;
}

int gemmd_gemm_on_stream(gemmd_stream_t *stream, const struct gemmd_gemm *gemm)
{
    if (!stream || !gemm) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_gemm_on_stream: %s is NULL",
                             stream ? "gemm" : "stream");
    }
    int r = forked_check(stream->client);
    if (r != 0) {
        return r;
    }
    pthread_mutex_lock(&stream->lock);
    r = run_turn(stream, gemm);
    pthread_mutex_unlock(&stream->lock);
    return r;
}

int gemmd_submit_on_stream(gemmd_stream_t *stream, const struct gemmd_gemm *gemm,
                           struct gemmd_signal *ret_signal)
{
    if (!stream || !gemm || !ret_signal) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_submit_on_stream: an argument is NULL");
    }
    if (stream->order != GEMMD_ORDER_KERNEL) {
        return client_refuse(STATUS_UNSUPPORTED,
                             "gemmd_submit_on_stream: kernels that wait need a stream in "
                             "GEMMD_ORDER_KERNEL, which needs MPS");
    }
    uint64_t id;
    int r = forked_check(stream->client);
    if (r != 0) {
        return r;
    }
    pthread_mutex_lock(&stream->lock);
    r = submit(stream, gemm, &id, ret_signal);
    pthread_mutex_unlock(&stream->lock);
    return r;
}

int gemmd_stream_status(gemmd_stream_t *stream)
{
    if (!stream) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_stream_status: stream is NULL");
    }
    int r = forked_check(stream->client);
    if (r != 0) {
        return r;
    }
    struct queue *queue = stream->queue;
    pthread_mutex_lock(&queue->lock);
    listen_drain(stream->client, queue);
    struct reason failure = stream->failure;
    stream->failure = REASON_NULL;
    pthread_mutex_unlock(&queue->lock);
    return failure.status == 0 ? GEMMD_OK : told_failure(&failure);
}
