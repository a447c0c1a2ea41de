/* frame.c - reading and writing the envelope, frame by frame.
 *
 * libzmq gives a multipart message whole or not at all, so after the first frame the others are
 * there. All of them are read even when the first is wrong: what stayed in the queue would be taken
 * for the start of the next message. A frame of ours is copied out before its length is trusted for
 * anything. Loop thread of the socket only. */
#include "ipc/frame.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <zmq.h>

enum frame_stage { STAGE_ROUTES, STAGE_PAYLOAD, STAGE_DONE };

struct frame_reader {
    enum frame_stage stage;
    struct frame_route *route;
    uint8_t *payload;
    size_t n_payload_bytes;
    uint32_t n_frames;
    int status; /* of the first thing wrong; 0 so far */
    struct reason *why;
};

static int read_route(struct frame_reader *reader, const void *bytes, size_t n_bytes)
{
    struct frame_route *route = reader->route;
    if (n_bytes == 0) {
        reader->stage = STAGE_PAYLOAD;
        return route->n_routes > 0 ? 0
                                   : reason_set(reader->why, STATUS_BAD_FRAMING,
                                                "the message has no routing frame");
    }
    if (n_bytes > FRAME_ROUTE_BYTES_MAX) {
        return reason_set(reader->why, STATUS_BAD_FRAMING,
                          "frame %u has %zu bytes where a routing id (at most %u) or the empty "
                          "delimiter belongs",
                          reader->n_frames, n_bytes, FRAME_ROUTE_BYTES_MAX);
    }
    if (route->n_routes == FRAME_ROUTES_MAX) {
        return reason_set(reader->why, STATUS_BAD_FRAMING,
                          "the message has more than %u routing frames", FRAME_ROUTES_MAX);
    }
    memcpy(route->bytes[route->n_routes], bytes, n_bytes);
    route->n_bytes[route->n_routes] = (uint8_t)n_bytes;
    route->n_routes++;
    return 0;
}

static int read_frame(struct frame_reader *reader, const void *bytes, size_t n_bytes)
{
    switch (reader->stage) {
    case STAGE_ROUTES:
        return read_route(reader, bytes, n_bytes);
    case STAGE_PAYLOAD:
        if (n_bytes > FRAME_REQUEST_BYTES_MAX) {
            return reason_set(reader->why, STATUS_BAD_FRAMING,
                              "the payload has %zu bytes, over the limit of %u", n_bytes,
                              FRAME_REQUEST_BYTES_MAX);
        }
        memcpy(reader->payload, bytes, n_bytes);
        reader->n_payload_bytes = n_bytes;
        reader->stage = STAGE_DONE;
        return 0;
    case STAGE_DONE:
        break;
    }
    return reason_set(reader->why, STATUS_BAD_FRAMING,
                      "the message has more than one payload frame");
}

/* One frame from the socket through the reader; *ret_more tells whether another follows. */
static int receive_frame(void *zmq_socket, struct frame_reader *reader, bool *ret_more)
{
    zmq_msg_t frame;
    (void)zmq_msg_init(&frame);
    while (zmq_msg_recv(&frame, zmq_socket, ZMQ_DONTWAIT) < 0) {
        if (errno != EINTR) {
            int r = -errno;
            (void)zmq_msg_close(&frame);
            return r;
        }
    }
    if (reader->status == 0) {
        reader->status = read_frame(reader, zmq_msg_data(&frame), zmq_msg_size(&frame));
    }
    reader->n_frames++;
    *ret_more = zmq_msg_more(&frame) != 0;
    (void)zmq_msg_close(&frame);
    return 0;
}

static int finish_reading(struct frame_reader *reader)
{
    if (reader->stage == STAGE_ROUTES && reader->route->n_routes > 1) {
        /* With no delimiter nobody knows which frames were routes. The first is: our ROUTER put it
         * there itself. */
        reader->route->n_routes = 1;
    }
    if (reader->status != 0 || reader->stage == STAGE_DONE) {
        return reader->status;
    }
    return reason_set(reader->why, STATUS_BAD_FRAMING, "the message of %u frames has no %s",
                      reader->n_frames,
                      reader->stage == STAGE_ROUTES ? "empty delimiter" : "payload frame");
}

int frame_receive(void *zmq_socket, struct frame_route *ret_route, uint8_t *payload,
                  size_t *ret_n_bytes, struct reason *why)
{
    struct frame_reader reader = {.route = ret_route, .payload = payload, .why = why};
    bool is_more = true;

    ret_route->n_routes = 0;
    while (is_more) {
        int r = receive_frame(zmq_socket, &reader, &is_more);
        if (r < 0) {
            return r;
        }
    }
    int r = finish_reading(&reader);
    if (r == 0) {
        *ret_n_bytes = reader.n_payload_bytes;
    }
    return r;
}

static int send_frame(void *zmq_socket, const void *bytes, size_t n_bytes, int flags)
{
    while (zmq_send(zmq_socket, bytes, n_bytes, flags | ZMQ_DONTWAIT) < 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

/* The first frame decides: libzmq refuses it when the peer is gone or its queue is full, and takes
 * the rest of the message otherwise. */
int frame_send(void *zmq_socket, const struct frame_route *route, const uint8_t *payload,
               size_t n_bytes)
{
    for (uint8_t i = 0; i < route->n_routes; i++) {
        int r = send_frame(zmq_socket, route->bytes[i], route->n_bytes[i], ZMQ_SNDMORE);
        if (r < 0) {
            return r;
        }
    }
    int r = send_frame(zmq_socket, NULL, 0, ZMQ_SNDMORE);
    return r < 0 ? r : send_frame(zmq_socket, payload, n_bytes, 0);
}

const uint8_t *frame_sender(const struct frame_route *route, size_t *ret_n_bytes)
{
    if (route->n_routes == 0) {
        *ret_n_bytes = 0;
        return route->bytes[0];
    }
    *ret_n_bytes = route->n_bytes[route->n_routes - 1];
    return route->bytes[route->n_routes - 1];
}
