/* server.c - see server.h.
 *
 * One thread runs everything here: sd-event with the session socket, the ZeroMQ descriptor, the
 * mailbox that workers post to, signals and one timer. ZeroMQ's descriptor is edge-triggered and
 * any call on the socket may swallow an edge, so the control socket is pumped in a post source,
 * after every turn of the loop that did anything; the descriptor's own source only wakes the loop.
 *
 * Life: lock, core, models (the loop runs already, so that a signal is heard), probe, sockets,
 * READY; then until SIGTERM or SIGINT: nothing new is taken, what is in flight ends, replies are
 * flushed, all within drain_timeout_msec; a second signal skips the waiting. SIGHUP: reload.h. */
#include "daemon/server/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

#include "daemon/server/log_sink.h"
#include "daemon/server/reload.h"
#include "daemon/server/server_internal.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"

#define MESSAGES_A_TURN 64u
#define MESSAGES_USEC   5000u /* a list of all weights takes milliseconds: others wait meanwhile */
#define TICK_USEC       10000u
#define STOP_GRACE_USEC 5000000u /* beyond drain_timeout_msec: replies, threads, memory */
#define TICKS_A_NOTIFY  100u

/* Say why, and leave the loop with that code. */
static void server_end(struct server *server, enum exit_code code)
{
    if (server->exit_code == EXIT_CODE_DONE) {
        server->exit_code = code;
    }
    (void)sd_event_exit(server->event, 0);
}

static void tick_on(struct server *server)
{
    (void)sd_event_source_set_time_relative(server->tick_source, TICK_USEC);
    (void)sd_event_source_set_enabled(server->tick_source, SD_EVENT_ONESHOT);
}

/* ---- becoming ready ---- */

static int open_sockets(struct server *server)
{
    mode_t mode = (mode_t)server->config->socket_mode;
    struct lockfile *lockfile = &server->lockfile;
    int control_fd = supervisor_socket(&server->supervisor, lockfile->control_path);
    int session_fd = supervisor_socket(&server->supervisor, lockfile->session_path);
    int r = control_open(&server->control, lockfile->control_path, mode, control_fd);
    return r != 0 ? r
                  : reception_open(&server->reception, lockfile->session_path, mode, session_fd);
}

static int on_zmq(GD_UNUSED sd_event_source *source, GD_UNUSED int fd, GD_UNUSED uint32_t events,
                  GD_UNUSED void *userdata)
{
    return 0; /* the post source does the work */
}

static void serve(struct server *server)
{
    int r = open_sockets(server);
    if (r == 0) {
        r = sd_event_add_io(server->event, NULL, sock_fd(&server->control.sock), EPOLLIN, on_zmq,
                            NULL);
    }
    r = r < 0 ? r : watchdog_begin(&server->watchdog, &server->core, server->event);
    if (r < 0) {
        server_end(server, exit_code_tell(r, NULL, "cannot open the sockets"));
        return;
    }
    server->core.phase = CORE_SERVING;
    server->core.ready_nsec = clock_now_nsec();
    log_write(LOG_LEVEL_NOTICE, "server", "gemmd " GEMMD_VERSION " serves on '%s'", server->dir);
    if (server->core.was_drained) {
        log_write(LOG_LEVEL_WARNING, "server",
                  "draining, as the process before this one was when it died; a restart ends that");
        core_drain(&server->core);
    }
    (void)sd_notifyf(0, "READY=1\nSTATUS=%s", core_phase_name(server->core.phase));
}

static bool is_probing(const struct server *server)
{
    for (uint32_t i = 0; i < server->core.n_devices; i++) {
        if (server->probes[i].state == PROBE_ASKED) {
            return true;
        }
    }
    return false;
}

/* Every device with something to compute has to compute it before anybody is let in. */
static void begin_probes(struct server *server)
{
    for (uint32_t i = 0; i < server->core.n_devices; i++) {
        struct reason why = REASON_NULL;
        bool is_under_way = false;
        int r = server->probes[i].state == PROBE_IDLE
                    ? probe_begin(&server->probes[i], &is_under_way, &why)
                    : 0;
        if (r != 0) {
            server_end(server, exit_code_tell(r, &why, "cannot probe the device"));
            return;
        }
    }
    if (!is_probing(server)) {
        serve(server);
    }
}

