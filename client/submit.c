/* submit.c - products: descriptors out. See wait.c for the way back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/num.h"

#include "client/client.h"

#define SUBMIT_CHUNK 32u /* descriptors built at once, on the stack */

/* The name of a buffer of another client; NULL: there is none. */
static const char *foreign_buffer(const struct gemmd_client *client, const struct gemmd_gemm *gemm)
{
    if (gemm->x && gemm->x->client != client) {
        return "x";
    }
    if (gemm->y && gemm->y->client != client) {
        return "y";
    }
    return gemm->x_scale && gemm->x_scale->client != client ? "x_scale" : NULL;
}

int submit_take(const struct gemmd_gemm *gemm, struct gemmd_gemm *ret_gemm)
{
    static const struct taken taken = {
        .name = "gemmd_gemm",
        .struct_bytes = sizeof(struct gemmd_gemm),
        .ends = {STRUCT_END(struct gemmd_gemm, timeout_usec),
                 STRUCT_END(struct gemmd_gemm, x_scale_stride),
                 STRUCT_END(struct gemmd_gemm, accumulation)},
    };
    *ret_gemm = (struct gemmd_gemm)GEMMD_GEMM_INIT;
    return taken_read(&taken, gemm, ret_gemm);
}

static int differing_sizes(size_t first_bytes, size_t its_bytes, size_t i)
{
    return client_refuse(STATUS_INVALID_ARGUMENT,
                         "gemmd_gemm.struct_bytes is %zu in the first request and %zu in request "
                         "%zu of one call",
                         first_bytes, its_bytes, i);
}

/* An array of the caller's: all of one size, which is the distance between them. */
static int take_all(const struct gemmd_gemm *gemms, size_t n, struct gemmd_gemm **ret_gemms)
{
    size_t struct_bytes = gemms->struct_bytes;
    CLEAN_FREE struct gemmd_gemm *taken = calloc(n, sizeof(*taken));
    if (!taken) {
        return client_fail_errno(-ENOMEM, "gemmd_submit");
    }
    for (size_t i = 0; i < n; i++) {
        const void *gemm = (const char *)gemms + i * struct_bytes;
        int r = submit_take(gemm, &taken[i]);
        if (r != 0) {
            return r;
        }
        size_t its_bytes;
        memcpy(&its_bytes, gemm, sizeof(its_bytes));
        if (its_bytes != struct_bytes) {
            return differing_sizes(struct_bytes, its_bytes, i);
        }
    }
    *ret_gemms = steal_ptr(&taken);
    return 0;
}

int submit_check(const struct gemmd_client *client, const struct gemmd_gemm *gemm)
{
    if (!gemm->weight) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_gemm.weight is NULL");
    }
    if (gemm->m > 0 && (!gemm->x || !gemm->y)) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_gemm.%s is NULL and m is %u",
                             gemm->x ? "y" : "x", gemm->m);
    }
    const char *foreign = foreign_buffer(client, gemm);
    if (foreign) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_gemm.%s belongs to another client",
                             foreign);
    }
    if (!gemm->x_scale && (gemm->x_scale_offset_bytes || gemm->x_scale_stride)) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_gemm.x_scale is NULL and has an offset or a stride");
    }
    if ((unsigned)gemm->x_dtype > UINT8_MAX || (unsigned)gemm->y_dtype > UINT8_MAX) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_gemm: x_dtype %d, y_dtype %d: not a gemmd_dtype",
                             (int)gemm->x_dtype, (int)gemm->y_dtype);
    }
    if ((unsigned)gemm->accumulation > GEMMD_ACCUMULATION_FAST) {
        return client_refuse(STATUS_INVALID_ARGUMENT,
                             "gemmd_gemm.accumulation %d is not a gemmd_accumulation",
                             (int)gemm->accumulation);
    }
    return 0;
}

