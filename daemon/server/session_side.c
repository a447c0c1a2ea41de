/* session_side.c - see session_side.h. Every request takes its quota first, then the resource, then
 * answers; a handler returns 0 when it has filled the answer, a status when it refuses, a negative
 * errno when the machine failed it, and one function turns those into a packet. */
#include "daemon/server/session_side.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/server/accept_guard.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"
#include "ipc/base/num.h"
#include "ipc/lane.h"

static_assert(SIDE_IPC_HANDLE_BYTES == DEVICE_IPC_HANDLE_BYTES, "one kind of handle");
static_assert(SIDE_UUID_BYTES == sizeof(((struct device *)0)->uuid_bytes), "one kind of UUID");

/* What a handler works on and what it fills. */
struct ask {
    struct core *core;
    struct session_table *table;
    struct session *session;
    struct side_packet *packet;
    union side_message answer;
    int fds[SIDE_FDS_MAX]; /* borrowed: of the session or its buffers */
    uint32_t n_fds;
};

static uint64_t sequence_of(const struct ask *ask)
{
    return ask->packet->message.header.sequence;
}

static int find_device(const struct ask *ask, uint32_t index, struct device **ret_device,
                       struct reason *why)
{
    if (index >= ask->core->n_devices) {
        return reason_set(why, STATUS_NOT_FOUND, "device %u: this daemon owns %u", index,
                          ask->core->n_devices);
    }
    *ret_device = ask->core->devices[index];
    return 0;
}

/* Connections to the control socket are under no quota: with many of them, accounts have room and
 * the process has not. What is left then is the daemon's own, and administrators'. */
static int check_descriptor(int fd, struct reason *why)
{
    if (fd < 0 || !accept_guard_is_kept(fd)) {
        return 0;
    }
    return reason_set(why, STATUS_QUOTA,
                      "no descriptor is left for clients of the %ju that the daemon may open "
                      "(LimitNOFILE=, ulimit -n)",
                      (uintmax_t)accept_guard_limit());
}

/* ---- HELLO ---- */

static int check_hello(const struct ask *ask, struct reason *why)
{
    const struct side_hello *hello = &ask->packet->message.hello;
    if (ask->session->state == SESSION_DOOMED) {
        *why = ask->session->doom;
        return why->status;
    }
    if (ask->session->state != SESSION_NEW) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "a second HELLO on session %ju",
                          (uintmax_t)ask->session->id);
    }
    if (hello->version_max < SIDE_VERSION_MIN || hello->version_min > SIDE_VERSION_MAX ||
        hello->version_min > hello->version_max) {
        return reason_set(
            why, STATUS_VERSION,
            "the client speaks versions %u to %u, this daemon (" GEMMD_VERSION ") %u to %u",
            hello->version_min, hello->version_max, SIDE_VERSION_MIN, SIDE_VERSION_MAX);
    }
    if (hello->flags != 0) {
        return reason_set(why, STATUS_UNSUPPORTED, "HELLO flags 0x%x are not known", hello->flags);
    }
    return 0;
}

/* The wish, rounded up to a power of two, within what the operator allows. */
static uint32_t choose_entries(uint32_t wanted, uint32_t limit)
{
    uint32_t n = LANE_ENTRIES_MIN;
    while (wanted != 0 && n < wanted && n < limit) {
        n *= 2;
    }
    return wanted == 0 ? limit : (uint32_t)num_min(n, limit);
}

static void fill_welcome(struct ask *ask, const struct side_hello *hello)
{
    struct side_welcome *welcome = &ask->answer.welcome;
    const struct config *config = ask->core->config;
    side_init(&ask->answer, SIDE_WELCOME, hello->header.sequence);
    welcome->version = (uint32_t)num_min(hello->version_max, SIDE_VERSION_MAX);
    welcome->n_devices = ask->core->n_devices;
    welcome->session_id = ask->session->id;
    memcpy(welcome->token, ask->session->token, sizeof(welcome->token));
    (void)strncpy(welcome->daemon_version, GEMMD_VERSION, sizeof(welcome->daemon_version) - 1);
    welcome->in_flight_max = ask->session->lane_entries;
    welcome->rows_max = (uint32_t)config->rows_max;
    welcome->buffer_bytes_max = config->buffer_bytes_max;
    welcome->n_buffers_max = config->session_buffers_max;
}

static int on_hello(struct ask *ask, struct reason *why)
{
    const struct side_hello *hello = &ask->packet->message.hello;
    struct session *session = ask->session;
    int r = check_hello(ask, why);
    if (r != 0) {
        return r;
    }
    for (uint32_t i = 0; i + 1 < SIDE_NAME_BYTES && hello->name[i] != '\0'; i++) {
        session->name[i] = isprint((unsigned char)hello->name[i]) ? hello->name[i] : '?';
    }
    session->lane_entries =
        choose_entries(hello->lane_entries, (uint32_t)ask->core->config->lane_entries);
    session->state = SESSION_LIVE;
    session_table_publish(ask->table, session);
    ask->core->counters.n_sessions++;
    fill_welcome(ask, hello);
    log_write(LOG_LEVEL_DEBUG, "session", "session %ju: '%s', pid %d, user %u",
              (uintmax_t)session->id, session->name, (int)session->peer.pid, session->peer.uid);
    return 0;
}

/* ---- lanes ---- */

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
    r = region_fd < 0 || doorbell_fd < 0 ? err_raise(-errno) : check_descriptor(doorbell_fd, why);
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

