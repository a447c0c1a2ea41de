/* fake_side.c - the fake daemon's side of the session socket. */
#include <stdio.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/side.h"
#include "tests/unit/client/fake_daemon_internal.h"

void fake_end_session(struct fake_daemon *fake, struct fake_session *session)
{
    for (uint32_t i = 0; i < fake->n_held;) {
        if (fake->held[i].session == session) {
            fake->held[i] = fake->held[--fake->n_held];
        } else {
            i++;
        }
    }
    cleanup_fd(&session->fd);
    session->fd = -1;
    lane_finish(&session->lane);
    for (uint32_t i = 0; i < BUFFERS_MAX; i++) {
        region_finish(&session->buffers[i]);
    }
}

static uint32_t free_buffer(const struct fake_session *session)
{
    uint32_t i = 1; /* 0 is no buffer */
    while (i < BUFFERS_MAX - 1 && session->buffers[i].base) {
        i++;
    }
    return i;
}

static uint32_t make_buffer(struct fake_daemon *fake, struct fake_session *session,
                            struct side_packet *question, union side_message *reply, int *fds)
{
    uint32_t i = free_buffer(session);
    struct region *region = &session->buffers[i];
    uint64_t n_bytes = question->message.alloc_buffer.size_bytes;
    reply->buffer.buffer_id = i;
    reply->buffer.size_bytes = n_bytes;
    if (question->message.header.type == SIDE_IMPORT_BUFFER) {
        struct reason why;
        (void)!region_import(region, steal_fd(&question->fds[0]), n_bytes, &why);
        return 0;
    }
    (void)!region_create(region, "fake", fake_has(fake, FAKE_SMALL_REGION) ? 1 : n_bytes);
    reply->buffer.memory = SIDE_MEMORY_MEMFD;
    fds[0] = region->fd;
    return fake_has(fake, FAKE_NO_FDS) ? 0 : 1;
}

static uint32_t make_lane(struct fake_daemon *fake, struct fake_session *session,
                          union side_message *reply, int *fds)
{
    if (!session->lane.shared) {
        (void)!lane_create(&session->lane, FAKE_LANE_ENTRIES, 0);
    }
    reply->lane.n_entries = FAKE_LANE_ENTRIES;
    fds[0] = session->lane.region.fd;
    fds[1] = session->lane.doorbell_fd;
    return fake_has(fake, FAKE_NO_FDS) ? 0 : 2;
}

static void welcome(struct fake_daemon *fake, const struct fake_session *session,
                    union side_message *reply)
{
    reply->welcome.version = fake_has(fake, FAKE_WRONG_VERSION) ? 99 : SIDE_VERSION_MAX;
    reply->welcome.n_devices = 1;
    reply->welcome.rows_max = FAKE_ROWS_MAX;
    reply->welcome.in_flight_max = FAKE_LANE_ENTRIES;
    memset(reply->welcome.token, (int)('a' + (session - fake->sessions)), SIDE_TOKEN_BYTES);
}

static enum side_type answer_type(const struct fake_daemon *fake, uint16_t question)
{
    if (fake_has(fake, FAKE_REFUSE | FAKE_REFUSE_WITH_OK)) {
        return SIDE_REFUSED;
    }
    if (question == SIDE_HELLO || fake_has(fake, FAKE_WRONG_TYPE)) {
        return SIDE_WELCOME;
    }
    return question == SIDE_OPEN_LANE ? SIDE_LANE : SIDE_BUFFER;
}

static void answer_side(struct fake_daemon *fake, struct fake_session *session,
                        struct side_packet *question)
{
    union side_message reply;
    int fds[SIDE_FDS_MAX];
    uint32_t n_fds = 0;
    uint16_t asked = question->message.header.type;
    side_init(&reply, answer_type(fake, asked), question->message.header.sequence);
    switch (reply.header.type) {
    case SIDE_REFUSED:
        reply.refused.status = fake_has(fake, FAKE_REFUSE) ? STATUS_QUOTA : STATUS_OK;
        (void)snprintf(reply.refused.text, sizeof(reply.refused.text), "3 of 3 are in use");
        break;
    case SIDE_WELCOME:
        welcome(fake, session, &reply);
        break;
    case SIDE_LANE:
        n_fds = make_lane(fake, session, &reply, fds);
        break;
    default:
        if (asked == SIDE_RELEASE_BUFFER) {
            region_finish(&session->buffers[question->message.release_buffer.buffer_id % 64]);
        } else {
            n_fds = make_buffer(fake, session, question, &reply, fds);
        }
    }
    fake_be_late(fake, FAKE_LATE_ANSWER);
    fake_be_late(fake, asked == SIDE_OPEN_LANE ? FAKE_LATE_LANE : 0);
    (void)!side_send(session->fd, &reply, fds, n_fds);
}

void fake_look_at_session(struct fake_daemon *fake, struct fake_session *session)
{
    struct side_packet packet;
    struct reason why;
    int r = 1;
    while (session->fd >= 0 && (r = side_receive(session->fd, &packet, &why)) == 1) {
        if (fake_has(fake, FAKE_HANG_UP)) {
            fake_end_session(fake, session);
        } else {
            answer_side(fake, session, &packet);
        }
        side_packet_finish(&packet);
    }
    if (r == 0) {
        fake_end_session(fake, session);
    }
}