static void on_probe_reply(struct server *server, struct probe *probe,
                           const struct request_result *result)
{
    probe_on_reply(probe, result);
    site_on_probe(&server->site);
    if (server->core.phase != CORE_STARTING) {
        return;
    }
    if (result->status != STATUS_OK) {
        log_write(LOG_LEVEL_ERROR, "server", "the probe failed: %s", result->text);
        server_end(server, EXIT_CODE_FAILED);
        return;
    }
    if (!is_probing(server)) {
        serve(server);
    }
}

static void notify_loading(const struct server *server)
{
    char step[192];
    startup_describe(&server->startup, step, sizeof(step));
    (void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=%s", step);
}

static void poll_startup(struct server *server)
{
    struct reason why = REASON_NULL;
    if (server->n_ticks++ % TICKS_A_NOTIFY == 0) {
        notify_loading(server);
    }
    int r = startup_poll(&server->startup, &why);
    if (r == -EAGAIN) {
        tick_on(server);
        return;
    }
    if (r != 0) {
        server_end(server, exit_code_tell(r, &why, "cannot load"));
        return;
    }
    begin_probes(server);
}

/* ---- stopping ---- */

static void poll_stop(struct server *server)
{
    bool is_quiet = core_in_flight(&server->core) == 0 && control_is_quiet(&server->control);
    if (is_quiet || clock_now_nsec() >= server->stop_deadline_nsec) {
        server_end(server, EXIT_CODE_DONE);
        return;
    }
    tick_on(server);
}

static void begin_stop(struct server *server)
{
    bool was_starting = server->core.phase == CORE_STARTING;
    (void)sd_notifyf(0, "STOPPING=1\nSTATUS=finishing what is in flight\nEXTEND_TIMEOUT_USEC=%ju",
                     (uintmax_t)(server->config->drain_timeout_msec * 1000u + STOP_GRACE_USEC));
    core_stop(&server->core);
    server->stop_deadline_nsec = clock_now_nsec() + server->config->drain_timeout_msec * 1000000u;
    if (was_starting) {
        server_end(server, EXIT_CODE_DONE);
        return;
    }
    poll_stop(server);
}

static int on_signal(GD_UNUSED sd_event_source *source, const struct signalfd_siginfo *info,
                     void *userdata)
{
    struct server *server = userdata;
    if (info->ssi_signo == SIGHUP) {
        if (server->core.phase == CORE_SERVING) {
            (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%ju",
                             (uintmax_t)(clock_now_nsec() / 1000));
        }
        reload_config(&server->core, server->config, server->cmdline);
        /* Before, READY=1 would start a watchdog that nobody feeds yet. */
        if (server->core.phase == CORE_SERVING) {
            (void)sd_notify(0, "READY=1");
        }
        return 0;
    }
    bool is_second = server->core.phase == CORE_STOPPING;
    log_write(LOG_LEVEL_NOTICE, "server", "signal %u: stopping%s", info->ssi_signo,
              is_second ? " at once" : "");
    if (is_second) {
        server_end(server, EXIT_CODE_DONE);
        return 0;
    }
    begin_stop(server);
    return 0;
}

static int on_tick(GD_UNUSED sd_event_source *source, GD_UNUSED uint64_t usec, void *userdata)
{
    struct server *server = userdata;
    if (server->core.phase == CORE_STARTING) {
        poll_startup(server);
        return 0;
    }
    control_flush(&server->control);
    if (server->core.phase == CORE_STOPPING) {
        poll_stop(server);
    }
    return 0;
}

/* ---- news and messages ---- */

static void on_letter(struct server *server, const struct mail *mail)
{
    struct probe *probe = probe_of(server->probes, mail->session_id);
    switch (mail->kind) {
    case MAIL_REPLY:
        if (probe != NULL) {
            on_probe_reply(server, probe, &mail->result);
            return;
        }
        control_on_reply(&server->control, mail->session_id, &mail->result);
        return;
    case MAIL_DETACHED:
        if (probe != NULL) {
            probe_on_detached(probe);
            site_on_probe(&server->site);
            return;
        }
        reception_on_detached(&server->reception, mail->session_id);
        return;
    case MAIL_FATAL:
        log_event(LOG_EVENT_DEVICE_LOST, LOG_LEVEL_ERROR, "server", "a device is lost: %s",
                  mail->result.text);
        server_end(server, EXIT_CODE_FAILED);
        return;
    }
}

static void read_mailbox(struct server *server)
{
    struct list letters;
    list_init(&letters);
    int r = mailbox_take(&server->core.mailbox, &letters);
    for (struct list *node; (node = list_pop(&letters)) != NULL;) {
        struct mail *mail = LIST_OWNER(node, struct mail, in_box);
        on_letter(server, mail);
        free(mail);
    }
    if (r < 0) {
        server_end(server, exit_code_tell(r, NULL, "news of a worker is lost"));
    }
}

static int on_mail(GD_UNUSED sd_event_source *source, GD_UNUSED int fd, GD_UNUSED uint32_t events,
                   void *userdata)
{
    read_mailbox(userdata);
    return 0;
}

static int on_turn(GD_UNUSED sd_event_source *source, void *userdata)
{
    struct server *server = userdata;
    core_publish(&server->core);
    if (control_pump(&server->control, MESSAGES_A_TURN, MESSAGES_USEC)) {
        (void)sd_event_source_set_enabled(server->more_source, SD_EVENT_ONESHOT);
    }
    if (server->control.n_holding > 0 && server->core.phase < CORE_STOPPING) {
        int enabled = SD_EVENT_OFF;
        (void)sd_event_source_get_enabled(server->tick_source, &enabled);
        if (enabled == SD_EVENT_OFF) {
            tick_on(server);
        }
    }
    return 0;
}

/* ---- the process ---- */

void server_block_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set,
                      NULL); /* threads inherit it: signals come to the loop alone */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file over "ulimit -f" is an error, no death */
}

