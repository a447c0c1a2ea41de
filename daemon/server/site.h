/* site.h - what the status socket serves: /status, /metrics, /healthz, /readyz and / for browsers.
 * proto/PROTOCOL.md describes them. Main thread. */
#pragma once

#include "daemon/server/core.h"
#include "daemon/server/http.h"
#include "daemon/server/probe.h"
#include "daemon/server/session_table.h"

struct sd_event_source;

struct site {
    const struct core *core; /* these three: borrowed */
    const struct session_table *table;
    struct probe *probes; /* by device */
    struct http *http;
    struct sd_event_source *timer; /* ends the waiting for probes */
};

/* site_init() - no socket yet. 0 or negative errno. site_finish() - safe on a zeroed site. */
int site_init(struct site *site, const struct core *core, const struct session_table *table,
              struct probe *probes, struct sd_event *event) GD_MUST_CHECK;
void site_finish(struct site *site);

/* site_open() - listen at the path, or on a socket that does so already (fd >= 0; taken over), and
 * on the loopback port unless it is 0, which is logged. 0, negative errno, STATUS_EXISTS for a port
 * that somebody has, or STATUS_PERMISSION for one that cannot be had, whatever it is. */
int site_open(struct site *site, const char *path, mode_t mode, int fd, uint64_t port,
              struct reason *why) GD_MUST_CHECK;

/* site_on_probe() - a probe has been answered: who waits for it may be answered too. */
void site_on_probe(struct site *site);
