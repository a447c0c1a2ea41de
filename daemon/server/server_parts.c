/* server_parts.c - see server_internal.h. */
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include "daemon/server/accept_guard.h"
#include "daemon/server/control_guard.h"
#include "daemon/server/message_guard.h"
#include "daemon/server/server_internal.h"
#include "ipc/base/error.h"

#define LINGER_MSEC 500 /* for ZeroMQ to hand the last replies to the kernel */

/* ---- sources of events ---- */

static int on_more(GD_UNUSED sd_event_source *source, GD_UNUSED void *userdata)
{
    return 0; /* the turn itself is what was wanted: the post source follows */
}

static int add_signals(struct server *server)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (uint32_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        int r =
            sd_event_add_signal(server->event, NULL, signals[i], server->handlers->signal, server);
        if (r < 0) {
            return err_raise(r);
        }
    }
    return 0;
}

static int add_sources(struct server *server)
{
    sd_event *event = server->event;
    sd_event_source *mail_source = NULL;
    int r = add_signals(server);
    if (r == 0) {
        r = sd_event_add_io(event, &mail_source, server->core.mailbox.event_fd, EPOLLIN,
                            server->handlers->mail, server);
    }
    if (r >= 0) {
        /* Before the control socket, so that undelivered news stay bounded by what is in flight. */
        r = sd_event_source_set_priority(mail_source, SD_EVENT_PRIORITY_IMPORTANT);
        (void)sd_event_source_set_floating(mail_source, 1);
        (void)sd_event_source_unref(mail_source);
    }
    r = r < 0 ? r : sd_event_add_post(event, NULL, server->handlers->turn, server);
    r = r < 0 ? r : sd_event_add_defer(event, &server->more_source, on_more, NULL);
    r = r < 0 ? r
              : sd_event_add_time_relative(event, &server->tick_source, CLOCK_MONOTONIC, 0, 1,
                                           server->handlers->tick, server);
    return r < 0 ? err_raise(r) : 0;
}

static void on_overflow(void *arg, struct session *session, const char *why)
{
    reception_close_session(arg, session, why);
}

/* ---- set-up and tear-down ---- */

/* Open from now on: who watches the loading of models is told how it goes. */
static int open_site(struct server *server, struct reason *why)
{
    int r = site_init(&server->site, &server->core, &server->reception.table, server->probes,
                      server->event);
    return r != 0 ? r
                  : site_open(&server->site, server->lockfile.status_path,
                              (mode_t)server->config->socket_mode,
                              supervisor_socket(&server->supervisor, server->lockfile.status_path),
                              server->config->status_port, why);
}

static int make_stats(struct server *server, struct reason *why)
{
    const char *path = server->lockfile.stats_path;
    mode_t mode = server->config->socket_mode & 0040 ? 0440 : 0400;
    int r = stats_create(path, mode, GEMMD_VERSION, &server->stats);
    return r == 0 ? 0
                  : reason_set(why, STATUS_INTERNAL, "cannot make '%s': %s", path, strerror(-r));
}

int server_set_up(struct server *server, struct reason *why)
{
    struct keep keep = KEEP_NULL;
    int r = accept_guard_init();
    r = r != 0 ? r : supervisor_keep(&server->supervisor, &keep);
    r = r != 0 ? r
               : lockfile_take(&server->lockfile, server->dir, (mode_t)server->config->socket_mode,
                               why);
    server->lockfile.has_foreign_sockets =
        r == 0 && supervisor_has_socket(&server->supervisor, server->lockfile.session_path);
    r = r != 0 ? r : message_guard_init(server->lockfile.control_path, accept_guard_limit());
    r = r != 0 ? r : make_stats(server, why);
    r = r != 0 ? r : sd_event_new(&server->event);
    r = r != 0 ? r : core_init(&server->core, server->config, server->stats, &keep, why);
    keep_finish(&keep); /* empty once the core has it */
    if (r != 0) {
        return r;
    }
    server->startup.core = &server->core;
    for (uint32_t i = 0; i < server->core.n_devices; i++) {
        probe_init(&server->probes[i], &server->core, i);
    }
    reception_init(&server->reception, &server->core, server->event);
    r = control_init(&server->control, &server->core, &server->reception.table);
    server->control.on_overflow = on_overflow;
    server->control.arg = &server->reception;
    r = r != 0 ? r : add_sources(server);
    return r != 0 ? r : open_site(server, why);
}

/* The workers end first; what they had to say then is still told; then sockets, sessions, the rest.
 */
void server_tear_down(struct server *server)
{
    bool is_set_up = server->core.config != NULL;
    if (is_set_up) {
        core_join(&server->core);
    }
    if (server->control.sock.socket != NULL) {
        (void)server->handlers->mail(NULL, -1, 0, server);
        control_flush(&server->control);
        sock_linger(&server->control.sock, LINGER_MSEC);
    }
    control_finish(&server->control);
    site_finish(&server->site);
    for (uint32_t i = 0; i < CONFIG_DEVICES_MAX; i++) {
        probe_finish(&server->probes[i]);
    }
    if (server->reception.core != NULL) {
        reception_finish(&server->reception);
    }
    if (is_set_up) {
        core_finish(&server->core);
    }
    (void)sd_event_source_unref(server->more_source);
    watchdog_finish(&server->watchdog);
    (void)sd_event_source_unref(server->tick_source);
    (void)sd_event_unref(server->event);
    server->stats = stats_remove(server->stats, server->lockfile.stats_path);
    lockfile_finish(&server->lockfile);
    message_guard_finish();
    control_guard_finish();
    accept_guard_finish();
    supervisor_finish(&server->supervisor);
}
