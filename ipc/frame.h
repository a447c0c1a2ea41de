/* frame.h - the ZeroMQ envelope: [routing id]... [empty delimiter] [one payload].
 *
 * As REQ and REP use it, so that a proxy may stand in between: every routing frame is kept and sent
 * back. The frame just before the delimiter is the sender's own routing id: the session's token. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

#define FRAME_ROUTES_MAX        8u   /* proxies in a row + 1 */
#define FRAME_ROUTE_BYTES_MAX   255u /* ZeroMQ's own limit */
#define FRAME_REQUEST_BYTES_MAX (64u * 1024u)
#define FRAME_REPLY_BYTES_MAX   (8u * 1024u * 1024u)

struct frame_route {
    uint8_t n_routes;
    uint8_t n_bytes[FRAME_ROUTES_MAX];
    uint8_t bytes[FRAME_ROUTES_MAX][FRAME_ROUTE_BYTES_MAX];
};

/* frame_receive() - daemon side: take one multipart message from a ROUTER without blocking.
 * payload: room for FRAME_REQUEST_BYTES_MAX. The whole multipart message is consumed whatever is
 * wrong with it. Return: 0 with *ret_route, *ret_n_bytes set; -EAGAIN when nothing waits; other
 * negative errno; STATUS_BAD_FRAMING with *ret_route set as far as it could be read (n_routes 0:
 * not even a sender). */
int frame_receive(void *zmq_socket, struct frame_route *ret_route, uint8_t *payload,
                  size_t *ret_n_bytes, struct reason *why) GD_MUST_CHECK;

/* frame_send() - daemon side: answer along a route without blocking. Return: 0; -EAGAIN when the
 * peer's queue is full; -EHOSTUNREACH when it is gone; other negative errno. */
int frame_send(void *zmq_socket, const struct frame_route *route, const uint8_t *payload,
               size_t n_bytes) GD_MUST_CHECK;

/* frame_sender() - the sender's own routing id (bytes within *route) and its length. */
const uint8_t *frame_sender(const struct frame_route *route, size_t *ret_n_bytes);
