/* reception.c - see reception.h. Everything here is provoked by clients, so every line goes through
 * the rate limit and every failure ends one connection and nothing else. */
#include "daemon/server/reception.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/server/session_side.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/foreign.h"
#include "ipc/base/log.h"
#include "ipc/side.h"

#define ACCEPTS_A_ROUND 16u
#define PACKETS_A_ROUND 16u
#define DOOMED_MAX      8u /* over-limit connections kept long enough to be told why */
#define LINES_A_SECOND  20u

void reception_init(struct reception *reception, struct core *core, sd_event *event)
{
    *reception = (struct reception){.core = core, .event = event, .listen_fd = -1};
    session_table_init(&reception->table);
}

static void forget_sources(struct session *session)
{
    session->io_source = sd_event_source_disable_unref(session->io_source);
    session->hello_timer = sd_event_source_disable_unref(session->hello_timer);
}

static void tell(struct reception *reception, const struct session *session, const char *why)
{
    if (why != NULL && log_allows(&reception->rate, LINES_A_SECOND, clock_now_nsec())) {
        log_write(LOG_LEVEL_WARNING, "session", "session %ju ('%s', pid %d) is hung up: %s",
                  (uintmax_t)session->id, session->name, (int)session->peer.pid, why);
    }
}

void reception_close_session(struct reception *reception, struct session *session, const char *why)
{
    if (session->state == SESSION_CLOSING) {
        return;
    }
    tell(reception, session, why);
    reception->core->counters.n_sessions_dropped += why != NULL;
    forget_sources(session);
    session_table_hide(session);
    foreign_hang_up(session->fd);
    session->fd = -1;
    if (session->state == SESSION_DOOMED) {
        reception->n_doomed--;
    }
    bool was_live = session->state == SESSION_LIVE;
    session->state = SESSION_CLOSING;
    if (!was_live) { /* no worker has ever heard of it */
        session_free(session);
        return;
    }
    session_detach(session, reception->core);
}

void reception_on_detached(struct reception *reception, uint64_t session_id)
{
    struct session *session = session_table_by_id(&reception->table, session_id);
    if (session == NULL) {
        return;
    }
    GD_ASSERT(session->n_detaching > 0);
    session->n_detaching--;
    if (session->n_detaching == 0) {
        log_write(LOG_LEVEL_DEBUG, "session", "session %ju has left", (uintmax_t)session_id);
        session_free(session);
    }
}

/* ---- packets ---- */

/* One packet. False when nothing waits or the session has gone: it may be freed then. */
static bool serve_one(struct reception *reception, struct session *session)
{
    struct side_packet packet;
    struct reason why = REASON_NULL;
    int r = side_receive(session->fd, &packet, &why);
    if (r == -EAGAIN) {
        return false;
    }
    if (r == 0) {
        reception_close_session(reception, session, NULL);
        return false;
    }
    if (r != 1) {
        if (r > 0) {
            reception->core->counters.n_bad_messages++;
            (void)session_side_refuse(session, 0, &why);
        }
        reception_close_session(reception, session, r > 0 ? why.text : strerror(-r));
        return false;
    }
    enum session_verdict verdict =
        session_side_answer(reception->core, &reception->table, session, &packet);
    side_packet_finish(&packet);
    static const char *const whys[] = {[SESSION_CLOSE] = "it was refused",
                                       [SESSION_DROP] = "it does not read its answers",
                                       [SESSION_GONE] = NULL};
    if (verdict != SESSION_KEEP) {
        reception_close_session(reception, session, whys[verdict]);
        return false;
    }
    if (session->state == SESSION_LIVE) {
        session->hello_timer = sd_event_source_disable_unref(session->hello_timer);
    }
    return true;
}

static int on_packet(GD_UNUSED sd_event_source *source, GD_UNUSED int fd, GD_UNUSED uint32_t events,
                     void *userdata)
{
    struct session *session = userdata;
    for (uint32_t i = 0; i < PACKETS_A_ROUND; i++) {
        if (!serve_one(session->reception, session)) {
            break;
        }
    }
    return 0;
}

static int on_hello_timeout(GD_UNUSED sd_event_source *source, GD_UNUSED uint64_t usec,
                            void *userdata)
{
    struct session *session = userdata;
    reception_close_session(session->reception, session, "it did not say HELLO in time");
    return 0;
}

/* ---- accepting ---- */

