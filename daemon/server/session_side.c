/* session_side.c - see session_side.h. Every request takes its quota first, then the resource, then
 * answers; a handler returns 0 when it has filled the answer, a status when it refuses, a negative
 * errno when the machine failed it, and one function turns those into a packet. */
#include "daemon/server/session_side_internal.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "ipc/base/log.h"
#include "ipc/base/num.h"
#include "ipc/lane.h"

/* ---- HELLO ---- */

static int check_hello(const struct ask *ask, struct reason *why)
{
    const struct side_hello *hello = &ask->packet->message.hello;
    if (ask->session->state == SESSION_DOOMED) {
        *why = ask->session->doom;
        return why->status;
    }
    if (ask->session->state != SESSION_NEW) {
        return reason_set(why, STATUS_INVALID_ARGUMENT, "a second HELLO on session %ju",
                          (uintmax_t)ask->session->id);
    }
    if (hello->version_max < SIDE_VERSION_MIN || hello->version_min > SIDE_VERSION_MAX ||
        hello->version_min > hello->version_max) {
        return reason_set(
            why, STATUS_VERSION,
            "the client speaks versions %u to %u, this daemon (" GEMMD_VERSION ") %u to %u",
            hello->version_min, hello->version_max, SIDE_VERSION_MIN, SIDE_VERSION_MAX);
    }
    if (hello->flags != 0) {
        return reason_set(why, STATUS_UNSUPPORTED, "HELLO flags 0x%x are not known", hello->flags);
    }
    return 0;
}

/* The wish, rounded up to a power of two, within what the operator allows. */
static uint32_t choose_entries(uint32_t wanted, uint32_t limit)
{
    uint32_t n = LANE_ENTRIES_MIN;
    while (wanted != 0 && n < wanted && n < limit) {
        n *= 2;
    }
    return wanted == 0 ? limit : (uint32_t)num_min(n, limit);
}

static void fill_welcome(struct ask *ask, const struct side_hello *hello)
{
    struct side_welcome *welcome = &ask->answer.welcome;
    const struct config *config = ask->core->config;
    side_init(&ask->answer, SIDE_WELCOME, hello->header.sequence);
    welcome->version = (uint32_t)num_min(hello->version_max, SIDE_VERSION_MAX);
    welcome->n_devices = ask->core->n_devices;
    welcome->session_id = ask->session->id;
    memcpy(welcome->token, ask->session->token, sizeof(welcome->token));
    (void)strncpy(welcome->daemon_version, GEMMD_VERSION, sizeof(welcome->daemon_version) - 1);
    welcome->in_flight_max = ask->session->lane_entries;
    welcome->rows_max = (uint32_t)config->rows_max;
    welcome->buffer_bytes_max = config->buffer_bytes_max;
    welcome->n_buffers_max = config->session_buffers_max;
}

static int on_hello(struct ask *ask, struct reason *why)
{
    const struct side_hello *hello = &ask->packet->message.hello;
    struct session *session = ask->session;
    int r = check_hello(ask, why);
    if (r != 0) {
        return r;
    }
    for (uint32_t i = 0; i + 1 < SIDE_NAME_BYTES && hello->name[i] != '\0'; i++) {
        session->name[i] = isprint((unsigned char)hello->name[i]) ? hello->name[i] : '?';
    }
    session->lane_entries =
        choose_entries(hello->lane_entries, (uint32_t)ask->core->config->lane_entries);
    session->state = SESSION_LIVE;
    session_table_publish(ask->table, session);
    ask->core->counters.n_sessions++;
    fill_welcome(ask, hello);
    log_write(LOG_LEVEL_DEBUG, "session", "session %ju: '%s', pid %d, user %u",
              (uintmax_t)session->id, session->name, (int)session->peer.pid, session->peer.uid);
    return 0;
}

/* ---- all of them ---- */

static const struct side_verb {
    enum side_type type;
    const char *name;
    int (*handle)(struct ask *ask, struct reason *why);
} side_verbs[] = {
    {SIDE_HELLO, "HELLO", on_hello},
    {SIDE_OPEN_LANE, "OPEN_LANE", side_on_open_lane},
    {SIDE_ALLOC_BUFFER, "ALLOC_BUFFER", side_on_alloc_buffer},
    {SIDE_IMPORT_BUFFER, "IMPORT_BUFFER", side_on_import_buffer},
    {SIDE_RELEASE_BUFFER, "RELEASE_BUFFER", side_on_release_buffer},
    {SIDE_IMPORT_IPC, "IMPORT_IPC", side_on_import_ipc},
    {SIDE_OPEN_ORDER, "OPEN_ORDER", side_on_open_order},
};

static int dispatch(struct ask *ask, struct reason *why)
{
    uint16_t type = ask->packet->message.header.type;
    for (uint32_t i = 0; i < ARRAY_LENGTH(side_verbs); i++) {
        if (side_verbs[i].type != type) {
            continue;
        }
        if (ask->packet->has_lost_fds) {
            return reason_set(why, STATUS_QUOTA,
                              "the daemon has no descriptor free for what came with %s",
                              side_verbs[i].name);
        }
        if (type != SIDE_HELLO && ask->session->state != SESSION_LIVE) {
            return reason_set(why, STATUS_NO_SESSION, "%s before HELLO", side_verbs[i].name);
        }
        return side_verbs[i].handle(ask, why);
    }
    return reason_set(why, STATUS_BAD_MESSAGE, "message type %u is not one a client sends", type);
}

static enum session_verdict send_answer(const struct session *session,
                                        const union side_message *answer, const int *fds,
                                        uint32_t n_fds)
{
    switch (-side_send(session->fd, answer, fds, n_fds)) {
    case 0:
        return SESSION_KEEP;
    case EPIPE:
    case ECONNRESET:
        return SESSION_GONE;
    default:
        return SESSION_DROP;
    }
}

enum session_verdict session_side_refuse(struct session *session, uint64_t sequence,
                                         const struct reason *why)
{
    union side_message message;
    side_init(&message, SIDE_REFUSED, sequence);
    message.refused.status = (uint32_t)why->status;
    memcpy(message.refused.text, why->text, sizeof(message.refused.text));
    return send_answer(session, &message, NULL, 0);
}

enum session_verdict session_side_answer(struct core *core, struct session_table *table,
                                         struct session *session, struct side_packet *packet)
{
    struct ask ask = {.core = core, .table = table, .session = session, .packet = packet};
    struct reason why = REASON_NULL;
    int r = dispatch(&ask, &why);
    if (r == 0) {
        return send_answer(session, &ask.answer, ask.fds, ask.n_fds);
    }
    if (r < 0) {
        (void)reason_errno(&why, r, "session %ju", (uintmax_t)session->id);
    }
    core->counters.n_side_refused++;
    enum session_verdict verdict = session_side_refuse(session, ask_sequence(&ask), &why);
    bool is_over = session->state != SESSION_LIVE || r == STATUS_BAD_MESSAGE;
    return verdict == SESSION_KEEP && is_over ? SESSION_CLOSE : verdict;
}
