/* wire.c - see wire.h. */
#include "tests/harness/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "ipc/base/num.h"
#include "ipc/codec.h"
#include "ipc/unix.h"

#define ZMTP_GREETING_BYTES 64
#define ZMTP_MORE           0x01u
#define ZMTP_COMMAND        0x04u

static void need(bool is_done, const char *what)
{
    if (!is_done) {
        perror(what);
        abort();
    }
}

static const char *socket_path(const struct fixture *fixture, const char *name)
{
    static char path[400];
    (void)snprintf(path, sizeof(path), "%s/%s", fixture->socket_dir, name);
    return path;
}

/* ---- session socket ---- */

int wire_connect(const struct fixture *fixture)
{
    int fd = side_connect(socket_path(fixture, SIDE_SOCKET_NAME), WIRE_REPLY_MSEC);
    need(fd >= 0, "connect to the session socket");
    return fd;
}

int wire_ask(const struct fixture *fixture, int fd, const union side_message *message,
             const int *fds, uint32_t n_fds, struct side_packet *ret_packet)
{
    int r = side_send(fd, message, fds, n_fds);
    if (r == 0) {
        r = side_receive(fd, ret_packet, NULL);
    }
    if (r != 1 && r != 0 && r != -ECONNRESET && r != -EPIPE) {
        fixture_fail(fixture, "a session packet of type %u: %d", message->header.type, r);
    }
    return r == 1;
}

int wire_hello(const struct fixture *fixture, int fd, struct side_packet *ret_packet)
{
    union side_message message;
    side_init(&message, SIDE_HELLO, 1);
    message.hello.version_min = SIDE_VERSION_MIN;
    message.hello.version_max = SIDE_VERSION_MAX;
    (void)snprintf(message.hello.name, sizeof(message.hello.name), "by hand");
    return wire_ask(fixture, fd, &message, NULL, 0, ret_packet);
}

int wire_session(const struct fixture *fixture, char ret_token[SIDE_TOKEN_BYTES])
{
    struct side_packet packet;
    int fd = wire_connect(fixture);
    if (wire_hello(fixture, fd, &packet) != 1 || packet.message.header.type != SIDE_WELCOME) {
        fixture_fail(fixture, "a client that says HELLO is not welcome");
    }
    memcpy(ret_token, packet.message.welcome.token, SIDE_TOKEN_BYTES);
    side_packet_finish(&packet);
    return fd;
}

uint64_t wire_buffer(const struct fixture *fixture, int fd, uint64_t size_bytes)
{
    union side_message message;
    struct side_packet packet;
    side_init(&message, SIDE_ALLOC_BUFFER, 2);
    message.alloc_buffer.size_bytes = size_bytes;
    if (wire_ask(fixture, fd, &message, NULL, 0, &packet) != 1 ||
        packet.message.header.type != SIDE_BUFFER) {
        fixture_fail(fixture, "a buffer of %ju bytes is not given", (uintmax_t)size_bytes);
    }
    uint64_t id = packet.message.buffer.buffer_id;
    side_packet_finish(&packet);
    return id;
}

/* ---- control socket through libzmq ---- */

void peer_option(struct peer *peer, int name, int value)
{
    need(zmq_setsockopt(peer->socket, name, &value, sizeof(value)) == 0, "zmq_setsockopt");
}

void peer_init_at(struct peer *peer, const char *address, int type, const void *id, size_t n_bytes)
{
    peer->context = zmq_ctx_new();
    peer->socket = zmq_socket(peer->context, type);
    need(peer->socket != NULL, "zmq_socket");
    peer_option(peer, ZMQ_RCVTIMEO, WIRE_REPLY_MSEC);
    peer_option(peer, ZMQ_SNDTIMEO, WIRE_REPLY_MSEC);
    peer_option(peer, ZMQ_LINGER, 0);
    if (n_bytes > 0) {
        need(zmq_setsockopt(peer->socket, ZMQ_ROUTING_ID, id, n_bytes) == 0, "routing id");
    }
    need(zmq_connect(peer->socket, address) == 0, address);
}

void peer_init(struct peer *peer, const struct fixture *fixture, int type, const void *id,
               size_t n_bytes)
{
    char address[420];
    (void)snprintf(address, sizeof(address), "ipc://%s", socket_path(fixture, SIDE_CONTROL_NAME));
    peer_init_at(peer, address, type, id, n_bytes);
}

void peer_finish(struct peer *peer)
{
    (void)zmq_close(peer->socket);
    (void)zmq_ctx_term(peer->context);
}