/* Over a limit: keep it until it says HELLO, so that it hears the reason; beyond a few, hang up. */
static int doom(struct reception *reception, struct session *session, const struct reason *why)
{
    reception->core->counters.n_sessions_refused++;
    if (log_allows(&reception->rate, LINES_A_SECOND, clock_now_nsec())) {
        log_write(LOG_LEVEL_WARNING, "session", "a session of pid %d, user %u, is refused: %s",
                  (int)session->peer.pid, session->peer.uid, why->text);
    }
    if (reception->n_doomed >= DOOMED_MAX) {
        return -ENOBUFS;
    }
    reception->n_doomed++;
    session->state = SESSION_DOOMED;
    session->doom = *why;
    return 0;
}

static int watch(struct reception *reception, struct session *session)
{
    uint64_t timeout_usec = reception->core->config->hello_timeout_msec * 1000;
    session->reception = reception;
    int r = sd_event_add_io(reception->event, &session->io_source, session->fd, EPOLLIN, on_packet,
                            session);
    if (r >= 0) {
        r = sd_event_add_time_relative(reception->event, &session->hello_timer, CLOCK_MONOTONIC,
                                       timeout_usec, 0, on_hello_timeout, session);
    }
    return r < 0 ? err_raise(r) : 0;
}

/* What a connection costs its user. Clients who hold all sessions or descriptors keep no
 * administrator from looking, unloading and draining. */
static int charge_session(struct core *core, uid_t uid, struct quota_charge *ret_charge,
                          struct reason *why)
{
    const uint64_t amounts[QUOTA_KINDS] = {[QUOTA_SESSIONS] = 1, [QUOTA_FDS] = SESSION_FDS};
    uint64_t n_beyond = config_is_admin(core->config, uid) ? CONFIG_ADMIN_SESSIONS : 0;
    const uint64_t beyond[QUOTA_KINDS] = {
        [QUOTA_SESSIONS] = n_beyond, [QUOTA_FDS] = n_beyond * SESSION_FDS};
    return quota_take_beyond(core->quota, uid, amounts, beyond, ret_charge, why);
}

/* Takes fd over on success. */
static int admit(struct reception *reception, int fd)
{
    struct side_peer peer;
    int r = side_peer(fd, &peer);
    if (r != 0) {
        return r;
    }
    struct reason why = REASON_NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    int refused = charge_session(reception->core, peer.uid, &charge, &why);
    if (refused < 0) {
        return refused;
    }
    struct session *session;
    r = session_new(reception->last_session_id + 1, fd, &peer, &charge, reception->core->config,
                    &session);
    if (r != 0) {
        quota_give(&charge);
        return r;
    }
    reception->last_session_id++;
    session_table_add(&reception->table, session);
    r = refused > 0 ? doom(reception, session, &why) : 0;
    r = r != 0 ? r : watch(reception, session);
    if (r != 0) {
        reception_close_session(reception, session, NULL);
    }
    return 0;
}

static int on_connection(GD_UNUSED sd_event_source *source, int listen_fd,
                         GD_UNUSED uint32_t events, void *userdata)
{
    struct reception *reception = userdata;
    for (uint32_t i = 0; i < ACCEPTS_A_ROUND; i++) {
        int fd = side_accept(listen_fd);
        if (fd < 0) { /* nobody, or one that is shed for want of descriptors: the socket stays
                         readable */
            break;
        }
        int r = admit(reception, fd);
        if (r != 0) {
            foreign_hang_up(fd);
        }
        if (r != 0 && log_allows(&reception->rate, LINES_A_SECOND, clock_now_nsec())) {
            log_write(LOG_LEVEL_WARNING, "session", "a connection is dropped: %s", strerror(-r));
        }
    }
    return 0;
}

int reception_open(struct reception *reception, const char *path, mode_t mode, int fd)
{
    fd = fd >= 0 ? fd : side_listen(path, mode);
    if (fd < 0) {
        return fd;
    }
    reception->listen_fd = fd;
    int r = sd_event_add_io(reception->event, &reception->listen_source, fd, EPOLLIN, on_connection,
                            reception);
    return r < 0 ? err_raise(r) : 0;
}

void reception_finish(struct reception *reception)
{
    reception->listen_source = sd_event_source_disable_unref(reception->listen_source);
    if (reception->listen_fd >= 0) {
        (void)close(reception->listen_fd);
        reception->listen_fd = -1;
    }
    list_for_each_safe (node, &reception->table.all) {
        struct session *session = LIST_OWNER(node, struct session, in_all);
        forget_sources(session);
        session_free(session);
    }
}