static int check_gemms(const struct gemmd_client *client, const struct gemmd_gemm *gemms, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (gemms[i].struct_bytes != sizeof(*gemms)) {
            return differing_sizes(sizeof(*gemms), gemms[i].struct_bytes, i);
        }
        int r = submit_check(client, &gemms[i]);
        if (r != 0) {
            return r;
        }
        if (gemms[i].weight->device_index != gemms[0].weight->device_index) {
            return client_refuse(STATUS_INVALID_ARGUMENT,
                                 "gemmd_submit: weights on devices %u and %u in one call",
                                 gemms[0].weight->device_index, gemms[i].weight->device_index);
        }
    }
    return 0;
}

/* An offset that is out of range anyway must not wrap into it. */
static uint64_t offset_of(const struct gemmd_buffer *buffer, uint64_t offset_bytes)
{
    uint64_t sum;
    return buffer && num_add(buffer->offset_bytes, offset_bytes, &sum) ? sum : offset_bytes;
}

/* Scales between rows of x_scale. */
static uint64_t scale_stride(const struct gemmd_gemm *gemm)
{
    if (!gemm->x_scale || gemm->x_scale_stride) {
        return gemm->x_scale_stride;
    }
    return gemm->weight->act == GEMMD_ACT_FP8_GROUP ? num_div_up(gemm->weight->k, GEMMD_ACT_GROUP_K)
                                                    : 1;
}

/* What the options say of every request. */
static uint32_t flags_of(const struct gemmd_options *options)
{
    static const uint32_t priorities[] = {[GEMMD_PRIORITY_NORMAL] = REQUEST_FLAG_NONE,
                                          [GEMMD_PRIORITY_HIGH] = REQUEST_FLAG_HIGH,
                                          [GEMMD_PRIORITY_LOW] = REQUEST_FLAG_LOW};
    uint32_t flags = priorities[options->priority];
    if (options->hold_usec == 0) {
        return flags | REQUEST_FLAG_NO_HOLD;
    }
    bool is_bounded = options->hold_usec <= REQUEST_HOLD_USEC_MAX;
    return is_bounded ? flags | options->hold_usec << REQUEST_HOLD_SHIFT : flags;
}

struct request_desc submit_describe(struct gemmd_client *client, const struct gemmd_gemm *gemm,
                                    uint64_t request_id)
{
    return (struct request_desc){
        .request_id = request_id,
        .weight_id = weights_id(client, gemm->weight),
        .x_buffer_id = gemm->x ? gemm->x->id.number : 0,
        .x_offset_bytes = offset_of(gemm->x, gemm->x_offset_bytes),
        .x_stride_elems = gemm->x_stride ? gemm->x_stride : gemm->weight->k,
        .y_buffer_id = gemm->y ? gemm->y->id.number : 0,
        .y_offset_bytes = offset_of(gemm->y, gemm->y_offset_bytes),
        .y_stride_elems = gemm->y_stride ? gemm->y_stride : gemm->weight->n,
        .timeout_usec = gemm->timeout_usec,
        .m = gemm->m,
        .n = gemm->weight->n,
        .k = gemm->weight->k,
        .op = REQUEST_OP_GEMM,
        .x_dtype = (uint8_t)gemm->x_dtype,
        .y_dtype = (uint8_t)gemm->y_dtype,
        .flags = flags_of(&client->options) |
                 (gemm->accumulation == GEMMD_ACCUMULATION_FAST ? REQUEST_FLAG_FAST_ACCUMULATION
                                                                : REQUEST_FLAG_NONE),
        .x_scale_buffer_id = gemm->x_scale ? gemm->x_scale->id.number : 0,
        .x_scale_offset_bytes = offset_of(gemm->x_scale, gemm->x_scale_offset_bytes),
        .x_scale_stride_elems = scale_stride(gemm),
    };
}

/* ---- paths ---------------------------------------------------------------------------------- */

