/* probe.h - one product on a resident weight of a device, through its worker like a client's: what
 * "ready" promises. Each device has a probe, whose session no client can have. Main thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/server/core.h"
#include "ipc/base/check.h"

enum probe_state {
    PROBE_IDLE,
    PROBE_ASKED,   /* the worker has it */
    PROBE_LEAVING, /* answered; the worker lets go of the session */
};

struct probe {
    struct core *core; /* borrowed */
    uint32_t i_device;
    enum probe_state state;
    struct buffers *buffers; /* owned; NULL when idle */
    uint64_t begin_nsec;
    uint64_t failure_nsec; /* when the last one failed, if no later one did not; 0: never */
    struct reason failure;
};

/* probe_init() - idle. */
void probe_init(struct probe *probe, struct core *core, uint32_t i_device);
/* probe_finish() - when the workers have ended. Safe on a zeroed probe. */
void probe_finish(struct probe *probe);

/* probe_begin() - when it is idle. *ret_is_under_way: a MAIL_REPLY for its session follows; false
 * when nothing is resident on the device. 0, negative errno, or a status. */
int probe_begin(struct probe *probe, bool *ret_is_under_way, struct reason *why) GD_MUST_CHECK;

/* probe_session_id() - whose mail is for the probe of a device. probe_of() - the probe that a
 * session is, of an array by device; NULL: it is a client. */
uint64_t probe_session_id(uint32_t i_device);
struct probe *probe_of(struct probe *probes, uint64_t session_id);

/* probe_on_reply(), probe_on_detached() - mail for its session. */
void probe_on_reply(struct probe *probe, const struct request_result *result);
void probe_on_detached(struct probe *probe);

/* probe_judge() - is its device known to compute? 0: yes, a request ended well max_age_nsec ago or
 * later, or nothing is resident there to compute with. -EAGAIN: a probe is under way, begun by this
 * call if need be. Or a status: a probe failed just now, or has had no answer within the time that
 * readers wait. */
int probe_judge(struct probe *probe, uint64_t max_age_nsec, struct reason *why) GD_MUST_CHECK;

#define PROBE_WAIT_MSEC 2000u