void peer_send(struct peer *peer, const void *bytes, size_t n_bytes)
{
    need(zmq_send(peer->socket, NULL, 0, ZMQ_SNDMORE) == 0 &&
             zmq_send(peer->socket, bytes, n_bytes, 0) == (int)n_bytes,
         "zmq_send");
}

bool peer_send_request(struct peer *peer, const struct msg_request *request)
{
    uint8_t *bytes;
    size_t n_bytes;
    need(codec_encode_request(request, &bytes, &n_bytes) == 0, "codec_encode_request");
    bool is_sent = zmq_send(peer->socket, NULL, 0, ZMQ_SNDMORE) == 0 &&
                   zmq_send(peer->socket, bytes, n_bytes, 0) == (int)n_bytes;
    free(bytes);
    return is_sent;
}

int peer_receive(struct peer *peer, uint64_t *ret_request_id)
{
    zmq_msg_t message;
    struct msg_reply reply = MSG_REPLY_NULL;
    (void)zmq_msg_init(&message);
    int r = zmq_msg_recv(&message, peer->socket, 0);
    int status = -1;
    if (r == 0 && zmq_msg_more(&message) && zmq_msg_recv(&message, peer->socket, 0) >= 0 &&
        codec_decode_reply(zmq_msg_data(&message), zmq_msg_size(&message), &reply, NULL) == 0) {
        status = reply.status;
        if (ret_request_id != NULL) {
            *ret_request_id = reply.request_id;
        }
        msg_reply_finish(&reply);
    }
    (void)zmq_msg_close(&message);
    return status;
}

int peer_ping(struct peer *peer, uint64_t request_id)
{
    const struct msg_request request = {.verb = MSG_VERB_PING, .request_id = request_id};
    uint64_t answered = 0;
    int status = peer_send_request(peer, &request) ? 0 : -1;
    while (status >= 0 && answered != request_id) {
        status = peer_receive(peer, &answered);
    }
    return status;
}

/* ---- control socket byte by byte ---- */

static bool send_all(int fd, const void *bytes, size_t n_bytes)
{
    return send(fd, bytes, n_bytes, MSG_NOSIGNAL) == (ssize_t)n_bytes;
}

static void receive_all(int fd, void *bytes, size_t n_bytes)
{
    need(recv(fd, bytes, n_bytes, MSG_WAITALL) == (ssize_t)n_bytes, "ZMTP handshake");
}

static size_t put_property(uint8_t *bytes, const char *name, const void *value, size_t n_bytes)
{
    size_t n_name = strlen(name);
    bytes[0] = (uint8_t)n_name;
    memcpy(bytes + 1, name, n_name);
    memset(bytes + 1 + n_name, 0, 3); /* the length is 4 bytes, big-endian */
    bytes[4 + n_name] = (uint8_t)n_bytes;
    memcpy(bytes + 5 + n_name, value, n_bytes);
    return 5 + n_name + n_bytes;
}

static void send_ready(int fd, const void *id, size_t n_bytes)
{
    uint8_t ready[255] = "\x05READY";
    size_t n = 6;
    need(n_bytes < 200, "the routing id's length");
    n += put_property(ready + n, "Socket-Type", "DEALER", 6);
    n += put_property(ready + n, "Identity", id, n_bytes);
    const uint8_t head[2] = {ZMTP_COMMAND, (uint8_t)n};
    need(send_all(fd, head, sizeof(head)) && send_all(fd, ready, n), "ZMTP READY");
}

int zmtp_connect(const struct fixture *fixture, const void *id, size_t n_bytes)
{
    static const uint8_t greeting[ZMTP_GREETING_BYTES] = {0xff, 0,    0, 0, 0,   0,   0,   0,
                                                          0,    0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    const struct timeval limit = {.tv_sec = WIRE_REPLY_MSEC / 1000};
    uint8_t bytes[256];
    int fd = unix_connect(socket_path(fixture, SIDE_CONTROL_NAME), SOCK_STREAM, WIRE_REPLY_MSEC);
    need(fd >= 0, "connect to the control socket");
    need(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0 &&
             setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0,
         "setsockopt");
    need(send_all(fd, greeting, sizeof(greeting)), "ZMTP greeting");
    receive_all(fd, bytes, ZMTP_GREETING_BYTES);
    send_ready(fd, id, n_bytes);
    receive_all(fd, bytes, 2);
    receive_all(fd, bytes, bytes[1]);
    return fd;
}

bool zmtp_send_frame(int fd, const void *bytes, uint8_t n_bytes, bool is_more)
{
    uint8_t frame[2 + UINT8_MAX] = {is_more ? ZMTP_MORE : 0, n_bytes};
    memcpy(frame + 2, bytes, n_bytes);
    return send_all(fd, frame, 2 + (size_t)n_bytes);
}
