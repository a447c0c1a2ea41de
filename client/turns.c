/* turns.c - a lane's words of stream order, and the watcher.
 *
 * A stream that waits for a product waits for a word that the daemon writes. A daemon that is gone
 * writes none, and the process may be asleep in cudaStreamSynchronize(): so a thread of the
 * library's own sleeps on the session socket until it hangs up, and then writes the words itself.
 * It is started with the first stream, and ends with the daemon or the client. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"

#include "client/client.h"

/* ---- the watcher ---- */

/* With queue->lock held. Every request is over, so each entry's latest value is one that is. */
static void release_all(struct queue *queue)
{
    queue->turns.is_over = true;
    for (uint32_t i = 0; i < queue->n_tickets; i++) {
        atomic_store_explicit(&queue->turns.words.ended[i], queue->tickets[i].order_value,
                              memory_order_release);
    }
}

static void end_turns(struct gemmd_client *client)
{
    struct reason why = {.status = session_gone(client)};
    (void)snprintf(why.text, sizeof(why.text), "%s", gemmd_last_error());
    for (uint32_t i = 0; i < CLIENT_DEVICES_MAX; i++) {
        struct queue *queue = &client->lanes[i];
        pthread_mutex_lock(&queue->lock);
        if (queue->turns.is_open) {
            listen_drain(client, queue); /* what the daemon said before it went still counts */
            queue_fail_streams(queue, &why);
            release_all(queue);
        }
        pthread_mutex_unlock(&queue->lock);
    }
}

static void *watch(void *arg)
{
    struct gemmd_client *client = arg;
    struct pollfd fds[] = {
        {.fd = client->session_fd, .events = POLLRDHUP},
        {.fd = client->watcher_fd, .events = POLLIN},
    };
    while (poll(fds, 2, -1) < 0 && errno == EINTR) {
    }
    end_turns(client);
    return NULL;
}

static int start_watcher(struct gemmd_client *client)
{
    if (client->watcher_fd >= 0) {
        return 0;
    }
    CLEAN_FD int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        return client_fail_errno(-errno, "making an eventfd");
    }
    client->watcher_fd = fd;
    int r = thread_start(&client->watcher, watch, client);
    if (r != 0) {
        client->watcher_fd = -1;
        return r;
    }
    (void)steal_fd(&fd);
    return 0;
}

void turns_stop(struct gemmd_client *client)
{
    if (client->watcher_fd < 0) {
        return;
    }
    (void)eventfd_write(client->watcher_fd, 1);
    (void)pthread_join(client->watcher, NULL);
    cleanup_fd(&client->watcher_fd);
}

/* ---- the words ---- */

static int check_answer(const struct side_packet *packet, const struct queue *queue)
{
    const struct side_order *answer = &packet->message.order;
    if (answer->done_bytes == 0) {
        return client_refuse(STATUS_UNSUPPORTED, "device %u is no GPU: it has no streams",
                             answer->device_index);
    }
    int r = session_check_fds(packet);
    if (r != 0) {
        return r;
    }
    if (packet->n_fds != 2 || answer->n_entries != queue->n_tickets) {
        return client_refuse(STATUS_BAD_MESSAGE,
                             "the daemon sent %u fds with %u words of stream order, not 2 with %u",
                             packet->n_fds, answer->n_entries, queue->n_tickets);
    }
    return 0;
}

static int map_words(struct turns *turns, struct side_packet *packet)
{
    const struct side_order *answer = &packet->message.order;
    int r =
        region_attach(&turns->region, steal_fd(&packet->fds[0]), order_bytes(answer->n_entries));
    if (r < 0) {
        return client_fail_errno(r, "mapping the words of stream order");
    }
    turns->words = order_words_at(turns->region.base, answer->n_entries);
    r = device_order_init(&turns->device, answer->device_uuid, turns->region.base,
                          answer->n_entries, packet->fds[1], answer->done_bytes);
    if (r != 0) {
        region_finish(&turns->region);
    }
    turns->has_mps = answer->has_mps != 0 && turns->device.has_mps;
    return r;
}

static int ask_for_words(struct gemmd_client *client, struct queue *queue, uint32_t device_index,
                         struct turns *turns)
{
    union side_message question;
    struct side_packet packet;
    side_init(&question, SIDE_OPEN_ORDER, 0);
    question.open_lane.device_index = device_index;
    int r = session_ask(client, &question, -1, SIDE_ORDER, &packet);
    if (r != 0) {
        return r;
    }
    r = check_answer(&packet, queue);
    r = r != 0 ? r : map_words(turns, &packet);
    side_packet_finish(&packet);
    return r;
}

/* Of a daemon that is gone. */
static int let_go_of_words(struct queue *queue)
{
    if (!queue->turns.is_open) {
        return 0;
    }
    pthread_mutex_lock(&queue->lock);
    bool is_in_use = queue->turns.streams_in_use != 0;
    pthread_mutex_unlock(&queue->lock);
    if (is_in_use) {
        return client_refuse(STATUS_DISCONNECTED,
                             "streams of a daemon that is gone are still open on device %u: close "
                             "them first",
                             queue->path);
    }
    turns_finish(&queue->turns);
    return 0;
}

/* Of a daemon that is there; that it has gone is the watcher's to find out. */
static bool has_words(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool is_good = queue->turns.is_open && !queue->turns.is_over;
    pthread_mutex_unlock(&queue->lock);
    return is_good;
}

static int open_locked(struct gemmd_client *client, struct queue *queue, uint32_t device_index)
{
    struct turns turns = {.region = REGION_NULL};
    if (atomic_load(&client->is_reviving)) {
        return session_gone(client);
    }
    if (has_words(queue)) {
        return start_watcher(client); /* which may have failed the first time */
    }
    int r = let_go_of_words(queue);
    r = r != 0 ? r : ask_for_words(client, queue, device_index, &turns);
    if (r != 0) {
        return r;
    }
    turns.is_open = true;
    pthread_mutex_lock(&queue->lock);
    queue->turns = turns;
    for (uint32_t i = 0; i < queue->n_tickets; i++) {
        queue->tickets[i].order_value = 0; /* as the new words have it */
    }
    pthread_mutex_unlock(&queue->lock);
    return start_watcher(client);
}

int turns_open(struct gemmd_client *client, struct queue *queue, uint32_t device_index)
{
    pthread_mutex_lock(&client->lanes_lock);
    int r = open_locked(client, queue, device_index);
    pthread_mutex_unlock(&client->lanes_lock);
    return r;
}

void turns_finish(struct turns *turns)
{
    device_order_finish(&turns->device);
    region_finish(&turns->region);
    turns->is_open = false;
}
