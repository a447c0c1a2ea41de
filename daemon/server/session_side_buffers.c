/* session_side_buffers.c - what a session asks of buffers: made by the daemon, brought along as a
 * descriptor or a CUDA IPC handle, released. See session_side.h. */
#include "daemon/server/session_side_internal.h"

#include <assert.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/foreign.h"
#include "ipc/base/num.h"

static_assert(SIDE_IPC_HANDLE_BYTES == DEVICE_IPC_HANDLE_BYTES, "one kind of handle");

static int take_buffer_quota(const struct ask *ask, const struct device *device,
                             uint64_t size_bytes, struct quota_charge *ret_charge,
                             struct reason *why)
{
    uint64_t limit = ask->core->config->buffer_bytes_max;
    if (size_bytes == 0) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "a buffer of 0 bytes");
    }
    if (size_bytes > limit) {
        return reason_set(why, STATUS_QUOTA, "a buffer of %ju bytes is over the limit of %ju",
                          (uintmax_t)size_bytes, (uintmax_t)limit);
    }
    const uint64_t amounts[QUOTA_KINDS] = {[QUOTA_BUFFERS] = 1,
                                           [QUOTA_BYTES] =
                                               num_align_up(size_bytes, device->region_align),
                                           [QUOTA_FDS] = 1};
    return quota_take(ask->core->quota, ask->session->peer.uid, amounts, ret_charge, why);
}

/* Take region and charge into the session's table, or give both back. */
static int keep_buffer(struct ask *ask, struct device *device, struct region *region,
                       struct quota_charge *charge, struct reason *why)
{
    uint64_t size_bytes = region->size_bytes;
    int fd = region->fd;
    uint64_t id;
    int r = ask_check_descriptor(fd, why);
    r = r != 0 ? r : buffers_add(ask->session->buffers, device, region, charge, &id, why);
    if (r != 0) {
        device->ops->region_free(device, region);
        return r;
    }
    side_init(&ask->answer, SIDE_BUFFER, ask_sequence(ask));
    ask->answer.buffer.buffer_id = id;
    ask->answer.buffer.size_bytes = size_bytes;
    memcpy(ask->answer.buffer.device_uuid, device->uuid_bytes, SIDE_UUID_BYTES);
    ask->fds[0] = fd; /* the session's table keeps it open past the answer */
    return 0;
}

int side_on_alloc_buffer(struct ask *ask, struct reason *why)
{
    const struct side_alloc_buffer *wish = &ask->packet->message.alloc_buffer;
    struct device *device = NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    int r = ask_device(ask, wish->device_index, &device, why);
    r = r != 0 ? r : take_buffer_quota(ask, device, wish->size_bytes, &charge, why);
    if (r != 0) {
        return r;
    }
    struct region region = REGION_NULL;
    r = device->ops->region_new(device, "gemmd-buffer", wish->size_bytes, &region, why);
    r = r != 0 ? r : keep_buffer(ask, device, &region, &charge, why);
    quota_give(&charge); /* empty after a success */
    if (r != 0) {
        return r;
    }
    bool is_cuda = device->ops->kind == GK_DEVICE_CUDA;
    ask->answer.buffer.memory = is_cuda ? SIDE_MEMORY_CUDA : SIDE_MEMORY_MEMFD;
    ask->n_fds = 1;
    return 0;
}

/* What is closed before it becomes a region is closed with the packet, which waits for no socket.
 */
static int check_no_socket(int fd, struct reason *why)
{
    if (!foreign_is_socket(fd)) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT, "the buffer's fd is a socket, not a memfd");
}

int side_on_import_buffer(struct ask *ask, struct reason *why)
{
    const struct side_alloc_buffer *wish = &ask->packet->message.alloc_buffer;
    if (ask->packet->n_fds != 1) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "an import needs one descriptor, not %u",
                          ask->packet->n_fds);
    }
    struct device *device = NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    int r = ask_device(ask, wish->device_index, &device, why);
    r = r != 0 ? r : check_no_socket(ask->packet->fds[0], why);
    r = r != 0 ? r : take_buffer_quota(ask, device, wish->size_bytes, &charge, why);
    if (r != 0) {
        return r;
    }
    struct region region = REGION_NULL;
    int fd = steal_fd(&ask->packet->fds[0]);
    r = device->ops->region_import(device, fd, wish->size_bytes, &region, why);
    r = r != 0 ? r : keep_buffer(ask, device, &region, &charge, why);
    quota_give(&charge); /* empty after a success */
    return r;
}

int side_on_import_ipc(struct ask *ask, struct reason *why)
{
    const struct side_import_ipc *wish = &ask->packet->message.import_ipc;
    struct device *device = NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    int r = ask_device(ask, wish->device_index, &device, why);
    r = r != 0 ? r : take_buffer_quota(ask, device, wish->size_bytes, &charge, why);
    if (r != 0) {
        return r;
    }
    struct device_ipc ipc = {
        .allocation_id = wish->allocation_id,
        .exporter_pid = (uint64_t)ask->session->peer.pid,
        .offset_bytes = wish->offset_bytes,
        .size_bytes = wish->size_bytes,
    };
    memcpy(ipc.handle, wish->handle, sizeof(ipc.handle));
    struct region region = REGION_NULL;
    r = device->ops->region_import_ipc(device, &ipc, &region, why);
    r = r != 0 ? r : keep_buffer(ask, device, &region, &charge, why);
    quota_give(&charge); /* empty after a success */
    return r;
}

int side_on_release_buffer(struct ask *ask, struct reason *why)
{
    uint64_t id = ask->packet->message.release_buffer.buffer_id;
    int r = buffers_remove(ask->session->buffers, id, why);
    if (r != 0) {
        return r;
    }
    side_init(&ask->answer, SIDE_BUFFER, ask_sequence(ask));
    ask->answer.buffer.buffer_id = id;
    return 0;
}
