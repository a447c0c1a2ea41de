/* sock.h - ZeroMQ sockets as gemmd uses them.
 *
 * The ZMQ_FD rule: the fd becomes readable when *something may have changed*, edge-triggered. After
 * every wake-up, and after every send, ask sock_can_receive() until it says no: a reader that
 * waits for the fd again with messages still queued sleeps for ever. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"

struct sock {
    void *context; /* owned */
    void *socket;  /* owned */
};

#define SOCK_NULL ((struct sock){0})

/* sock_bind_router() - daemon: ROUTER at ipc://path: message size capped at
 * FRAME_REQUEST_BYTES_MAX, bounded queues, ROUTER_MANDATORY, no linger, one I/O thread. Path, mode,
 * lock and what is found at path: as unix_listen() says; the caller unlinks the path at the end.
 * A second peer with a live peer's routing id takes its place (ROUTER_HANDOVER), so that a client
 * that reconnects is heard even if its old connection is still being torn down. */
int sock_bind_router(struct sock *sock, const char *path, mode_t mode) GD_MUST_CHECK;

/* sock_adopt_router() - the same on a socket that listens at path already, non-blocking; taken
 * over, closed on failure too. */
int sock_adopt_router(struct sock *sock, const char *path, int fd) GD_MUST_CHECK;

/* sock_connect_dealer() - client: DEALER with routing id = token. */
int sock_connect_dealer(struct sock *sock, const char *path, const void *token,
                        size_t n_bytes) GD_MUST_CHECK;

void sock_finish(struct sock *sock);

/* sock_linger() - let sock_finish() wait that long for what was sent to leave; it does not,
 * otherwise. */
void sock_linger(struct sock *sock, int timeout_msec);

/* sock_fd() - for a poll loop; see the rule above. sock_can_receive() - a whole message waits. */
int sock_fd(const struct sock *sock);
bool sock_can_receive(const struct sock *sock);

/* Client side, blocking: sock_send_request() sends [empty][payload]; sock_receive_reply() waits up
 * to timeout_msec for [empty][payload] and gives a malloc'd payload of at most
 * FRAME_REPLY_BYTES_MAX. Return: 0, -ETIMEDOUT, other negative errno, or STATUS_BAD_FRAMING. */
int sock_send_request(struct sock *sock, const void *payload, size_t n_bytes,
                      int timeout_msec) GD_MUST_CHECK;
int sock_receive_reply(struct sock *sock, int timeout_msec, uint8_t **ret_payload,
                       size_t *ret_n_bytes, struct reason *why) GD_MUST_CHECK;
