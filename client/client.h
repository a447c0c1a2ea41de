/* client.h - what the files of libgemmd share. Not installed; gemmctl includes it for control
 * calls.
 *
 * Floors, lowest first: error; filled, queue, session, driver_cuda; device_memory; device_order;
 * exchange, connection; listen; control; turns; submit, wait, buffers, weights; stream.
 *
 * Locks: side_lock (session socket); lanes_lock (opening of queues), under which side_lock or a
 * queue's lock is taken; one lock a queue (its tickets and the lane under it). The lock of the
 * ZeroMQ queue guards the control socket and the calls that wait for a reply as well. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/device_memory.h"
#include "client/device_order.h"
#include "client/include/gemmd.h"
#include "ipc/base/list.h"
#include "ipc/base/reason.h"
#include "ipc/lane.h"
#include "ipc/msg.h"
#include "ipc/shm.h"
#include "ipc/side.h"
#include "ipc/sock.h"

/* With "/session" behind it a folder of 99 bytes gives the longest path a Unix socket takes. */
#define CLIENT_DIR_BYTES       100u
#define CLIENT_DEVICES_MAX     16u
#define CLIENT_WAIT_SLICE_USEC 50000u /* how often a wait looks if the daemon is there */

enum ticket_state { TICKET_FREE = 0, TICKET_IN_FLIGHT, TICKET_DONE };

struct ticket {
    uint64_t id; /* the gemmd_ticket_t and the request_id on the wire */
    enum ticket_state state;
    bool is_cancel_due;           /* the ring had no room for the cancellation yet */
    struct request_result result; /* DONE */
    struct reason *first_failure; /* where to keep a failure that nobody waits for, if there is none
                                     yet; NULL: somebody waits */
    uint32_t order_value;         /* what its words of stream order became last */
};

/* Words of stream order of a lane, and who uses them. */
struct turns {
    bool is_open;
    bool is_over; /* the daemon is gone, and everything that waited for it was released */
    bool has_mps; /* the daemon and this process */
    struct region region;
    struct order_words words;
    struct device_order device;
    uint64_t streams_in_use; /* bit i: stream i is open */
    struct reason unread;    /* of requests whose stream was closed */
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
    uint32_t n_cancels_due;
    uint32_t path;
    uint32_t i_next; /* where the search for a free ticket starts */
    uint64_t n_serial;
    struct turns turns; /* of a lane */
};

/* A control call that waits for its reply: on its caller's stack, on the list of calls. */
struct call {
    struct list node;
    uint64_t id;
    bool is_done;
    struct reason why; /* a status other than OK: nothing came, and nothing will */
    struct msg_reply reply;
};

/* The ZeroMQ socket, guarded by the ZeroMQ queue's lock. */
struct exchange {
    struct sock sock;
    int socket_fd; /* the socket's own, for poll() */
    int kick_fd;   /* eventfd: wakes the thread that polls when another took what came in */
    uint64_t n_ids;
    struct list calls;
};

struct gemmd_client {
    struct gemmd_options options;
    char socket_dir[CLIENT_DIR_BYTES];
    char name[SIDE_NAME_BYTES];
    int session_fd;
    pthread_mutex_t side_lock;
    uint64_t n_sequence;
    struct side_welcome welcome;
    struct exchange exchange;
    pthread_mutex_t lanes_lock; /* guards the opening of queues */
    struct queue lanes[CLIENT_DEVICES_MAX];
    struct queue zeromq;
    pthread_t watcher; /* see turns.c; started under lanes_lock */
    int watcher_fd;    /* eventfd: ends it; -1: there is none */
};

struct gemmd_stream {
    struct gemmd_client *client;
    struct queue *queue;
    void *handle; /* CUstream */
    uint32_t device_index;
    enum gemmd_order order;
    uint32_t index;       /* among the streams of the queue */
    pthread_mutex_t lock; /* one product at a time is put on the stream; taken before the queue's */
    struct reason failure; /* the first one; guarded by the queue's lock */
};

struct gemmd_buffer {
    struct gemmd_client *client;
    struct region region;         /* host memory; else REGION_NULL */
    struct device_memory mapping; /* device memory that this library mapped; else zero */
    void *data;                   /* where it is for the caller: in one of the two, or its own */
    enum gemmd_memory memory;
    uint64_t id;
    uint64_t size_bytes;
    uint64_t offset_bytes; /* of data in what the daemon knows as the buffer */
};

/* connection.c: the folder of the daemon's sockets: wanted, else by the environment, else the
 * system's. 0 or a status with its sentence. */
int client_socket_dir(const char *wanted, char *ret_dir, size_t size_bytes);

/* error.c - the calling thread's last sentence; all return the status. client_fail() keeps *why;
 * client_refuse() makes one; client_fail_errno() turns a negative errno into one;
 * client_fail_wire() takes a refusal of the daemon's, whose status may be nonsense. */
