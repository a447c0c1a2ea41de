/* probe.h - one product on a resident weight, through the worker like a client's: what READY
 * promises. Its session id is 0, which no client has. Main thread. */
#pragma once

#include <stdbool.h>

#include "daemon/server/core.h"
#include "ipc/base/check.h"

#define PROBE_SESSION_ID 0u

struct probe {
    struct buffers *buffers; /* owned; NULL when it is not under way */
};

/* probe_begin() - *ret_is_under_way: a MAIL_REPLY for PROBE_SESSION_ID follows; false when nothing
 * is resident. 0, negative errno, or a status. */
int probe_begin(struct probe *probe, struct core *core, bool *ret_is_under_way,
                struct reason *why) GD_MUST_CHECK;

/* probe_finish() - after its reply, or when the workers have ended. Safe on a zeroed probe. */
void probe_finish(struct probe *probe);