static int map_lane(struct lane *lane, struct side_packet *packet, uint32_t device_index)
{
    struct reason why = REASON_NULL;
    if (packet->n_fds != 2 || packet->message.lane.device_index != device_index) {
        return client_refuse(STATUS_BAD_MESSAGE,
                             "the daemon answered the opening of lane %u with lane %u and %u fds",
                             device_index, packet->message.lane.device_index, packet->n_fds);
    }
    int r = lane_attach(lane, steal_fd(&packet->fds[0]), steal_fd(&packet->fds[1]), &why);
    if (r < 0) {
        return client_fail_errno(r, "mapping a lane");
    }
    return r > 0 ? client_fail(&why) : 0;
}

static int open_queue(const struct gemmd_client *client, struct queue *queue, struct lane *lane,
                      uint32_t n_tickets, uint32_t path)
{
    const struct gemmd_options *options = &client->options;
    pthread_mutex_lock(&queue->lock);
    queue->hold_usec = options->has_no_repeat ? 0 : options->reconnect_msec * 1000ull;
    int r = queue_open(queue, lane, n_tickets, path);
    pthread_mutex_unlock(&queue->lock);
    return r < 0 ? client_fail_errno(r, "tickets") : 0;
}

int submit_attach(struct gemmd_client *client, uint32_t device_index, struct lane *ret_lane)
{
    union side_message question;
    struct side_packet packet;
    side_init(&question, SIDE_OPEN_LANE, 0);
    question.open_lane.device_index = device_index;
    int r = session_ask(client, &question, -1, SIDE_LANE, &packet);
    if (r != 0) {
        return r;
    }
    r = map_lane(ret_lane, &packet, device_index);
    side_packet_finish(&packet);
    return r;
}

static int open_lane(struct gemmd_client *client, struct queue *queue, uint32_t device_index)
{
    struct lane lane = LANE_NULL;
    int r = submit_attach(client, device_index, &lane);
    r = r != 0 ? r : open_queue(client, queue, &lane, lane.n_entries, device_index);
    lane_finish(&lane);
    return r;
}

/* A ping waits until the socket is connected, so that a full one is full later on and not new. */
static int open_zeromq(struct gemmd_client *client, struct queue *queue)
{
    struct msg_request ping = {.verb = MSG_VERB_PING};
    struct msg_reply reply;
    int r = control_call_once(client, &ping, &reply);
    if (r != 0) {
        return r;
    }
    msg_reply_finish(&reply);
    uint32_t n = (uint32_t)num_min(num_max(client->welcome.in_flight_max, 1), LANE_ENTRIES_MAX);
    return open_queue(client, queue, NULL, n, CLIENT_PATH_ZEROMQ);
}

static int open_at_first_use(struct gemmd_client *client, struct queue *queue, bool is_ring,
                             uint32_t device_index)
{
    int r = 0;
    if (atomic_load(&client->is_reviving)) {
        return session_gone(client); /* and do not wait for the lock */
    }
    if (atomic_load(&queue->is_open)) {
        return 0;
    }
    pthread_mutex_lock(&client->lanes_lock);
    if (atomic_load(&client->is_reviving)) {
        r = session_gone(client);
    } else if (!atomic_load(&queue->is_open)) {
        r = is_ring ? open_lane(client, queue, device_index) : open_zeromq(client, queue);
    }
    pthread_mutex_unlock(&client->lanes_lock);
    return r;
}

int submit_queue_for(struct gemmd_client *client, uint32_t device_index, uint64_t until_usec,
                     struct queue **ret_queue)
{
    bool is_ring = client->options.path == GEMMD_PATH_RING;
    if (device_index >= CLIENT_DEVICES_MAX) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "device_index %u is over the limit of %u",
                             device_index, CLIENT_DEVICES_MAX - 1);
    }
    struct queue *queue = is_ring ? &client->lanes[device_index] : &client->zeromq;
    for (;;) {
        uint32_t epoch = atomic_load(&client->epoch);
        int r = open_at_first_use(client, queue, is_ring, device_index);
        if (r == 0) {
            *ret_queue = queue;
        }
        if (r != STATUS_DISCONNECTED || client->options.reconnect_msec == 0) {
            return r;
        }
        r = client->revive(client, epoch, until_usec);
        if (r != 0) {
            return r;
        }
    }
}

