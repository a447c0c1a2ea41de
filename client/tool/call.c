/* call.c - how commands reach the daemon. */
#include <stdio.h>

#include "client/tool/tool.h"

int tool_connect(struct tool *tool)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    if (tool->client) {
        return 0;
    }
    options.socket_dir = tool->socket_dir;
    options.name = "gemmctl";
    if (!tool->is_patient) {
        options.reconnect_msec = 0; /* a person waits, and is told */
    }
    int r = gemmd_open(&options, &tool->client);
    if (r != GEMMD_DISCONNECTED) {
        return r == GEMMD_OK ? 0 : tool_fail(r);
    }
    (void)fprintf(
        stderr, "gemmctl: %s; unless systemd or a keeper does, start one: gemmd --socket-dir DIR\n",
        gemmd_last_error());
    return TOOL_NO_DAEMON;
}

int tool_call(struct tool *tool, struct msg_request *request, enum msg_body body,
              struct msg_reply *ret_reply)
{
    int r = tool_connect(tool);
    if (r != 0) {
        return r;
    }
    r = control_call(tool->client, request, ret_reply);
    if (r != 0) {
        return tool_fail(r);
    }
    if (body == MSG_BODY_NONE || ret_reply->body == body) {
        return 0;
    }
    msg_reply_finish(ret_reply);
    return tool_fail(client_refuse(STATUS_BAD_MESSAGE,
                                   "the daemon's reply to %s is of another kind",
                                   msg_verb_name(request->verb)));
}
