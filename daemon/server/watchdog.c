/* watchdog.c - see watchdog.h. */
#include "daemon/server/watchdog.h"

#include <systemd/sd-daemon.h>

#include "ipc/base/error.h"
#include "ipc/base/log.h"

#define SIGNS 3u /* that the supervisor could have within its limit */

static void give_sign(const struct core *core)
{
    for (uint32_t i = 0; i < core->n_devices; i++) {
        if (!worker_has_answered(core->workers[i])) {
            log_event(LOG_EVENT_NO_SIGN_OF_LIFE, LOG_LEVEL_WARNING, "server",
                      "the worker of device %s does not answer", core->devices[i]->name);
            return;
        }
    }
    (void)sd_notify(0, "WATCHDOG=1");
    for (uint32_t i = 0; i < core->n_devices; i++) {
        worker_ask(core->workers[i]);
    }
}

static int on_time(sd_event_source *source, GD_UNUSED uint64_t usec, void *userdata)
{
    struct watchdog *watchdog = userdata;
    give_sign(watchdog->core);
    (void)sd_event_source_set_time_relative(source, watchdog->every_usec);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int watchdog_begin(struct watchdog *watchdog, const struct core *core, sd_event *event)
{
    uint64_t limit_usec;
    if (sd_watchdog_enabled(0, &limit_usec) <= 0) {
        return 0;
    }
    watchdog->core = core;
    watchdog->every_usec = limit_usec / SIGNS;
    int r = sd_event_add_time_relative(event, &watchdog->source, CLOCK_MONOTONIC, 0, 0, on_time,
                                       watchdog);
    return r < 0 ? err_raise(r) : 0;
}

void watchdog_finish(struct watchdog *watchdog)
{
    (void)sd_event_source_unref(watchdog->source);
    watchdog->source = NULL;
}
