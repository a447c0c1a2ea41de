/* server_internal.h - the process's parts: what server.c drives, and server_parts.c sets up and
 * takes down in one order. */
#pragma once

#include <stdint.h>
#include <systemd/sd-event.h>

#include "daemon/server/cmdline.h"
#include "daemon/server/config.h"
#include "daemon/server/control.h"
#include "daemon/server/core.h"
#include "daemon/server/exit_code.h"
#include "daemon/server/lockfile.h"
#include "daemon/server/probe.h"
#include "daemon/server/reception.h"
#include "daemon/server/site.h"
#include "daemon/server/startup.h"
#include "daemon/server/supervisor.h"
#include "daemon/server/watchdog.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"
#include "ipc/stats.h"

/* What the loop calls; userdata is the server. mail: also once without a source, for what workers
 * said last. */
struct server_handlers {
    sd_event_signal_handler_t signal;
    sd_event_io_handler_t mail;
    sd_event_handler_t turn;
    sd_event_time_handler_t tick;
};

struct server {
    struct config *config; /* these three: borrowed */
    const struct cmdline *cmdline;
    const struct server_handlers *handlers;
    enum exit_code exit_code;
    struct supervisor supervisor;
    char dir[CONFIG_TEXT_BYTES]; /* what is too long for a folder is refused, not cut */
    struct lockfile lockfile;
    struct stats_page *stats;
    sd_event *event;
    struct core core;
    struct reception reception;
    struct control control;
    struct startup startup;
    struct probe probes[CONFIG_DEVICES_MAX]; /* by device */
    struct site site;
    sd_event_source *more_source; /* defer: messages may wait in the control socket */
    sd_event_source *tick_source; /* on while loading, holding replies, or stopping */
    struct watchdog watchdog;
    uint32_t n_ticks;
    uint64_t stop_deadline_nsec;
};

/* server_set_up() - after config, cmdline, handlers, dir and supervisor are set, and lockfile is
 * LOCKFILE_NULL. On failure it is safe to tear down. 0, negative errno or a status.
 * server_tear_down() - in the other order, whatever has come to be. */
int server_set_up(struct server *server, struct reason *why) GD_MUST_CHECK;
void server_tear_down(struct server *server);
