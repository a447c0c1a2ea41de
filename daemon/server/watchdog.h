/* watchdog.h - signs of life for a supervisor that wants them (WATCHDOG_USEC). A sign is one of
 * every worker: each has come round its loop since it was asked last. Main thread. */
#pragma once

#include <stdint.h>
#include <systemd/sd-event.h>

#include "daemon/server/core.h"
#include "ipc/base/check.h"

struct watchdog {
    const struct core *core;
    sd_event_source *source; /* NULL: nobody watches */
    uint64_t every_usec;
};

/* watchdog_begin() - the first sign with the next turn of the loop. core: borrowed. 0 or negative
 * errno. watchdog_finish() - safe on a zeroed one. */
int watchdog_begin(struct watchdog *watchdog, const struct core *core,
                   sd_event *event) GD_MUST_CHECK;
void watchdog_finish(struct watchdog *watchdog);
