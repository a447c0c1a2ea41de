/* zmtp_meter.c - see zmtp_meter.h. A frame's limits are judged when its length is known, before its
 * body is read. Commands (handshake, heartbeats) are no part of a message, and libzmq keeps none.
 */
#include "ipc/zmtp_meter.h"

#include "ipc/base/num.h"

#define GREETING_BYTES    64u
#define SIGNATURE_AT      0u /* 0xff in every version since 2 */
#define MAJOR_AT          10u
#define MAJOR_MIN         3u
#define FLAG_MORE         0x01u
#define FLAG_LONG         0x02u /* the length takes 8 bytes instead of 1, big-endian */
#define FLAG_COMMAND      0x04u
#define LENGTH_BYTES      1u
#define LENGTH_BYTES_LONG 8u

void zmtp_meter_init(struct zmtp_meter *meter)
{
    *meter = (struct zmtp_meter){.stage = ZMTP_GREETING, .n_left = GREETING_BYTES};
}

static void begin_stage(struct zmtp_meter *meter, enum zmtp_stage stage, uint64_t n_left)
{
    meter->stage = stage;
    meter->n_left = n_left;
}

static void take_greeting(struct zmtp_meter *meter, uint8_t byte)
{
    uint64_t at = GREETING_BYTES - meter->n_left;
    if ((at == SIGNATURE_AT && byte != 0xff) || (at == MAJOR_AT && byte < MAJOR_MIN)) {
        begin_stage(meter, ZMTP_OVER, 0);
    } else if (--meter->n_left == 0) {
        begin_stage(meter, ZMTP_FLAGS, 1);
    }
}

static void take_flags(struct zmtp_meter *meter, uint8_t byte)
{
    meter->flags = byte;
    meter->length = 0;
    begin_stage(meter, ZMTP_LENGTH, (byte & FLAG_LONG) != 0 ? LENGTH_BYTES_LONG : LENGTH_BYTES);
}

static void end_frame(struct zmtp_meter *meter)
{
    if ((meter->flags & (FLAG_MORE | FLAG_COMMAND)) == 0) {
        meter->message_bytes = 0;
        meter->n_frames = 0;
    }
    begin_stage(meter, ZMTP_FLAGS, 1);
}

static bool is_within_limits(struct zmtp_meter *meter)
{
    if ((meter->flags & FLAG_COMMAND) != 0) {
        return true;
    }
    meter->n_frames++;
    return num_add(meter->message_bytes, meter->length, &meter->message_bytes) &&
           meter->message_bytes <= ZMTP_MESSAGE_BYTES_MAX &&
           meter->n_frames <= ZMTP_MESSAGE_FRAMES_MAX;
}

static void take_length(struct zmtp_meter *meter, uint8_t byte)
{
    meter->length = meter->length << 8 | byte;
    if (--meter->n_left > 0) {
        return;
    }
    if (!is_within_limits(meter)) {
        begin_stage(meter, ZMTP_OVER, 0);
    } else if (meter->length > 0) {
        begin_stage(meter, ZMTP_BODY, meter->length);
    } else {
        end_frame(meter);
    }
}

/* Returns how many of them belong to the body. */
static size_t skip_body(struct zmtp_meter *meter, size_t n_bytes)
{
    size_t n_skipped = num_min(n_bytes, meter->n_left);
    meter->n_left -= n_skipped;
    if (meter->n_left == 0) {
        end_frame(meter);
    }
    return n_skipped;
}

bool zmtp_meter_take(struct zmtp_meter *meter, const void *bytes, size_t n_bytes)
{
    const uint8_t *next = bytes;
    const uint8_t *end = next + n_bytes;
    while (next < end) {
        switch (meter->stage) {
        case ZMTP_GREETING:
            take_greeting(meter, *next++);
            break;
        case ZMTP_FLAGS:
            take_flags(meter, *next++);
            break;
        case ZMTP_LENGTH:
            take_length(meter, *next++);
            break;
        case ZMTP_BODY:
            next += skip_body(meter, (size_t)(end - next));
            break;
        case ZMTP_OVER:
            return false;
        }
    }
    return meter->stage != ZMTP_OVER;
}