static int on_open_lane(struct ask *ask, struct reason *why)
{
    uint32_t index = ask->packet->message.open_lane.device_index;
    struct device *device = NULL;
    int r = find_device(ask, index, &device, why);
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
    side_init(&ask->answer, SIDE_LANE, sequence_of(ask));
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
    side_init(&ask->answer, SIDE_ORDER, sequence_of(ask));
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

static int on_open_order(struct ask *ask, struct reason *why)
{
    uint32_t index = ask->packet->message.open_lane.device_index;
    struct device *device = NULL;
    int r = find_device(ask, index, &device, why);
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

/* ---- buffers ---- */

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
    int r = check_descriptor(fd, why);
    r = r != 0 ? r : buffers_add(ask->session->buffers, device, region, charge, &id, why);
    if (r != 0) {
        device->ops->region_free(device, region);
        return r;
    }
    side_init(&ask->answer, SIDE_BUFFER, sequence_of(ask));
    ask->answer.buffer.buffer_id = id;
    ask->answer.buffer.size_bytes = size_bytes;
    memcpy(ask->answer.buffer.device_uuid, device->uuid_bytes, SIDE_UUID_BYTES);
    ask->fds[0] = fd; /* the session's table keeps it open past the answer */
    return 0;
}

static int on_alloc_buffer(struct ask *ask, struct reason *why)
{
    const struct side_alloc_buffer *wish = &ask->packet->message.alloc_buffer;
    struct device *device = NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    int r = find_device(ask, wish->device_index, &device, why);
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
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) {
        return 0;
    }
    return reason_set(why, STATUS_INVALID_ARGUMENT, "the buffer's fd is a socket, not a memfd");
}

static int on_import_buffer(struct ask *ask, struct reason *why)
{
    const struct side_alloc_buffer *wish = &ask->packet->message.alloc_buffer;
    if (ask->packet->n_fds != 1) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "an import needs one descriptor, not %u",
                          ask->packet->n_fds);
    }
    struct device *device = NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    int r = find_device(ask, wish->device_index, &device, why);
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

static int on_import_ipc(struct ask *ask, struct reason *why)
{
    const struct side_import_ipc *wish = &ask->packet->message.import_ipc;
    struct device *device = NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    int r = find_device(ask, wish->device_index, &device, why);
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

static int on_release_buffer(struct ask *ask, struct reason *why)
{
    uint64_t id = ask->packet->message.release_buffer.buffer_id;
    int r = buffers_remove(ask->session->buffers, id, why);
    if (r != 0) {
        return r;
    }
    side_init(&ask->answer, SIDE_BUFFER, sequence_of(ask));
    ask->answer.buffer.buffer_id = id;
    return 0;
}

/* ---- all of them ---- */

static const struct side_verb {
    enum side_type type;
    const char *name;
    int (*handle)(struct ask *ask, struct reason *why);
} side_verbs[] = {
    {SIDE_HELLO, "HELLO", on_hello},
    {SIDE_OPEN_LANE, "OPEN_LANE", on_open_lane},
    {SIDE_ALLOC_BUFFER, "ALLOC_BUFFER", on_alloc_buffer},
    {SIDE_IMPORT_BUFFER, "IMPORT_BUFFER", on_import_buffer},
    {SIDE_RELEASE_BUFFER, "RELEASE_BUFFER", on_release_buffer},
    {SIDE_IMPORT_IPC, "IMPORT_IPC", on_import_ipc},
    {SIDE_OPEN_ORDER, "OPEN_ORDER", on_open_order},
};

static int dispatch(struct ask *ask, struct reason *why)
{
    uint16_t type = ask->packet->message.header.type;
    for (uint32_t i = 0; i < ARRAY_LENGTH(side_verbs); i++) {
        if (side_verbs[i].type != type) {
            continue;
        }
        if (ask->packet->has_lost_fds) {
            return reason_set(why, STATUS_QUOTA,
                              "the daemon has no descriptor free for what came with %s",
                              side_verbs[i].name);
        }
        if (type != SIDE_HELLO && ask->session->state != SESSION_LIVE) {
            return reason_set(why, STATUS_NO_SESSION, "%s before HELLO", side_verbs[i].name);
        }
        return side_verbs[i].handle(ask, why);
    }
    return reason_set(why, STATUS_BAD_MESSAGE, "message type %u is not one a client sends", type);
}

static enum session_verdict send_answer(const struct session *session,
                                        const union side_message *answer, const int *fds,
                                        uint32_t n_fds)
{
    switch (-side_send(session->fd, answer, fds, n_fds)) {
    case 0:
        return SESSION_KEEP;
    case EPIPE:
    case ECONNRESET:
        return SESSION_GONE;
    default:
        return SESSION_DROP;
    }
}

enum session_verdict session_side_refuse(struct session *session, uint64_t sequence,
                                         const struct reason *why)
{
    union side_message message;
    side_init(&message, SIDE_REFUSED, sequence);
    message.refused.status = (uint32_t)why->status;
    memcpy(message.refused.text, why->text, sizeof(message.refused.text));
    return send_answer(session, &message, NULL, 0);
}

enum session_verdict session_side_answer(struct core *core, struct session_table *table,
                                         struct session *session, struct side_packet *packet)
{
    struct ask ask = {.core = core, .table = table, .session = session, .packet = packet};
    struct reason why = REASON_NULL;
    int r = dispatch(&ask, &why);
    if (r == 0) {
        return send_answer(session, &ask.answer, ask.fds, ask.n_fds);
    }
    if (r < 0) {
        (void)reason_errno(&why, r, "session %ju", (uintmax_t)session->id);
    }
    core->counters.n_side_refused++;
    enum session_verdict verdict = session_side_refuse(session, sequence_of(&ask), &why);
    bool is_over = session->state != SESSION_LIVE || r == STATUS_BAD_MESSAGE;
    return verdict == SESSION_KEEP && is_over ? SESSION_CLOSE : verdict;
}
