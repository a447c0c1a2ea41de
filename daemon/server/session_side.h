/* session_side.h - what a session's socket may ask: HELLO, lanes, buffers. Main thread, never
 * blocking. */
#pragma once

#include "daemon/server/core.h"
#include "daemon/server/session_table.h"
#include "ipc/base/check.h"
#include "ipc/side.h"

enum session_verdict {
    SESSION_KEEP = 0,
    SESSION_CLOSE, /* answered, and there is nothing more to say */
    SESSION_DROP,  /* it does not read its answers: hang up */
    SESSION_GONE,  /* it has hung up before its answer */
};

/* session_side_answer() - do what the packet says and answer it. Takes what it wants of its fds. */
enum session_verdict session_side_answer(struct core *core, struct session_table *table,
                                         struct session *session, struct side_packet *packet);

/* session_side_refuse() - SIDE_REFUSED. KEEP, or DROP or GONE if it could not be sent. */
enum session_verdict session_side_refuse(struct session *session, uint64_t sequence,
                                         const struct reason *why);
