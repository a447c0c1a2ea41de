/* sock.c - the two ZeroMQ sockets, with every default that surprises set by hand.
 *
 * The daemon binds the path itself and hands the fd over (ZMQ_USE_FD): libzmq's own bind unlinks
 * whatever it finds at the path and takes the file's mode from the umask. A socket belongs to one
 * thread at a time; libzmq is not fork-safe. */
#include "ipc/sock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/foreign.h"
#include "ipc/base/num.h"
#include "ipc/frame.h"
#include "ipc/unix.h"

#define ROUTER_QUEUE_MESSAGES 64   /* per peer and direction: at most 4 MiB of requests each */
#define DEALER_QUEUE_MESSAGES 1024 /* replies that wait in the client for its thread */
#define DEALER_SEND_MESSAGES  8192 /* a client has 4096 in flight at most: they never fill it */
#define CONTEXT_FDS           8u
#define CONTEXT_THREADS       2u /* for I/O, and the one that closes sockets */
#define RECONNECT_MSEC        20
#define RECONNECT_MSEC_MAX    1000
#define ADDRESS_BYTES         (sizeof("ipc://") + UNIX_PATH_BYTES_MAX)

struct option {
    int name;
    int value;
};

/* LINGER 0: nobody waits at exit for a peer that does not read. */
static int set_options(void *socket, const struct option *options, size_t n_options)
{
    for (size_t i = 0; i < n_options; i++) {
        if (zmq_setsockopt(socket, options[i].name, &options[i].value, sizeof(int)) < 0) {
            return err_raise(-errno);
        }
    }
    return 0;
}

static int set_message_bytes_max(void *socket, int64_t n_bytes)
{
    return zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &n_bytes, sizeof(n_bytes)) < 0 ? err_raise(-errno)
                                                                                 : 0;
}

/* libzmq ends the process where it finds no descriptor for the epoll of a thread. What it takes for
 * a context, a socket and a connection is looked for before; another thread may be faster yet. */
static int check_descriptors(void)
{
    int fds[CONTEXT_FDS];
    uint32_t n = 0;
    int r = 0;
    while (r == 0 && n < CONTEXT_FDS) {
        fds[n] = eventfd(0, EFD_CLOEXEC);
        r = fds[n] < 0 ? -errno : 0;
        n += r == 0;
    }
    while (n > 0) {
        (void)close(fds[--n]);
    }
    return r < 0 ? err_raise(r) : 0;
}

/* Ends as soon as it may take the lock. */
static void *run_nothing(void *lock)
{
    (void)pthread_mutex_lock(lock);
    (void)pthread_mutex_unlock(lock);
    return NULL;
}

/* Nor does it live without its threads, so it is tried whether as many can be started at once. They
 * take no signal: those are the program's. */
static int check_threads(void)
{
    pthread_t threads[CONTEXT_THREADS];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    sigset_t all;
    sigset_t before;
    uint32_t n = 0;
    int error = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)pthread_mutex_lock(&lock);
    while (error == 0 && n < CONTEXT_THREADS) {
        error = pthread_create(&threads[n], NULL, run_nothing, &lock);
        n += error == 0;
    }
    (void)pthread_mutex_unlock(&lock);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    while (n > 0) {
        (void)pthread_join(threads[--n], NULL);
    }
    (void)pthread_mutex_destroy(&lock);
    return error != 0 ? err_raise(-error) : 0;
}

static int open_socket(struct sock *sock, int type)
{
    int r = check_descriptors();
    r = r != 0 ? r : check_threads();
    if (r < 0) {
        return r;
    }
    sock->context = zmq_ctx_new();
    if (sock->context == NULL) {
        return err_raise(-errno);
    }
    sock->socket = zmq_socket(sock->context, type);
    return sock->socket == NULL ? err_raise(-errno) : 0;
}

/* Takes the listening fd over. */
static int bind_fd(void *socket, const char *path, int listening_fd)
{
    char address[ADDRESS_BYTES];
    CLEAN_FD int fd = listening_fd;
    (void)snprintf(address, sizeof(address), "ipc://%s", path);
    foreign_forbid(fd);
    if (zmq_setsockopt(socket, ZMQ_USE_FD, &fd, sizeof(fd)) < 0 || zmq_bind(socket, address) < 0) {
        return err_raise(-errno);
    }
    (void)steal_fd(&fd); /* libzmq closes it with the socket */
    return 0;
}

