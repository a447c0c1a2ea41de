/* verbs_status.c - how the daemon is: PING, STATUS, DRAIN. */
#include "daemon/server/verbs.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/server/status.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"

int verb_ping(struct call *call, GD_UNUSED struct reason *why)
{
    call->reply->body = MSG_BODY_PONG;
    (void)snprintf(call->reply->version, sizeof(call->reply->version), "%s", GEMMD_VERSION);
    return 0;
}

int verb_status(struct call *call, GD_UNUSED struct reason *why)
{
    char *json = status_document(call->core, call->table);
    if (json == NULL) {
        return err_raise(-ENOMEM);
    }
    call->reply->body = MSG_BODY_STATUS;
    call->reply->json = json;
    return 0;
}

int verb_drain(struct call *call, GD_UNUSED struct reason *why)
{
    log_write(LOG_LEVEL_NOTICE, "control", "session %ju drains the daemon",
              (uintmax_t)call->session->id);
    core_drain_for_good(call->core);
    return 0;
}
