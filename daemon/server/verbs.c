/* verbs.c - the table. What a verb means is in verbs_models.c, verbs_gemm.c and verbs_status.c. */
#include "daemon/server/verbs.h"

#include <stdio.h>

#include "ipc/base/num.h"

static const struct verb verbs[] = {
    {MSG_VERB_PING, verb_ping, VERB_ANYBODY, CORE_STOPPING, false},
    {MSG_VERB_STATUS, verb_status, VERB_ANYBODY, CORE_STOPPING, false},
    {MSG_VERB_MODEL_LIST, verb_model_list, VERB_ANYBODY, CORE_STOPPING, false},
    {MSG_VERB_WEIGHT_LIST, verb_weight_list, VERB_ANYBODY, CORE_STOPPING, false},
    {MSG_VERB_WEIGHT_FIND, verb_weight_find, VERB_ANYBODY, CORE_STOPPING, false},
    {MSG_VERB_LOAD, verb_load, VERB_ADMIN, CORE_SERVING, true},
    {MSG_VERB_UNLOAD, verb_unload, VERB_ADMIN, CORE_STOPPING, true},
    {MSG_VERB_RELOAD, verb_reload, VERB_ADMIN, CORE_SERVING, true},
    {MSG_VERB_JOB_STATUS, verb_job_status, VERB_ANYBODY, CORE_DRAINING, false},
    {MSG_VERB_JOB_CANCEL, verb_job_cancel, VERB_ADMIN, CORE_DRAINING, true},
    {MSG_VERB_SUBMIT, verb_submit, VERB_ANYBODY, CORE_SERVING, true},
    {MSG_VERB_CANCEL, verb_cancel, VERB_ANYBODY, CORE_STOPPING, false},
    {MSG_VERB_EXPLAIN, verb_explain, VERB_ANYBODY, CORE_STOPPING, false},
    {MSG_VERB_VERIFY, verb_verify, VERB_ADMIN, CORE_SERVING, true},
    {MSG_VERB_DRAIN, verb_drain, VERB_ADMIN, CORE_STOPPING, true},
    {MSG_VERB_BENCH, verb_bench, VERB_ADMIN, CORE_SERVING, true},
};

const struct verb *verb_find(enum msg_verb verb)
{
    for (uint32_t i = 0; i < ARRAY_LENGTH(verbs); i++) {
        if (verbs[i].verb == verb) {
            return &verbs[i];
        }
    }
    return NULL;
}

static int check_allowed(const struct verb *verb, const struct call *call, struct reason *why)
{
    uid_t uid = call->session->peer.uid;
    if (verb->permission == VERB_ADMIN && !config_is_admin(call->core->config, uid)) {
        return reason_set(why, STATUS_PERMISSION, "%s is for administrators; user %u is none",
                          msg_verb_name(verb->verb), uid);
    }
    if (call->core->phase > verb->last_phase) {
        return reason_set(why, STATUS_SHUTTING_DOWN, "%s: the daemon is %s",
                          msg_verb_name(verb->verb), core_phase_name(call->core->phase));
    }
    return 0;
}

void verb_call(const struct verb *verb, struct call *call)
{
    struct reason why = REASON_NULL;
    int r = check_allowed(verb, call, &why);
    r = r != 0 ? r : verb->handle(call, &why);
    if (r == 0) {
        return;
    }
    if (r < 0) {
        r = reason_errno(&why, r, "%s", msg_verb_name(verb->verb));
    }
    msg_reply_finish(call->reply);
    *call->reply = (struct msg_reply){.request_id = call->request->request_id, .status = r};
    (void)snprintf(call->reply->text, sizeof(call->reply->text), "%s", why.text);
}