static int set_up_router(struct sock *sock)
{
    static const struct option options[] = {
        {ZMQ_LINGER, 0},
        {ZMQ_SNDHWM, ROUTER_QUEUE_MESSAGES},
        {ZMQ_RCVHWM, ROUTER_QUEUE_MESSAGES},
        {ZMQ_ROUTER_MANDATORY, 1},
        {ZMQ_ROUTER_HANDOVER, 1},
    };
    int r = open_socket(sock, ZMQ_ROUTER);
    if (r == 0) {
        r = set_options(sock->socket, options, ARRAY_LENGTH(options));
    }
    return r == 0 ? set_message_bytes_max(sock->socket, FRAME_REQUEST_BYTES_MAX) : r;
}

int sock_adopt_router(struct sock *sock, const char *path, int fd)
{
    struct sock made = SOCK_NULL;
    CLEAN_FD int owned = fd;
    int r = set_up_router(&made);
    if (r == 0) {
        r = bind_fd(made.socket, path, steal_fd(&owned));
    }
    if (r < 0) {
        sock_finish(&made);
        return r;
    }
    *sock = made;
    return 0;
}

int sock_bind_router(struct sock *sock, const char *path, mode_t mode)
{
    int fd = unix_listen(path, SOCK_STREAM, mode);
    return fd < 0 ? fd : sock_adopt_router(sock, path, fd);
}

/* IMMEDIATE: a request is queued only for a connection that stands. Without it a send to a daemon
 * that is not there succeeds, and the caller learns of it from a timeout. */
static int set_up_dealer(struct sock *sock, const char *path, const void *token, size_t n_bytes)
{
    static const struct option options[] = {
        {ZMQ_LINGER, 0},
        {ZMQ_SNDHWM, DEALER_SEND_MESSAGES},
        {ZMQ_RCVHWM, DEALER_QUEUE_MESSAGES},
        {ZMQ_IMMEDIATE, 1},
        {ZMQ_RECONNECT_IVL, RECONNECT_MSEC},
        {ZMQ_RECONNECT_IVL_MAX, RECONNECT_MSEC_MAX},
    };
    char address[ADDRESS_BYTES];
    int r = open_socket(sock, ZMQ_DEALER);
    if (r == 0) {
        r = set_options(sock->socket, options, ARRAY_LENGTH(options));
    }
    if (r == 0) {
        r = set_message_bytes_max(sock->socket, FRAME_REPLY_BYTES_MAX);
    }
    if (r < 0) {
        return r;
    }
    (void)snprintf(address, sizeof(address), "ipc://%s", path);
    if (zmq_setsockopt(sock->socket, ZMQ_ROUTING_ID, token, n_bytes) < 0 ||
        zmq_connect(sock->socket, address) < 0) {
        return err_raise(-errno);
    }
    return 0;
}

int sock_connect_dealer(struct sock *sock, const char *path, const void *token, size_t n_bytes)
{
    if (strlen(path) > UNIX_PATH_BYTES_MAX) {
        return err_raise(-ENAMETOOLONG);
    }
    struct sock made = SOCK_NULL;
    int r = set_up_dealer(&made, path, token, n_bytes);
    if (r < 0) {
        sock_finish(&made);
        return r;
    }
    *sock = made;
    return 0;
}

void sock_linger(struct sock *sock, int timeout_msec)
{
    GD_ASSERT(zmq_setsockopt(sock->socket, ZMQ_LINGER, &timeout_msec, sizeof(timeout_msec)) == 0);
}

void sock_finish(struct sock *sock)
{
    if (sock->socket != NULL) {
        (void)zmq_close(sock->socket);
    }
    while (sock->context != NULL && zmq_ctx_term(sock->context) < 0 && errno == EINTR) {
    }
    *sock = SOCK_NULL;
}

int sock_fd(const struct sock *sock)
{
    int fd = -1;
    size_t n_bytes = sizeof(fd);
    GD_ASSERT(zmq_getsockopt(sock->socket, ZMQ_FD, &fd, &n_bytes) == 0);
    return fd;
}