struct queue *submit_queue_of(struct gemmd_client *client, gemmd_ticket_t ticket)
{
    uint32_t path = ticket_path(ticket);
    struct queue *queue = path == CLIENT_PATH_ZEROMQ ? &client->zeromq : NULL;
    if (path < CLIENT_DEVICES_MAX) {
        queue = &client->lanes[path];
    }
    return queue;
}

/* ---- submitting ----------------------------------------------------------------------------- */

static uint64_t end_of(uint64_t timeout_usec)
{
    uint64_t now_usec = listen_now_usec();
    return timeout_usec > UINT64_MAX - now_usec ? UINT64_MAX : now_usec + timeout_usec;
}

/* Until when a daemon may be waited for: as long as one of the requests still wants it. */
static uint64_t end_of_patience(const struct gemmd_gemm *gemms, size_t n)
{
    uint64_t timeout_usec = 0;
    for (size_t i = 0; i < n; i++) {
        if (gemms[i].timeout_usec == 0) {
            return REVIVE_NO_LIMIT;
        }
        timeout_usec = num_max(timeout_usec, gemms[i].timeout_usec);
    }
    return end_of(timeout_usec);
}

static int no_room(const struct queue *queue, size_t n)
{
    return client_refuse(STATUS_BUSY, "%zu requests do not fit in flight: %u of at most %u are", n,
                         queue->n_in_use, queue->n_tickets);
}

/* Room was checked, so only a lane whose indices were overwritten can refuse; its requests then end
 * with that as their result. */
static void push_chunk(struct queue *queue, const struct request_desc *descs, uint32_t n)
{
    int n_pushed = lane_submit_many(&queue->lane, descs, n);
    for (uint32_t i = n_pushed < 0 ? 0 : (uint32_t)n_pushed; i < n; i++) {
        struct request_result result = {.request_id = descs[i].request_id,
                                        .status = STATUS_BAD_MESSAGE};
        static const char text[] = "the lane's indices were overwritten";
        memcpy(result.text, text, sizeof(text));
        queue_result(queue, &result);
    }
}

static struct ticket *take_ticket(struct gemmd_client *client, struct queue *queue,
                                  const struct gemmd_gemm *gemm)
{
    struct ticket *ticket = queue_take(queue);
    ticket->desc = submit_describe(client, gemm, ticket->id);
    ticket->expires_usec = gemm->timeout_usec != 0 ? end_of(gemm->timeout_usec) : 0;
    return ticket;
}

static int submit_to_lane(struct gemmd_client *client, struct queue *queue,
                          const struct gemmd_gemm *gemms, size_t n, gemmd_ticket_t *ret_tickets)
{
    uint32_t n_free;
    enum ring_result room = ring_room(&queue->lane.submit, &n_free);
    /* A corrupt ring is not a full one: no waiting helps, and push_chunk() says so. */
    if (n > queue->n_tickets - queue->n_in_use || (room == RING_OK && n > n_free)) {
        return no_room(queue, n);
    }
    struct request_desc descs[SUBMIT_CHUNK];
    for (size_t i = 0; i < n; i += SUBMIT_CHUNK) {
        uint32_t n_chunk = (uint32_t)num_min(n - i, SUBMIT_CHUNK);
        for (uint32_t j = 0; j < n_chunk; j++) {
            const struct ticket *ticket = take_ticket(client, queue, &gemms[i + j]);
            ret_tickets[i + j] = ticket->id;
            descs[j] = ticket->desc;
        }
        push_chunk(queue, descs, n_chunk);
    }
    return 0;
}

static int post(struct gemmd_client *client, const struct ticket *ticket)
{
    struct msg_request request = {
        .request_id = ticket->id,
        .verb = MSG_VERB_SUBMIT,
        .submit = ticket->desc,
    };
    return exchange_send(client, &request);
}

