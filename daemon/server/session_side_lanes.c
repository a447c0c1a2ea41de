/* session_side_lanes.c - what a session asks of lanes: one a device, and the words of stream order
 * beside it. See session_side.h. */
#include "daemon/server/session_side_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/lane.h"

static int make_lane(struct ask *ask, uint32_t device_index, struct session_lane *kept,
                     struct reason *why)
{
    struct lane lane = LANE_NULL;
    int r = lane_create(&lane, ask->session->lane_entries, device_index);
    if (r != 0) {
        return r;
    }
    CLEAN_FD int region_fd = fcntl(lane.region.fd, F_DUPFD_CLOEXEC, 0);
    CLEAN_FD int doorbell_fd = fcntl(lane.doorbell_fd, F_DUPFD_CLOEXEC, 0);
    r = region_fd < 0 || doorbell_fd < 0 ? err_raise(-errno)
                                         : ask_check_descriptor(doorbell_fd, why);
    struct worker_client client = session_as_client(ask->session);
    r = r != 0 ? r : worker_attach(ask->core->workers[device_index], &client, &lane);
    if (r != 0) {
        lane_finish(&lane);
        return r;
    }
    kept->region_fd = steal_fd(&region_fd);
    kept->doorbell_fd = steal_fd(&doorbell_fd);
    ask->session->n_lanes++;
    return 0;
}

int side_on_open_lane(struct ask *ask, struct reason *why)
{
    uint32_t index = ask->packet->message.open_lane.device_index;
    struct device *device = NULL;
    int r = ask_device(ask, index, &device, why);
    if (r != 0) {
        return r;
    }
    struct session_lane *lane = &ask->session->lanes[index];
    if (lane->region_fd < 0) {
        const uint64_t amounts[QUOTA_KINDS] = {
            [QUOTA_BYTES] = lane_bytes(ask->session->lane_entries), [QUOTA_FDS] = SESSION_LANE_FDS};
        r = quota_take(ask->core->quota, ask->session->peer.uid, amounts, &lane->charge, why);
        if (r != 0) {
            reason_prefix(why, "a lane of %u entries", ask->session->lane_entries);
            return r;
        }
        r = make_lane(ask, index, lane, why);
        if (r != 0) {
            quota_give(&lane->charge);
            return r;
        }
    }
    side_init(&ask->answer, SIDE_LANE, ask_sequence(ask));
    ask->answer.lane.device_index = index;
    ask->answer.lane.n_entries = ask->session->lane_entries;
    ask->fds[0] = lane->region_fd;
    ask->fds[1] = lane->doorbell_fd;
    ask->n_fds = 2;
    return 0;
}

/* Its memory is the session's for as long as the worker may use it. */
static int open_order(struct ask *ask, uint32_t index, struct device *device, struct reason *why)
{
    struct session *session = ask->session;
    struct session_order *order = &session->lanes[index].order;
    int r = session_order_init(order, device, session->lane_entries, ask->core->quota,
                               session->peer.uid, why);
    if (r != 0) {
        return r;
    }
    struct worker_words words = session_order_words(order, session->lane_entries);
    r = worker_open_order(ask->core->workers[index], session->id, &words);
    if (r != 0) {
        session_order_finish(order);
    }
    return r;
}

static void answer_order(struct ask *ask, uint32_t index, const struct session_order *order)
{
    side_init(&ask->answer, SIDE_ORDER, ask_sequence(ask));
    ask->answer.order.device_index = index;
    ask->answer.order.n_entries = ask->session->lane_entries;
    ask->answer.order.done_bytes = order->done.size_bytes;
    ask->answer.order.has_mps = order->device->has_mps;
    memcpy(ask->answer.order.device_uuid, order->device->uuid_bytes, SIDE_UUID_BYTES);
    ask->fds[ask->n_fds++] = order->words.fd;
    if (order->done.fd >= 0) {
        ask->fds[ask->n_fds++] = order->done.fd;
    }
}

int side_on_open_order(struct ask *ask, struct reason *why)
{
    uint32_t index = ask->packet->message.open_lane.device_index;
    struct device *device = NULL;
    int r = ask_device(ask, index, &device, why);
    if (r != 0) {
        return r;
    }
    struct session_lane *lane = &ask->session->lanes[index];
    if (lane->region_fd < 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT,
                          "words of stream order for lane %u, which is not open", index);
    }
    if (lane->order.device == NULL) {
        r = open_order(ask, index, device, why);
        if (r != 0) {
            return r;
        }
    }
    answer_order(ask, index, &lane->order);
    return 0;
}
