/* path.c - the queue that requests go through to a device, opened at its first use. */
#include "ipc/base/cleanup.h"
#include "ipc/base/num.h"

#include "client/client.h"

static int map_lane(struct lane *lane, struct side_packet *packet, uint32_t device_index)
{
    struct reason why = REASON_NULL;
    int r = session_check_fds(packet);
    if (r != 0) {
        return r;
    }
    if (packet->n_fds != 2 || packet->message.lane.device_index != device_index) {
        return client_refuse(STATUS_BAD_MESSAGE,
                             "the daemon answered the opening of lane %u with lane %u and %u fds",
                             device_index, packet->message.lane.device_index, packet->n_fds);
    }
    r = lane_attach(lane, steal_fd(&packet->fds[0]), steal_fd(&packet->fds[1]), &why);
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

int path_attach_lane(struct gemmd_client *client, uint32_t device_index, struct lane *ret_lane)
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
    int r = path_attach_lane(client, device_index, &lane);
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

int path_queue_for(struct gemmd_client *client, uint32_t device_index, uint64_t until_usec,
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

struct queue *path_queue_of(struct gemmd_client *client, gemmd_ticket_t ticket)
{
    uint32_t path = ticket_path(ticket);
    struct queue *queue = path == CLIENT_PATH_ZEROMQ ? &client->zeromq : NULL;
    if (path < CLIENT_DEVICES_MAX) {
        queue = &client->lanes[path];
    }
    return queue;
}
