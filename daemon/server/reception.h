/* reception.h - the session socket in the main loop: accepting, timing out, hanging up, reclaiming.
 *
 * A session ends in two steps. Its connection closes and its token stops working at once; what
 * workers hold of it goes when each has called back, and only then is it freed. Main thread. */
#pragma once

#include <stdbool.h>
#include <systemd/sd-event.h>

#include "daemon/server/core.h"
#include "daemon/server/log_sink.h"
#include "daemon/server/session_table.h"
#include "ipc/base/check.h"

struct reception {
    struct core *core; /* borrowed */
    sd_event *event;   /* borrowed */
    struct session_table table;
    int listen_fd; /* owned; -1 until it is opened */
    sd_event_source *listen_source;
    uint64_t last_session_id;
    uint32_t n_doomed;
    struct log_rate rate;
};

/* reception_init() - not listening yet; core and event must outlive it. */
void reception_init(struct reception *reception, struct core *core, sd_event *event);
/* reception_open() - listen at path, or on a socket that does so already (fd >= 0; taken over). 0
 * or negative errno. */
int reception_open(struct reception *reception, const char *path, mode_t mode,
                   int fd) GD_MUST_CHECK;

/* reception_close_session() - hang up; `why` goes to the log, NULL for the client's own leave. */
void reception_close_session(struct reception *reception, struct session *session, const char *why);
/* reception_on_detached() - one worker has let go of that session. */
void reception_on_detached(struct reception *reception, uint64_t session_id);

/* reception_finish() - the workers have ended: free every session. */
void reception_finish(struct reception *reception);