/* A message that cannot be sent ends its request: those before it are in flight already. If there
 * is nobody to send it to, whoever waits for it finds the next daemon, and it goes there. */
static void end_unsent(const struct gemmd_client *client, struct queue *queue,
                       gemmd_ticket_t ticket, int status)
{
    if (status == STATUS_DISCONNECTED && client->options.reconnect_msec > 0) {
        return;
    }
    struct request_result result = {.request_id = ticket, .status = (uint32_t)status};
    (void)snprintf(result.text, sizeof(result.text), "%s", gemmd_last_error());
    queue_result(queue, &result);
}

static int submit_by_message(struct gemmd_client *client, const struct gemmd_gemm *gemms, size_t n,
                             gemmd_ticket_t *ret_tickets)
{
    struct queue *queue = &client->zeromq;
    if (n > queue->n_tickets - queue->n_in_use) {
        return no_room(queue, n);
    }
    for (size_t i = 0; i < n; i++) {
        struct ticket *ticket = take_ticket(client, queue, &gemms[i]);
        int r = post(client, ticket);
        if (r == STATUS_BUSY && i == 0) {
            queue_give(queue, ticket);
            return r;
        }
        ret_tickets[i] = ticket->id;
        if (r != 0) {
            end_unsent(client, queue, ticket->id, r);
        }
    }
    return 0;
}

/* *ret_is_late: the daemon that this was meant for is being replaced, or has been; nothing was
 * sent. */
static int submit_once(struct gemmd_client *client, const struct gemmd_gemm *gemms, size_t n,
                       uint64_t until_usec, gemmd_ticket_t *ret_tickets, bool *ret_is_late)
{
    struct queue *queue = NULL;
    uint32_t epoch = atomic_load(&client->epoch);
    *ret_is_late = false;
    int r = submit_queue_for(client, gemms[0].weight->device_index, until_usec, &queue);
    if (r != 0) {
        return r;
    }
    r = weights_settle(client, gemms, n);
    if (r == STATUS_DISCONNECTED && client->options.reconnect_msec > 0) {
        r = client->revive(client, epoch, until_usec);
        *ret_is_late = r == 0;
        return r;
    }
    if (r != 0) {
        return r;
    }
    pthread_mutex_lock(&queue->lock);
    *ret_is_late = atomic_load(&client->is_reviving) || atomic_load(&client->epoch) != epoch;
    if (!*ret_is_late) {
        r = queue == &client->zeromq ? submit_by_message(client, gemms, n, ret_tickets)
                                     : submit_to_lane(client, queue, gemms, n, ret_tickets);
    }
    pthread_mutex_unlock(&queue->lock);
    return r;
}

static int submit_taken(struct gemmd_client *client, const struct gemmd_gemm *gemms, size_t n,
                        gemmd_ticket_t *ret_tickets)
{
    int r = check_gemms(client, gemms, n);
    bool is_late = r == 0;
    uint64_t until_usec = is_late ? end_of_patience(gemms, n) : 0;
    while (is_late) {
        r = submit_once(client, gemms, n, until_usec, ret_tickets, &is_late);
    }
    return r;
}

int gemmd_submit(gemmd_client_t *client, const struct gemmd_gemm *gemms, size_t n,
                 gemmd_ticket_t *ret_tickets)
{
    if (!client || (n > 0 && (!gemms || !ret_tickets))) {
        return client_refuse(STATUS_INVALID_ARGUMENT, "gemmd_submit: an argument is NULL");
    }
    if (n == 0) {
        return GEMMD_OK;
    }
    if (gemms->struct_bytes == sizeof(*gemms)) {
        return submit_taken(client, gemms, n, ret_tickets);
    }
    CLEAN_FREE struct gemmd_gemm *taken = NULL;
    int r = take_all(gemms, n, &taken);
    return r != 0 ? r : submit_taken(client, taken, n, ret_tickets);
}
