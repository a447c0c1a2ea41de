/* site.c - see site.h. Being healthy is that this answers at all: the main loop turns. Being ready
 * is that every device has computed something lately, or does so now, while the caller waits. */
#include "daemon/server/site.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>

#include "daemon/server/metrics.h"
#include "daemon/server/openmetrics.h"
#include "daemon/server/page.h"
#include "daemon/server/status.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"
#include "ipc/unix.h"

#define TEXT "text/plain; charset=utf-8"

static void fill(struct http_reply *reply, unsigned code, const char *type, char *body)
{
    *reply = (struct http_reply){
        .code = code, .type = type, .body = body, .n_bytes = body != NULL ? strlen(body) : 0};
}

/* ---- ready ---- */

static void not_ready(struct http_reply *reply, const char *where, const char *why)
{
    char *body = NULL;
    if (asprintf(&body, "not ready: %s%s%s\n", where, where[0] != '\0' ? ": " : "", why) < 0) {
        body = NULL;
    }
    fill(reply, 503, TEXT, body);
}

static void wait_for_probe(struct site *site)
{
    int is_on = SD_EVENT_OFF;
    (void)sd_event_source_get_enabled(site->timer, &is_on);
    if (is_on == SD_EVENT_OFF) {
        (void)sd_event_source_set_time_relative(site->timer, PROBE_WAIT_MSEC * 1000ull);
        (void)sd_event_source_set_enabled(site->timer, SD_EVENT_ONESHOT);
    }
}

/* False: a probe is under way, and the answer waits for it. */
static bool answer_ready(struct site *site, struct http_reply *reply)
{
    const struct core *core = site->core;
    uint64_t max_age_nsec = core->config->ready_age_msec * CLOCK_NSEC_PER_MSEC;
    bool is_waiting = false;
    if (core->phase != CORE_SERVING) {
        not_ready(reply, "", core_phase_name(core->phase));
        return true;
    }
    for (uint32_t i = 0; i < core->n_devices; i++) {
        struct reason why = REASON_NULL;
        int r = probe_judge(&site->probes[i], max_age_nsec, &why);
        if (r != 0 && r != -EAGAIN) {
            not_ready(reply, core->devices[i]->name, r > 0 ? why.text : strerror(-r));
            return true;
        }
        is_waiting |= r == -EAGAIN;
    }
    if (is_waiting) {
        wait_for_probe(site);
        return false;
    }
    fill(reply, 200, TEXT, strdup("ready\n"));
    return true;
}

static int on_time(GD_UNUSED sd_event_source *source, GD_UNUSED uint64_t usec, void *arg)
{
    site_on_probe(arg);
    return 0;
}

void site_on_probe(struct site *site)
{
    if (site->http != NULL) {
        http_resume(site->http);
    }
}

/* ---- documents ---- */

static bool answer_status(struct site *site, struct http_reply *reply)
{
    fill(reply, 200, "application/json", status_document(site->core, site->table));
    return true;
}

static bool answer_metrics(struct site *site, bool is_openmetrics, struct http_reply *reply)
{
    *reply = (struct http_reply){.code = 200,
                                 .type = is_openmetrics ? OPENMETRICS_TYPE : OPENMETRICS_TYPE_TEXT};
    reply->body = metrics_document(site->core, is_openmetrics, &reply->n_bytes);
    return true;
}

static bool answer(void *arg, const struct http_request *request, struct http_reply *ret_reply)
{
    struct site *site = arg;
    if (strcmp(request->path, "/metrics") == 0) {
        return answer_metrics(site, request->wants_openmetrics, ret_reply);
    }
    if (strcmp(request->path, "/status") == 0) {
        return answer_status(site, ret_reply);
    }
    if (strcmp(request->path, "/readyz") == 0) {
        return answer_ready(site, ret_reply);
    }
    if (strcmp(request->path, "/healthz") == 0) {
        fill(ret_reply, 200, TEXT, strdup("ok\n"));
        return true;
    }
    if (strcmp(request->path, "/") == 0) {
        fill(ret_reply, 200, "text/html; charset=utf-8", strdup(page_html));
        return true;
    }
    fill(ret_reply, 404, TEXT, strdup("there are /, /status, /metrics, /healthz and /readyz\n"));
    return true;
}

/* ---- set-up and end ---- */

int site_init(struct site *site, const struct core *core, const struct session_table *table,
              struct probe *probes, struct sd_event *event)
{
    *site = (struct site){.core = core, .table = table, .probes = probes};
    int r =
        sd_event_add_time_relative(event, &site->timer, CLOCK_MONOTONIC, 0, 1000, on_time, site);
    if (r < 0) {
        return err_raise(r);
    }
    (void)sd_event_source_set_enabled(site->timer, SD_EVENT_OFF);
    return http_new(event, answer, site, &site->http);
}

/* A port is a wish of the operator's: that it cannot be had is theirs to mend, whatever it is. */
static int refuse_port(int error, uint64_t port, struct reason *why)
{
    if (error == EADDRINUSE) {
        return reason_set(why, STATUS_EXISTS,
                          "status_port: somebody else has port %ju of 127.0.0.1", (uintmax_t)port);
    }
    const char *cause = "";
    if (error == EACCES && port < 1024) {
        cause = "; ports under 1024 want CAP_NET_BIND_SERVICE";
    } else if (error == EAFNOSUPPORT || error == EACCES || error == EPERM) {
        cause = "; a systemd unit forbids it by RestrictAddressFamilies=, and deploy/systemd/"
                "README.md has the drop-in that allows it";
    }
    return reason_set(why, STATUS_PERMISSION, "status_port: cannot listen on 127.0.0.1:%ju: %s%s",
                      (uintmax_t)port, strerror(error), cause);
}

static int open_port(struct site *site, uint64_t port, struct reason *why)
{
    int r = http_listen_loopback(site->http, (unsigned short)port);
    if (r < 0) {
        return refuse_port(-r, port, why);
    }
    log_write(LOG_LEVEL_NOTICE, "server", "the status socket is on 127.0.0.1:%ju as well",
              (uintmax_t)port);
    return 0;
}

int site_open(struct site *site, const char *path, mode_t mode, int fd, uint64_t port,
              struct reason *why)
{
    fd = fd >= 0 ? fd : unix_listen(path, SOCK_STREAM, mode);
    if (fd < 0) {
        return fd;
    }
    int r = http_listen(site->http, fd);
    return r == 0 && port != 0 ? open_port(site, port, why) : r;
}

void site_finish(struct site *site)
{
    site->http = http_free(site->http);
    site->timer = sd_event_source_disable_unref(site->timer);
}
