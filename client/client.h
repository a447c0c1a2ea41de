/* client.h - what the files of libgemmd share. Not installed; gemmctl includes it for control
 * calls.
 *
 * Locks: side_lock (session socket), control.lock (ZeroMQ socket), one lock a queue (tickets and
 * the lane under it). None is taken while another is held, but for side_lock when a lane is opened
 * under lanes_lock. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/gemmd.h"
#include "ipc/base/reason.h"
#include "ipc/lane.h"
#include "ipc/msg.h"
#include "ipc/shm.h"
#include "ipc/side.h"
#include "ipc/sock.h"

#define CLIENT_DEVICES_MAX     16u
#define CLIENT_WAIT_SLICE_USEC 50000u /* how often a wait looks whether the daemon is still there  \
                                       */

enum ticket_state { TICKET_FREE = 0, TICKET_IN_FLIGHT, TICKET_DONE };

struct ticket {
    uint64_t id; /* the gemmd_ticket_t and the request_id on the wire */
    enum ticket_state state;
    struct request_result result; /* DONE */
};

/* Requests in flight on one path: a lane, or ZeroMQ. */
struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a result came in, or the listener gave up its place */
    bool is_listening;      /* one thread sleeps on the lane or the socket for all */
    bool is_open;
    struct lane lane;       /* LANE_NULL on the ZeroMQ queue */
    struct ticket *tickets; /* (n_tickets) */
    uint32_t n_tickets;
    uint32_t n_in_use;
    uint32_t path;
    uint32_t i_next; /* where the search for a free ticket starts */
    uint64_t n_serial;
};

struct control {
    pthread_mutex_t lock;
    struct sock sock;
    uint64_t n_message_ids;
};

struct gemmd_client {
    struct gemmd_options options;
    char socket_dir[100]; /* with "/session" behind it, what a socket address can hold */
    char name[SIDE_NAME_BYTES];
    int session_fd;
    pthread_mutex_t side_lock;
    uint64_t n_sequence;
    struct side_welcome welcome;
    struct control control;
    pthread_mutex_t lanes_lock; /* guards the opening of queues */
    struct queue lanes[CLIENT_DEVICES_MAX];
    struct queue zeromq;
};

struct gemmd_buffer {
    struct gemmd_client *client;
    struct region region;
    uint64_t id;
    uint64_t size_bytes;
};

/* error.c - the calling thread's last sentence. client_fail() keeps *why and returns its status;
 * client_refuse() makes one; client_fail_errno() turns a negative errno into one. */
int client_fail(const struct reason *why);
int client_refuse(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int client_fail_errno(int negative_errno, const char *what);

/* connection.c */
bool client_is_connected(const struct gemmd_client *client);
int client_disconnected(
    const struct gemmd_client *client); /* sets the sentence, returns the status */

/* session.c - one question and its answer over the session socket. *ret_packet is of type
 * `expected`, to be finished by the caller. Blocks up to timeout_msec. */
int session_ask(struct gemmd_client *client, union side_message *question, int fd,
                enum side_type expected, struct side_packet *ret_packet) GD_MUST_CHECK;

/* control.c - control_call(): one verb and its reply, which is to be finished by the caller.
 * Return: 0, or the refusal's status with the sentence set and nothing to finish. Any thread;
 * blocks up to timeout_msec. control_post(): send without waiting; the reply goes to the ticket
 * whose id is request->request_id. control_listen(): receive for up to timeout_msec and hand
 * replies to tickets. */
int control_init(struct gemmd_client *client) GD_MUST_CHECK;
void control_finish(struct gemmd_client *client);
int control_call(struct gemmd_client *client, struct msg_request *request,
                 struct msg_reply *ret_reply) GD_MUST_CHECK;
int control_post(struct gemmd_client *client, const struct msg_request *request) GD_MUST_CHECK;
int control_listen(struct gemmd_client *client, int timeout_msec) GD_MUST_CHECK;

/* queue.c - tickets. A ticket id is serial << 24 | path << 16 | index; the path is a device index
 * or CLIENT_PATH_ZEROMQ. All but init, finish and ticket_path() with queue->lock held. */
#define CLIENT_PATH_ZEROMQ 0xffu
uint32_t ticket_path(uint64_t ticket_id);
void queue_init(struct queue *queue);
void queue_finish(struct queue *queue);
int queue_open(struct queue *queue, uint32_t n_tickets,
               uint32_t path) GD_MUST_CHECK;    /* 0, -ENOMEM */
struct ticket *queue_take(struct queue *queue); /* IN_FLIGHT; NULL when all are in use */
void queue_give(struct queue *queue, struct ticket *ticket);
struct ticket *queue_find(struct queue *queue, uint64_t ticket_id); /* NULL: not in use */
void queue_result(struct queue *queue, const struct request_result *result);
