/* verbs.h - the control verbs: one table of handlers, permissions and phases. Main thread. */
#pragma once

#include <stdbool.h>

#include "daemon/server/core.h"
#include "daemon/server/session_table.h"
#include "ipc/base/check.h"
#include "ipc/frame.h"
#include "ipc/msg.h"

/* One call of a verb. The handler fills reply->body; status and text are the dispatcher's. */
struct call {
    struct core *core;
    struct session_table *table;
    struct session *session;
    const struct frame_route *route;
    const struct msg_request *request;
    struct msg_reply *reply;
    bool is_deferred; /* set by a handler whose reply comes later */
};

enum verb_permission { VERB_ANYBODY, VERB_ADMIN };

struct verb {
    enum msg_verb verb;
    int (*handle)(struct call *call, struct reason *why);
    enum verb_permission permission;
    enum core_phase last_phase; /* refused with SHUTTING_DOWN in later ones */
    bool is_mutating;           /* its replies are remembered, so that it may be repeated */
};

const struct verb *verb_find(enum msg_verb verb); /* NULL: not in the table */

/* verb_call() - permission, phase, handler. Fills *call->reply, whatever happens, unless deferred.
 */
void verb_call(const struct verb *verb, struct call *call);

/* Handlers: 0, a negative errno, or a status with its sentence. */
int verb_ping(struct call *call, struct reason *why);
int verb_status(struct call *call, struct reason *why);
int verb_drain(struct call *call, struct reason *why);
int verb_model_list(struct call *call, struct reason *why);
int verb_weight_list(struct call *call, struct reason *why);
int verb_weight_find(struct call *call, struct reason *why);
int verb_load(struct call *call, struct reason *why);
int verb_unload(struct call *call, struct reason *why);
int verb_reload(struct call *call, struct reason *why);
int verb_verify(struct call *call, struct reason *why);
int verb_bench(struct call *call, struct reason *why);
int verb_job_status(struct call *call, struct reason *why);
int verb_job_cancel(struct call *call, struct reason *why);
int verb_submit(struct call *call, struct reason *why);
int verb_cancel(struct call *call, struct reason *why);
int verb_explain(struct call *call, struct reason *why);