bool sock_can_receive(const struct sock *sock)
{
    int events = 0;
    size_t n_bytes = sizeof(events);
    int r;
    do {
        r = zmq_getsockopt(sock->socket, ZMQ_EVENTS, &events, &n_bytes);
    } while (r < 0 && errno == EINTR);
    return r == 0 && (events & ZMQ_POLLIN) != 0;
}

static int64_t now_msec(void)
{
    return (int64_t)(clock_now_nsec() / CLOCK_NSEC_PER_MSEC);
}

/* Waits until the socket can do `events`; a signal does not make the time longer. */
static int wait_for(struct sock *sock, short events, int64_t end_msec)
{
    zmq_pollitem_t item = {.socket = sock->socket, .events = events};
    for (;;) {
        int64_t left_msec = end_msec - now_msec();
        int n = zmq_poll(&item, 1, left_msec > 0 ? (long)left_msec : 0);
        if (n > 0) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return err_raise(-errno);
        }
        if (n == 0 && left_msec <= 0) {
            return -ETIMEDOUT;
        }
    }
}

int sock_send_request(struct sock *sock, const void *payload, size_t n_bytes, int timeout_msec)
{
    int64_t end_msec = now_msec() + timeout_msec;
    for (;;) {
        int r = wait_for(sock, ZMQ_POLLOUT, end_msec);
        if (r < 0) {
            return r;
        }
        if (zmq_send(sock->socket, NULL, 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) == 0) {
            break;
        }
        if (errno != EAGAIN && errno != EINTR) { /* EAGAIN: the connection went since the poll */
            return err_raise(-errno);
        }
    }
    while (zmq_send(sock->socket, payload, n_bytes, ZMQ_DONTWAIT) < 0) {
        if (errno != EINTR) {
            return err_raise(-errno);
        }
    }
    return 0;
}

/* Reads one whole multipart message. Frame 1 is kept; *ret_is_good tells [empty][payload]. */
static int receive_envelope(struct sock *sock, zmq_msg_t *payload, bool *ret_is_good)
{
    bool is_good = true;
    bool is_more = true;
    uint32_t n_frames = 0;
    for (; is_more; n_frames++) {
        zmq_msg_t frame;
        (void)zmq_msg_init(&frame);
        int n;
        do {
            n = zmq_msg_recv(&frame, sock->socket, ZMQ_DONTWAIT);
        } while (n < 0 && errno == EINTR);
        if (n < 0) {
            return err_raise(-errno);
        }
        is_more = zmq_msg_more(&frame) != 0;
        is_good = is_good && (n_frames > 0 || n == 0);
        if (n_frames == 1) {
            (void)zmq_msg_move(payload, &frame);
        }
        (void)zmq_msg_close(&frame);
    }
    *ret_is_good = is_good && n_frames == 2;
    return 0;
}

static int copy_payload(zmq_msg_t *payload, uint8_t **ret_payload, size_t *ret_n_bytes,
                        struct reason *why)
{
    size_t n_bytes = zmq_msg_size(payload);
    if (n_bytes > FRAME_REPLY_BYTES_MAX) {
        return reason_set(why, STATUS_BAD_FRAMING, "the reply has %zu bytes, over the limit of %u",
                          n_bytes, FRAME_REPLY_BYTES_MAX);
    }
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    if (copy == NULL) {
        return err_raise(-ENOMEM);
    }
    memcpy(copy, zmq_msg_data(payload), n_bytes);
    *ret_payload = copy;
    *ret_n_bytes = n_bytes;
    return 0;
}

int sock_receive_reply(struct sock *sock, int timeout_msec, uint8_t **ret_payload,
                       size_t *ret_n_bytes, struct reason *why)
{
    bool is_good = false;
    zmq_msg_t payload;
    int r = wait_for(sock, ZMQ_POLLIN, now_msec() + timeout_msec);
    if (r < 0) {
        return r;
    }
    (void)zmq_msg_init(&payload);
    r = receive_envelope(sock, &payload, &is_good);
    if (r == 0 && !is_good) {
        r = reason_set(why, STATUS_BAD_FRAMING,
                       "the reply is not an empty delimiter and one payload");
    }
    if (r == 0) {
        r = copy_payload(&payload, ret_payload, ret_n_bytes, why);
    }
    (void)zmq_msg_close(&payload);
    return r;
}
