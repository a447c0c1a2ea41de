/* session.h - one client: its connection, credentials, token, lanes, buffers and replies. The
 * connection is the client's life; everything charged to it goes when it hangs up. Main thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/buffers.h"
#include "daemon/engine/quota.h"
#include "daemon/server/core.h"
#include "daemon/server/replies.h"
#include "daemon/server/session_order.h"
#include "ipc/base/check.h"
#include "ipc/base/list.h"
#include "ipc/side.h"

#define SESSION_FDS      2u /* charged at accept: the connection, and one on the control socket */
#define SESSION_LANE_FDS 4u /* a lane: region and doorbell, and our copies to give out again */

enum session_state {
    SESSION_NEW,     /* accepted, no HELLO yet */
    SESSION_LIVE,    /* has a token */
    SESSION_DOOMED,  /* over a limit: its HELLO is answered with the reason, then it ends */
    SESSION_CLOSING, /* hung up; workers still hold something of it */
};

struct session_lane {
    int region_fd; /* owned copies: the worker owns the lane itself; -1: not opened */
    int doorbell_fd;
    struct quota_charge charge;
    struct session_order order;
};

struct reception;
struct sd_event_source;

struct session {
    uint64_t id; /* from 1, never reused */
    enum session_state state;
    int fd; /* owned */
    struct side_peer peer;
    char token[SIDE_TOKEN_BYTES];
    char name[SIDE_NAME_BYTES];
    uint32_t lane_entries;
    struct quota_charge charge;
    struct buffers *buffers;
    struct session_lane lanes[CONFIG_DEVICES_MAX];
    uint32_t n_lanes;
    uint32_t n_detaching; /* workers that have not called back yet */
    struct replies replies;
    struct reason doom;
    struct list in_tokens; /* session_table's */
    struct list in_ids;
    struct list in_all;
    struct reception *reception; /* reception's, with the two below */
    struct sd_event_source *io_source;
    struct sd_event_source *hello_timer;
};

/* session_new() - takes fd and charge over, on success only. token: drawn here. 0 or negative
 * errno. */
int session_new(uint64_t id, int fd, const struct side_peer *peer, struct quota_charge *charge,
                const struct config *config, struct session **ret_session) GD_MUST_CHECK;

/* session_free() - nothing of it may be left in a worker. */
struct session *session_free(struct session *session);

/* session_detach() - ask every worker to let go: a MAIL_DETACHED of each follows, n_detaching in
 * all. */
void session_detach(struct session *session, struct core *core);

/* session_as_client() - how the workers and the request checks know this session. */
struct worker_client session_as_client(const struct session *session);
