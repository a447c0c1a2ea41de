/* zmtp_meter.h - reads along a ZMTP 3 connection and measures its messages, frame by frame, without
 * keeping a byte of them.
 *
 * libzmq bounds the bytes of a frame and the messages that wait, but not the frames of a message,
 * and keeps every frame of a message until the last has come. Whoever feeds this meter with what a
 * peer sends knows when a message has become too much. Source: the ZMTP 3.1 specification, greeting
 * and framing. Threads: one meter, one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/frame.h"

/* More than any message that is answered has, and little enough to hold: twice the largest payload,
 * and wrong framing up to a thousand frames is still told what is wrong with it. */
#define ZMTP_MESSAGE_BYTES_MAX  (2u * FRAME_REQUEST_BYTES_MAX)
#define ZMTP_MESSAGE_FRAMES_MAX 1024u

enum zmtp_stage { ZMTP_GREETING, ZMTP_FLAGS, ZMTP_LENGTH, ZMTP_BODY, ZMTP_OVER };

/* One direction of one connection. Embedded; plain value. */
struct zmtp_meter {
    enum zmtp_stage stage;
    uint8_t flags;          /* of the frame that is being read */
    uint64_t length;        /* of its body, as far as it is known */
    uint64_t n_left;        /* bytes of this stage still to come */
    uint64_t message_bytes; /* of the message that has not ended: bodies of its frames */
    uint32_t n_frames;      /* of it */
};

/* zmtp_meter_init() - at the start of a connection. */
void zmtp_meter_init(struct zmtp_meter *meter);

/* zmtp_meter_take() - the next bytes of the connection, cut anywhere. False once a message is over
 * a limit or the peer does not speak ZMTP 3 or later, and for ever after. */
bool zmtp_meter_take(struct zmtp_meter *meter, const void *bytes, size_t n_bytes) GD_MUST_CHECK;