static const struct server_handlers handlers = {
    .signal = on_signal, .mail = on_mail, .turn = on_turn, .tick = on_tick};

static void say_configuration(const struct cmdline *cmdline)
{
    if (cmdline->config_path != NULL) {
        log_write(LOG_LEVEL_NOTICE, "server", "configured by '%s' and the command line",
                  cmdline->config_path);
    } else {
        log_write(LOG_LEVEL_NOTICE, "server",
                  "configured by the command line and defaults: no --config was given");
    }
}

enum exit_code server_run(struct config *config, const struct cmdline *cmdline)
{
    struct reason why = REASON_NULL;
    struct server *server =
        calloc(1, sizeof(*server)); /* the session table is too big for a stack */
    if (server == NULL) {
        return EXIT_CODE_FAILED;
    }
    server->config = config;
    server->cmdline = cmdline;
    server->handlers = &handlers;
    server->lockfile = LOCKFILE_NULL;
    bool has_weights = !cmdline->is_kept && supervisor_has_weights();
    say_configuration(cmdline);
    int r = supervisor_take(&server->supervisor);
    if (config->socket_dir[0] != '\0') {
        memcpy(server->dir, config->socket_dir, sizeof(config->socket_dir));
    } else {
        config_default_socket_dir(server->dir, sizeof(server->dir));
    }
    r = r != 0 ? r : server_set_up(server, &why);
    if (r == 0) {
        r = sd_event_loop(server->event);
    }
    if (r < 0 || why.status != 0) {
        server->exit_code = exit_code_tell(r, &why, "gemmd cannot run");
    }
    bool was_ready = server->core.ready_nsec != 0;
    server_tear_down(server);
    enum exit_code code = server->exit_code;
    free(server);
    bool is_to_retry = has_weights && !was_ready && code != EXIT_CODE_DONE;
    return is_to_retry ? supervisor_end_start(code) : code;
}
