/* session_order.c - see session_order.h. The session owns the memory and the worker borrows it, so
 * that unmapping, which waits for the device, is never done on the worker's thread. */
#include "daemon/server/session_order.h"

#include <stdbool.h>
#include <stddef.h>

#include "ipc/base/num.h"
#include "ipc/order.h"

static bool has_device_memory(const struct device *device)
{
    return device->ops->kind == GK_DEVICE_CUDA;
}

static int take_quota(const struct device *device, uint32_t n_entries, struct quota *quota,
                      uid_t uid, struct quota_charge *ret_charge, struct reason *why)
{
    uint64_t done_bytes =
        has_device_memory(device) ? num_align_up(ORDER_DEVICE_BYTES, device->region_align) : 0;
    const uint64_t amounts[QUOTA_KINDS] = {
        [QUOTA_BYTES] = order_bytes(n_entries) + done_bytes, [QUOTA_FDS] = done_bytes != 0 ? 2 : 1};
    return quota_take(quota, uid, amounts, ret_charge, why);
}

int session_order_init(struct session_order *order, struct device *device, uint32_t n_entries,
                       struct quota *quota, uid_t uid, struct reason *why)
{
    struct session_order made = SESSION_ORDER_NULL;
    made.device = device;
    GD_ASSERT(n_entries <= ORDER_ENTRIES_MAX); /* as many as a lane has */
    int r = take_quota(device, n_entries, quota, uid, &made.charge, why);
    r = r != 0 ? r : region_create(&made.words, "gemmd-order", order_bytes(n_entries));
    if (r == 0 && has_device_memory(device)) {
        r = device->ops->region_new(device, "order", ORDER_DEVICE_BYTES, &made.done, why);
    }
    if (r != 0) {
        session_order_finish(&made);
        return r;
    }
    *order = made;
    return 0;
}

void session_order_finish(struct session_order *order)
{
    region_finish(&order->words);
    if (order->done.base != NULL) {
        order->device->ops->region_free(order->device, &order->done);
    }
    quota_give(&order->charge);
    *order = SESSION_ORDER_NULL;
}

struct worker_words session_order_words(const struct session_order *order, uint32_t n_entries)
{
    return (struct worker_words){
        .base = order->words.base,
        .n_entries = n_entries,
        .done_address = (uint64_t)(uintptr_t)order->done.base,
    };
}
