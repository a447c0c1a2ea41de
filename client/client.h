/* client.h - what the files of libgemmd share. Not installed; gemmctl includes it for control
 * calls.
 *
 * Floors, lowest first: error; filled, forked, taken, thread, queue, session, known, driver_cuda;
 * device_memory; device_order; exchange, connection; listen; handover; control; turns; weights;
 * submit, wait, buffers; stream; resend; revive; client. Who finds the daemon gone calls
 * client->revive.
 *
 * Locks: life_lock (whether the client is being revived; a leaf); lanes_lock (opening of queues),
 * buffers_lock (the list, and sharing of one more); under each of these side_lock (session socket)
 * or a queue's lock; one lock a queue (its tickets and the lane under
 * it). The lock of the ZeroMQ queue guards the control socket and the calls that wait for a reply
 * as well. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/device_memory.h"
#include "client/device_order.h"
#include "client/include/gemmd.h"
#include "client/known.h"
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

/* HELD: answered by a daemon that is about to go; if it goes, the request is done anew. */
enum ticket_state { TICKET_FREE = 0, TICKET_IN_FLIGHT, TICKET_HELD, TICKET_DONE };

struct ticket {
    uint64_t id; /* the gemmd_ticket_t and the request_id on the wire */
    enum ticket_state state;
    bool is_cancelled;
    bool is_cancel_due;           /* the ring had no room for the cancellation yet */
    uint64_t held_until_usec;     /* HELD */
    struct request_desc desc;     /* to be sent again */
    uint64_t expires_usec;        /* when desc.timeout_usec is over, if that is not 0 */
    struct request_result result; /* HELD, DONE */
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
    _Atomic bool is_open;   /* once set, for ever */
    struct lane lane;       /* LANE_NULL on the ZeroMQ queue */
    struct ticket *tickets; /* (n_tickets) */
    uint32_t n_tickets;
    uint32_t n_in_use;
    uint32_t n_cancels_due;
    uint32_t path;
    uint32_t i_next; /* where the search for a free ticket starts */
    uint64_t n_serial;
    uint64_t hold_usec; /* how long an answer is held; 0: not at all */
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
    bool is_renewing; /* nobody sleeps on it now */
    struct list calls;
};

