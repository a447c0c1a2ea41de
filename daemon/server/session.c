/* session.c - see session.h. */
#include "daemon/server/session.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "ipc/base/error.h"
#include "ipc/base/foreign.h"

static int draw_token(char token[SIDE_TOKEN_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t random[SIDE_TOKEN_BYTES / 2];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return err_raise(-errno);
    }
    for (uint32_t i = 0; i < sizeof(random); i++) {
        token[2 * i] = digits[random[i] >> 4];
        token[2 * i + 1] = digits[random[i] & 15];
    }
    return 0;
}

int session_new(uint64_t id, int fd, const struct side_peer *peer, struct quota_charge *charge,
                const struct config *config, struct session **ret_session)
{
    struct session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return err_raise(-ENOMEM);
    }
    session->fd = -1;
    replies_init(&session->replies, (uint32_t)config->session_requests_max);
    list_init(&session->in_tokens);
    list_init(&session->in_ids);
    list_init(&session->in_all);
    for (uint32_t i = 0; i < CONFIG_DEVICES_MAX; i++) {
        session->lanes[i] =
            (struct session_lane){.region_fd = -1, .doorbell_fd = -1, .order = SESSION_ORDER_NULL};
    }
    int r = draw_token(session->token);
    r = r != 0 ? r : buffers_new((uint32_t)config->session_buffers_max, &session->buffers);
    if (r != 0) {
        session_free(session);
        return r;
    }
    session->id = id;
    session->fd = fd;
    session->peer = *peer;
    session->charge = *charge;
    *charge = QUOTA_CHARGE_NULL;
    *ret_session = session;
    return 0;
}

static void lane_forget(struct session_lane *lane)
{
    if (lane->region_fd >= 0) {
        (void)close(lane->region_fd);
        (void)close(lane->doorbell_fd);
    }
    session_order_finish(&lane->order);
    quota_give(&lane->charge);
}

struct session *session_free(struct session *session)
{
    if (session == NULL) {
        return NULL;
    }
    list_remove(&session->in_tokens);
    list_remove(&session->in_ids);
    list_remove(&session->in_all);
    replies_finish(&session->replies);
    for (uint32_t i = 0; i < CONFIG_DEVICES_MAX; i++) {
        lane_forget(&session->lanes[i]);
    }
    session->buffers = buffers_free(session->buffers);
    if (session->fd >= 0) {
        foreign_hang_up(session->fd);
    }
    quota_give(&session->charge);
    free(session);
    return NULL;
}

void session_detach(struct session *session, struct core *core)
{
    for (uint32_t i = 0; i < core->n_devices; i++) {
        if (core->workers[i] != NULL) { /* at the very end they have gone already */
            session->n_detaching++;
            worker_detach(core->workers[i], session->id);
        }
    }
}

struct worker_client session_as_client(const struct session *session)
{
    return (struct worker_client){.session_id = session->id, .buffers = session->buffers};
}
