/* frame.c - fuzz: a multipart message as a ROUTER would hand it over. Input: frames, each a length
 * of two bytes (big end first) and that many bytes; a frame cut short ends the message. A second,
 * valid message follows and must be received whatever the first was. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <zmq.h>

#include "ipc/frame.h"

#define FRAMES_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* PAIR sockets pass frames on as they are; kept for the life of the process. */
static struct {
    void *writer;
    void *reader;
} pipes;

static void open_link(void)
{
    void *context = zmq_ctx_new();
    pipes.reader = zmq_socket(context, ZMQ_PAIR);
    pipes.writer = zmq_socket(context, ZMQ_PAIR);
    /* No high-water mark: the writer learns only now and then that the reader has read. */
    GD_ASSERT(zmq_setsockopt(pipes.reader, ZMQ_RCVHWM, &(int){0}, sizeof(int)) == 0);
    GD_ASSERT(zmq_setsockopt(pipes.writer, ZMQ_SNDHWM, &(int){0}, sizeof(int)) == 0);
    GD_ASSERT(zmq_bind(pipes.reader, "inproc://frames") == 0);
    GD_ASSERT(zmq_connect(pipes.writer, "inproc://frames") == 0);
}

static void send_frame(const void *bytes, size_t n_bytes, int flags)
{
    GD_ASSERT(zmq_send(pipes.writer, bytes, n_bytes, flags | ZMQ_DONTWAIT) == (int)n_bytes);
}

static void send_frames(const uint8_t *data, size_t n_bytes)
{
    size_t at = 0;
    for (int i = 0; i < FRAMES_MAX && at + 2 <= n_bytes; i++) {
        size_t n_left = n_bytes - at - 2;
        size_t n_frame = (size_t)data[at] << 8 | data[at + 1];
        n_frame = n_frame < n_left ? n_frame : n_left;
        send_frame(data + at + 2, n_frame, ZMQ_SNDMORE);
        at += 2 + n_frame;
    }
    send_frame(data + at, n_bytes - at < 2 ? n_bytes - at : 0, 0);
}

static uint8_t payload[FRAME_REQUEST_BYTES_MAX];

static void check_next_is_received(void)
{
    struct frame_route route;
    size_t n_bytes = 0;
    send_frame("me", 2, ZMQ_SNDMORE);
    send_frame("", 0, ZMQ_SNDMORE);
    send_frame("next", 4, 0);
    GD_ASSERT(frame_receive(pipes.reader, &route, payload, &n_bytes, NULL) == 0);
    GD_ASSERT(n_bytes == 4 && memcmp(payload, "next", 4) == 0 && route.n_routes == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct frame_route route;
    struct reason why = REASON_NULL;
    size_t n_payload_bytes = 0;
    if (pipes.reader == NULL) {
        open_link();
    }
    send_frames(data, n_bytes);
    int r = frame_receive(pipes.reader, &route, payload, &n_payload_bytes, &why);
    GD_ASSERT(r == 0 || (r == STATUS_BAD_FRAMING && why.text[0] != '\0'));
    GD_ASSERT(route.n_routes <= FRAME_ROUTES_MAX && (r != 0 || route.n_routes > 0));
    size_t n_sender_bytes = 0;
    const uint8_t *sender = frame_sender(&route, &n_sender_bytes);
    GD_ASSERT(sender >= route.bytes[0] && n_sender_bytes <= FRAME_ROUTE_BYTES_MAX);
    check_next_is_received();
    return 0;
}