struct gemmd_client {
    struct gemmd_options options;
    uint32_t fork_generation; /* of the process that opened it; see forked.c */
    char socket_dir[CLIENT_DIR_BYTES];
    char name[SIDE_NAME_BYTES];
    int session_fd;
    _Atomic uint32_t session; /* which one it is: the first is 1; changed under side_lock */
    pthread_mutex_t side_lock;
    uint64_t n_sequence;
    struct side_welcome welcome;
    struct exchange exchange;
    pthread_mutex_t lanes_lock; /* guards the opening of queues */
    struct queue lanes[CLIENT_DEVICES_MAX];
    struct queue zeromq;
    /* Life after the daemon's death; see revive.c. */
    int (*revive)(struct gemmd_client *client, uint32_t epoch, uint64_t until_usec);
    pthread_mutex_t life_lock;
    pthread_cond_t life_changed;
    pthread_t reviver;        /* to be joined, if has_reviver; like the next three, */
    bool has_reviver;         /* guarded by life_lock */
    uint64_t gone_usec;       /* when the daemon was found to be gone; 0: it is there */
    struct reason why_gone;   /* of the last attempt that failed */
    _Atomic uint32_t epoch;   /* how many daemons there were before this one */
    _Atomic bool is_reviving; /* set under life_lock; nothing new is sent or opened meanwhile */
    _Atomic bool is_closing;  /* the reviver is to give up */
    pthread_mutex_t buffers_lock;
    struct list buffers; /* all that are shared */
    struct known known;
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

/* What the daemon calls a buffer in one session; in another that number may be another buffer's. */
struct buffer_id {
    uint64_t number;
    uint32_t session; /* of the client's; 0: none */
};

struct gemmd_buffer {
    struct gemmd_client *client;
    struct region region;         /* host memory; else REGION_NULL */
    struct device_memory mapping; /* device memory that this library mapped; else zero */
    void *data;                   /* where it is for the caller: in one of the two, or its own */
    enum gemmd_memory memory;
    struct buffer_id id;
    struct buffer_id id_next; /* of the daemon that is being connected to */
    uint64_t size_bytes;
    uint64_t offset_bytes;       /* of data in what the daemon knows as the buffer */
    struct list in_client;       /* guarded, like the ids while it is there, by buffers_lock */
    union side_message question; /* by which another daemon shares the same memory... */
    int fd; /* ...and what goes with it, if that is not region.fd: owned; -1: nothing */
};

/* client.c: the folder of the daemon's sockets: wanted, else by the environment, else the
 * system's. 0 or a status with its sentence. */
int client_socket_dir(const char *wanted, char *ret_dir, size_t size_bytes);

/* error.c - the calling thread's last sentence; all return the status. client_fail() keeps *why;
 * client_refuse() makes one; client_fail_errno() turns a negative errno into one, BUSY for want of
 * a descriptor; client_fail_wire() takes a refusal of the daemon's, whose status may be nonsense:
 * DISCONNECTED is, which whoever finds the daemon gone acts upon. client_fail_result(): how a
 * request ended, be it the daemon that said so or this side. */
int client_fail(const struct reason *why);
int client_refuse(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int client_fail_errno(int negative_errno, const char *what);
int client_fail_wire(uint32_t status, const char *text);
int client_fail_result(uint32_t status, const char *text);

/* filled.c - structs that a call fills. Their first field is their size where the caller was
 * compiled, which may be less than here (an older program) or more (a newer one).
 * filled_check(): INVALID_ARGUMENT naming the struct when the caller's size is below that of the
 * struct's first version: it was never set. filled_write(): at most to_bytes of ours to the
 * caller's, and how many into its first field; what is there behind them stays as it is. */
#define STRUCT_END(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))
int filled_check(const char *name, size_t struct_bytes, size_t bytes_min) GD_MUST_CHECK;
void filled_write(void *to, size_t to_bytes, const void *from, size_t from_bytes);

/* forked.c - forked_generation(): of this process. forked_is_inherited(): was the client opened by
 * another, which this one is a child of? forked_check(): INVALID_ARGUMENT if so. forked_let_go():
 * what gemmd_close() is for such a client, but for its buffers. */
uint32_t forked_generation(void);
bool forked_is_inherited(const struct gemmd_client *client);
int forked_check(const struct gemmd_client *client) GD_MUST_CHECK;
void forked_let_go(struct gemmd_client *client);

/* buffers.c: buffers_finish(): let go of what nobody has freed; the daemon hears nothing of it. */
void buffers_finish(struct gemmd_client *client);

/* taken.c - structs that a call takes; they start with their size as well. taken_read(): what of
 * the caller's struct this library knows, to *to, which holds the defaults and is of
 * taken->struct_bytes. Errors: INVALID_ARGUMENT for a size that no version has; for bytes behind
 * what this library knows that are not 0. */
struct taken {
    const char *name;
    size_t struct_bytes;
    size_t ends[4]; /* of the last field in each version, oldest first; then 0 */
};
int taken_read(const struct taken *taken, const void *from, void *to) GD_MUST_CHECK;

/* thread.c - thread_start(): with all signals blocked. 0, or a status with its sentence. */
int thread_start(pthread_t *ret_thread, void *(*run)(void *arg), void *arg) GD_MUST_CHECK;

/* queue.c - tickets. A ticket id is serial << 24 | path << 16 | index; the path is a device index
 * or CLIENT_PATH_ZEROMQ. Messages that are no requests have ids of the same form with
 * CLIENT_PATH_CONTROL. All but init, finish and ticket_path() with queue->lock held.
 * queue_init_changed(): a condition on the clock of the library.
 * queue_open(): lane: taken over on success; NULL on the ZeroMQ queue. Return: 0 or -ENOMEM.
 * queue_take(): a ticket IN_FLIGHT; NULL when all are in use. queue_find(): NULL when not in use.
 * queue_result(): end one request. queue_fail_all(): end every one that is in flight.
 * queue_cancel(): a lane's: tell the worker, now or, if the ring is full, when queue_send_cancels()
 * finds room, which every look at the lane tries. */
#define CLIENT_PATH_ZEROMQ  0xffu
#define CLIENT_PATH_CONTROL 0xfeu
uint64_t ticket_id(uint64_t serial, uint32_t path, uint32_t index);
uint32_t ticket_path(uint64_t id);
void queue_init_changed(pthread_cond_t *changed);
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

/* queue_fail_streams(): end those that go in the order of a stream. queue_settle(): a held answer
 * becomes the result once its time is over. queue_expire(): while no daemon is there to say so, end
 * a request whose timeout_usec is over. */
void queue_fail_streams(struct queue *queue, const struct reason *why);
void queue_settle(struct ticket *ticket);
void queue_expire(struct queue *queue, const struct ticket *ticket, uint64_t now_usec);

/* session.c - one question and its answer over the session socket. *ret_packet is of type
 * `expected`, to be finished by the caller. Blocks up to timeout_msec. session_is_alive(): the
 * daemon has not hung up. session_gone(): sets that sentence, returns DISCONNECTED. */
int session_ask(struct gemmd_client *client, union side_message *question, int fd,
                enum side_type expected, struct side_packet *ret_packet) GD_MUST_CHECK;
/* session_ask_locked(): the same with side_lock held. */
int session_ask_locked(struct gemmd_client *client, union side_message *question, int fd,
                       enum side_type expected, struct side_packet *ret_packet) GD_MUST_CHECK;
/* session_check_fds(): refuses a packet whose fds this process has no number free for. */
int session_check_fds(const struct side_packet *packet) GD_MUST_CHECK;
/* session_release(): the daemon lets go of a buffer, by the one of its ids that is of the present
 * session, if one is. */
void session_release(struct gemmd_client *client, const struct buffer_id *id,
                     const struct buffer_id *id_next);
bool session_is_alive(const struct gemmd_client *client);
int session_gone(const struct gemmd_client *client);

/* connection.c - connection_open(): connect to the session socket and say HELLO: the client's first
 * session, or one in the place of that which is gone. session_fd keeps its number. Blocks up to
 * connect_msec for the connection, and timeout_msec for the answer. */
int connection_open(struct gemmd_client *client, uint32_t connect_msec) GD_MUST_CHECK;

/* exchange.c - the ZeroMQ socket. With the ZeroMQ queue's lock held, but for init, finish and poll.
 * exchange_send(): send one message, and take what came in; never waits: BUSY when the socket takes
 * none now, which is so before it is connected as well. exchange_drain(): hand every reply
 * that is there to its call or ticket; a reply that makes no sense ends them all.
 * exchange_poll(): sleep until something may have come in, or timeout_usec.
 * exchange_fail_calls(): end every call that waits. */
/* exchange_end(): the daemon is gone: calls that wait end with DISCONNECTED. exchange_renew():
 * another socket for another session, once nobody sleeps on the old one. Without the lock. */
int exchange_init(struct gemmd_client *client) GD_MUST_CHECK;
void exchange_end(struct gemmd_client *client);
int exchange_renew(struct gemmd_client *client) GD_MUST_CHECK;
void exchange_finish(struct gemmd_client *client);
int exchange_send(struct gemmd_client *client, const struct msg_request *request) GD_MUST_CHECK;
void exchange_drain(struct gemmd_client *client);
void exchange_poll(const struct gemmd_client *client, uint64_t timeout_usec);
void exchange_fail_calls(struct gemmd_client *client, const struct reason *why);

/* listen.c - with queue->lock held, which listen_sleep() lets go meanwhile. listen_drain(): take
 * the results that are there. listen_sleep(): wait until something may have changed, or for
 * timeout_usec; when the daemon is found to be gone, the next one is looked for, and if none comes,
 * everything in flight ends. listen_for_reply(): the same for a call, which only ends.
 * listen_await_quiet(): until nobody sleeps on the queue; for who revives. */
uint64_t listen_now_usec(void);
void listen_await_quiet(struct queue *queue);
void listen_drain(struct gemmd_client *client, struct queue *queue);
void listen_sleep(struct gemmd_client *client, struct queue *queue, uint64_t timeout_usec);
void listen_for_reply(struct gemmd_client *client, uint64_t timeout_usec);

/* handover.c - handover_await(): until the daemon holds that buffer for every request in flight
 * that names it, or over ZeroMQ, until these have ended; up to timeout_msec. Without any of the
 * locks. */
void handover_await(struct gemmd_client *client, const struct buffer_id *id);

/* control.c - control_call(): one verb and its reply, which is to be finished by the caller.
 * Return: 0, or the refusal's status with the sentence set and nothing to finish. Any thread;
 * blocks up to timeout_msec, and reconnect_msec. control_call_once(): not again with the next
 * daemon. control_call_next(): of who revives the client, to the next one. */
int control_call(struct gemmd_client *client, struct msg_request *request,
                 struct msg_reply *ret_reply) GD_MUST_CHECK;
int control_call_once(struct gemmd_client *client, struct msg_request *request,
                      struct msg_reply *ret_reply) GD_MUST_CHECK;
int control_call_next(struct gemmd_client *client, struct msg_request *request,
                      struct msg_reply *ret_reply) GD_MUST_CHECK;
typedef int (*control_way)(struct gemmd_client *client, struct msg_request *request,
                           struct msg_reply *ret_reply);

/* weights.c - weights of a daemon that is gone. weights_find(): what the present one calls the
 * weight `name`, of that shape and on that device, or NOT_FOUND. weights_settle(): know that of
 * every weight that is to be used. weights_id(): the id to send; what is not settled keeps its own.
 */
int weights_find(struct gemmd_client *client, control_way call, const struct known_weight *weight,
                 uint64_t *ret_id) GD_MUST_CHECK;
int weights_settle(struct gemmd_client *client, const struct gemmd_gemm *gemms,
                   size_t n) GD_MUST_CHECK;
uint64_t weights_id(struct gemmd_client *client, const gemmd_weight_t *weight);

/* turns.c - words of stream order. turns_open(): of an open lane, at its first use; starts the
 * watcher. turns_stop(): before anything of the client is taken down, end the watcher and release
 * what waits. turns_finish(): wait for the GPU, then unmap. */
int turns_open(struct gemmd_client *client, struct queue *queue,
               uint32_t device_index) GD_MUST_CHECK;
void turns_stop(struct gemmd_client *client);
void turns_finish(struct turns *turns);

/* gemm.c - one product. gemm_take(): the caller's struct as this library has it.
 * gemm_check(): what the client itself can refuse. gemm_describe(): what the daemon reads. */
int gemm_take(const struct gemmd_gemm *gemm, struct gemmd_gemm *ret_gemm) GD_MUST_CHECK;
int gemm_check(const struct gemmd_client *client, const struct gemmd_gemm *gemm) GD_MUST_CHECK;
struct request_desc gemm_describe(struct gemmd_client *client, const struct gemmd_gemm *gemm,
                                  uint64_t request_id);

/* path.c - path_queue_of(): the queue a ticket came from; NULL when its path is none.
 * path_queue_for(): the one that requests for that device go through, opened at its first use;
 * TIMEOUT when the daemon is gone until until_usec. path_attach_lane(): ask for a lane and map it.
 */
struct queue *path_queue_of(struct gemmd_client *client, gemmd_ticket_t ticket);
int path_queue_for(struct gemmd_client *client, uint32_t device_index, uint64_t until_usec,
                   struct queue **ret_queue) GD_MUST_CHECK;
int path_attach_lane(struct gemmd_client *client, uint32_t device_index,
                     struct lane *ret_lane) GD_MUST_CHECK;

/* resend.c - what was in flight, to the next daemon, in two steps. resend_prepare(): ask it for
 * what the requests need: buffers, weights, lanes; may fail, and then nothing has changed.
 * resend_commit(): send the requests again (or end them, with has_no_repeat), and go on with the
 * lanes. resend_finish(): safe on RESEND_NULL. For who revives. */
struct resend_weight {
    uint64_t id_before;
    uint64_t id_next; /* 0: the next daemon does not have it */
    struct known_weight weight;
};

struct resend {
    struct lane lanes[CLIENT_DEVICES_MAX];
    struct resend_weight *weights; /* owned */
    uint32_t n_weights;
};

/* resend_init() - nothing prepared; resend_finish() is safe from then on. */
void resend_init(struct resend *resend);
void resend_finish(struct resend *resend);
int resend_prepare(struct gemmd_client *client, struct resend *resend) GD_MUST_CHECK;
void resend_commit(struct gemmd_client *client, struct resend *resend);

/* revive.c - revive(): the daemon of that epoch is gone: have the client connected to the next one,
 * by a thread that attempts it once at least, and wait for that until until_usec, and
 * reconnect_msec at most. 0 when there is a daemon; TIMEOUT when until_usec came first;
 * DISCONNECTED when there was none within reconnect_msec; else why it was of no use. Without any of
 * the locks above. revive_end(): the thread gives up, and has ended. */
int revive(struct gemmd_client *client, uint32_t epoch, uint64_t until_usec) GD_MUST_CHECK;
void revive_end(struct gemmd_client *client);
#define REVIVE_NO_LIMIT UINT64_MAX /* but for reconnect_msec */
