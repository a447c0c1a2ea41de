/* session_order.h - a session's words of stream order (ipc/order.h) for one device. Main thread. */
#pragma once

#include "daemon/device/device.h"
#include "daemon/engine/quota.h"
#include "daemon/engine/worker.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"

/* SESSION_ORDER_NULL is safe to finish. */
struct session_order {
    struct device *device; /* borrowed; NULL: not opened */
    struct region words;   /* a memfd, shared with the client */
    struct region done;    /* of the device, likewise; REGION_NULL on host */
    struct quota_charge charge;
};

#define SESSION_ORDER_NULL                                                                         \
    ((struct session_order){.words = REGION_NULL, .done = REGION_NULL, .charge = QUOTA_CHARGE_NULL})

/* session_order_init() - the memory, charged to the user. 0, negative errno, STATUS_QUOTA,
 * NO_SPACE or DEVICE_ERROR.
 * session_order_finish() - no worker may use it any more. */
int session_order_init(struct session_order *order, struct device *device, uint32_t n_entries,
                       struct quota *quota, uid_t uid, struct reason *why) GD_MUST_CHECK;
void session_order_finish(struct session_order *order);

/* session_order_words() - what the worker is told of it. */
struct worker_words session_order_words(const struct session_order *order, uint32_t n_entries);
