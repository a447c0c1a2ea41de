/* worker_words.c - the words by which a session's streams and the worker take turns (ipc/order.h).
 *
 * The client can write every one of them. The worker reads `ready` only, as a hint when to launch
 * what it has checked before, and never follows a word anywhere: scribbling harms nobody else. */
#include "daemon/engine/worker_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "ipc/base/error.h"

int order_new(const struct worker_words *words, struct worker_order **ret_order)
{
    struct worker_order *order = calloc(1, sizeof(*order));
    if (order == NULL) {
        return err_raise(-ENOMEM);
    }
    order->words = order_words_at(words->base, words->n_entries);
    order->done_address = words->done_address;
    for (uint32_t i = 0; i < ORDER_STREAMS_MAX; i++) {
        list_init(&order->streams[i].waiting);
        list_init(&order->streams[i].in_orders);
    }
    *ret_order = order;
    return 0;
}

/* Acquire: what the client's CPU wrote before it said so is seen as well. */
bool order_is_ready(const struct worker_request *request)
{
    const _Atomic uint32_t *ready = &request->session->order->words.ready[request->order_entry];
    return atomic_load_explicit(ready, memory_order_acquire) == request->order_value;
}

bool order_signal(const struct worker_request *request, struct device_signal *ret_signal)
{
    const struct worker_order *order = request->session->order;
    if (!request->is_ordered || order->done_address == 0) {
        return false;
    }
    *ret_signal = (struct device_signal){
        .address = order->done_address + request->order_entry * sizeof(uint32_t),
        .value = request->order_value,
    };
    return true;
}

struct device_signal order_device_ready(const struct worker_request *request)
{
    return (struct device_signal){
        .address = request->session->order->done_address + ORDER_DEVICE_READY_OFFSET +
                   request->order_entry * sizeof(uint32_t),
        .value = request->order_value,
    };
}

void order_end(const struct worker_order *order, uint32_t entry, uint32_t value)
{
    atomic_store_explicit(&order->words.ended[entry], value, memory_order_release);
}