int client_fail(const struct reason *why);
int client_refuse(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int client_fail_errno(int negative_errno, const char *what);
int client_fail_wire(uint32_t status, const char *text);

/* filled.c - structs that a call fills. Their first field is their size where the caller was
 * compiled, which may be less than here (an older program) or more (a newer one).
 * filled_check(): INVALID_ARGUMENT naming the struct when the caller's size is below that of the
 * struct's first version: it was never set. filled_write(): at most to_bytes of ours to the
 * caller's, and how many into its first field; what is there behind them stays as it is. */
#define FILLED_END(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))
int filled_check(const char *name, size_t struct_bytes, size_t bytes_min) GD_MUST_CHECK;
void filled_write(void *to, size_t to_bytes, const void *from, size_t from_bytes);

/* queue.c - tickets. A ticket id is serial << 24 | path << 16 | index; the path is a device index
 * or CLIENT_PATH_ZEROMQ. Messages that are no requests have ids of the same form with
 * CLIENT_PATH_CONTROL. All but init, finish and ticket_path() with queue->lock held.
 * queue_open(): lane: taken over on success; NULL on the ZeroMQ queue. Return: 0 or -ENOMEM.
 * queue_take(): a ticket IN_FLIGHT; NULL when all are in use. queue_find(): NULL when not in use.
 * queue_result(): end one request. queue_fail_all(): end every one that is in flight.
 * queue_cancel(): a lane's: tell the worker, now or, if the ring is full, when queue_send_cancels()
 * finds room, which every look at the lane tries. */
#define CLIENT_PATH_ZEROMQ  0xffu
#define CLIENT_PATH_CONTROL 0xfeu
uint64_t ticket_id(uint64_t serial, uint32_t path, uint32_t index);
uint32_t ticket_path(uint64_t id);
void queue_init(struct queue *queue);
void queue_finish(struct queue *queue);
int queue_open(struct queue *queue, struct lane *lane, uint32_t n_tickets,
               uint32_t path) GD_MUST_CHECK;
struct ticket *queue_take(struct queue *queue);
void queue_give(struct queue *queue, struct ticket *ticket);
struct ticket *queue_find(struct queue *queue, uint64_t id);
void queue_result(struct queue *queue, const struct request_result *result);
void queue_fail_all(struct queue *queue, const struct reason *why);
void queue_cancel(struct queue *queue, struct ticket *ticket);
void queue_send_cancels(struct queue *queue);

/* session.c - one question and its answer over the session socket. *ret_packet is of type
 * `expected`, to be finished by the caller. Blocks up to timeout_msec. session_is_alive(): the
 * daemon has not hung up. session_gone(): sets that sentence, returns DISCONNECTED. */
int session_ask(struct gemmd_client *client, union side_message *question, int fd,
                enum side_type expected, struct side_packet *ret_packet) GD_MUST_CHECK;
bool session_is_alive(const struct gemmd_client *client);
int session_gone(const struct gemmd_client *client);

/* exchange.c - the ZeroMQ socket. With the ZeroMQ queue's lock held, but for init, finish and poll.
 * exchange_send(): send one message, and take what came in; never waits: BUSY when the socket takes
 * none now, which is so before it is connected as well. exchange_drain(): hand every reply
 * that is there to its call or ticket; a reply that makes no sense ends them all.
 * exchange_poll(): sleep until something may have come in, or timeout_usec.
 * exchange_fail_calls(): end every call that waits. */
int exchange_init(struct gemmd_client *client) GD_MUST_CHECK;
void exchange_finish(struct gemmd_client *client);
int exchange_send(struct gemmd_client *client, const struct msg_request *request) GD_MUST_CHECK;
void exchange_drain(struct gemmd_client *client);
void exchange_poll(const struct gemmd_client *client, uint64_t timeout_usec);
void exchange_fail_calls(struct gemmd_client *client, const struct reason *why);

/* listen.c - with queue->lock held, which listen_sleep() lets go meanwhile. listen_drain(): take
 * the results that are there. listen_fail_all(): end everything in flight with DISCONNECTED.
 * listen_sleep(): wait until something may have changed, or for timeout_usec; everything in flight
 * ends when the daemon is found to be gone. */
uint64_t listen_now_usec(void);
void listen_fail_all(struct gemmd_client *client, struct queue *queue);
void listen_drain(struct gemmd_client *client, struct queue *queue);
void listen_sleep(struct gemmd_client *client, struct queue *queue, uint64_t timeout_usec);

/* control.c - control_call(): one verb and its reply, which is to be finished by the caller.
 * Return: 0, or the refusal's status with the sentence set and nothing to finish. Any thread;
 * blocks up to timeout_msec. */
int control_call(struct gemmd_client *client, struct msg_request *request,
                 struct msg_reply *ret_reply) GD_MUST_CHECK;

/* turns.c - words of stream order. turns_open(): of an open lane, at its first use; starts the
 * watcher. turns_stop(): before anything of the client is taken down, end the watcher and release
 * what waits. turns_finish(): wait for the GPU, then unmap. */
int turns_open(struct gemmd_client *client, struct queue *queue,
               uint32_t device_index) GD_MUST_CHECK;
void turns_stop(struct gemmd_client *client);
void turns_finish(struct turns *turns);

/* submit.c - submit_queue_of(): the queue a ticket came from; NULL when its path is none.
 * submit_queue_for(): the one that requests for that device go through, opened at its first use.
 * submit_check(), submit_describe(): one request. */
struct queue *submit_queue_of(struct gemmd_client *client, gemmd_ticket_t ticket);
int submit_queue_for(struct gemmd_client *client, uint32_t device_index,
                     struct queue **ret_queue) GD_MUST_CHECK;
int submit_check(const struct gemmd_client *client, const struct gemmd_gemm *gemm) GD_MUST_CHECK;
struct request_desc submit_describe(const struct gemmd_gemm *gemm, uint64_t request_id);
