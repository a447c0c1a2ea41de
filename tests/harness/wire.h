/* wire.h - gemmd's two sockets spoken by hand, for clients that do not behave as the library does:
 * the session socket packet by packet, the control socket through libzmq or byte by byte. What goes
 * wrong in here ends the test program, as in fixture.h; they also run in child processes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/msg.h"
#include "ipc/side.h"
#include "tests/harness/fixture.h"

#define WIRE_REPLY_MSEC 20000

/* ---- session socket ---- */

int wire_connect(const struct fixture *fixture); /* the descriptor; blocking */

/* wire_ask() - one packet and its answer: 1 with *ret_packet, which the caller finishes, or 0 when
 * the daemon has hung up. wire_hello() - the same of a HELLO. */
int wire_ask(const struct fixture *fixture, int fd, const union side_message *message,
             const int *fds, uint32_t n_fds, struct side_packet *ret_packet);
int wire_hello(const struct fixture *fixture, int fd, struct side_packet *ret_packet);

/* wire_session() - connect and be welcomed. The descriptor, and the token of the control socket. */
int wire_session(const struct fixture *fixture, char ret_token[SIDE_TOKEN_BYTES]);

/* wire_buffer() - have size_bytes allocated on device 0; the id. The client does not map them. */
uint64_t wire_buffer(const struct fixture *fixture, int fd, uint64_t size_bytes);

/* ---- control socket through libzmq ---- */

struct peer {
    void *context;
    void *socket;
};

/* peer_init() - a socket of that ZMQ_ type with that routing id (n_bytes 0: libzmq's own choice),
 * connected to the daemon; peer_init_at() - to that address. It gives up after WIRE_REPLY_MSEC. */
void peer_init(struct peer *peer, const struct fixture *fixture, int type, const void *id,
               size_t n_bytes);
void peer_init_at(struct peer *peer, const char *address, int type, const void *id, size_t n_bytes);
void peer_finish(struct peer *peer);
void peer_option(struct peer *peer, int name, int value);

/* peer_send() - [empty][bytes] on a DEALER. peer_send_request() - the same, encoded; false when the
 * socket's time to send ran out. */
void peer_send(struct peer *peer, const void *bytes, size_t n_bytes);
bool peer_send_request(struct peer *peer, const struct msg_request *request);

/* peer_receive() - one reply on a DEALER: its status, or -1 when none came in time. */
int peer_receive(struct peer *peer, uint64_t *ret_request_id);

/* peer_ping() - status of the PING with that id; replies that come before it are dropped. */
int peer_ping(struct peer *peer, uint64_t request_id);

/* ---- control socket byte by byte ---- */

/* zmtp_connect() - a DEALER of ZMTP 3.0 that has shaken hands; the descriptor. */
int zmtp_connect(const struct fixture *fixture, const void *id, size_t n_bytes);

/* zmtp_send_frame() - of at most 255 bytes. False when the daemon has hung up, or has not read for
 * WIRE_REPLY_MSEC. */
bool zmtp_send_frame(int fd, const void *bytes, uint8_t n_bytes, bool is_more);
