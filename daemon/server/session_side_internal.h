/* session_side_internal.h - what the handlers of a session's questions share. Floors, lowest first:
 * session_side_ask.c, session_side_lanes.c and session_side_buffers.c, session_side.c. */
#pragma once

#include <assert.h>

#include "daemon/server/session_side.h"

static_assert(SIDE_UUID_BYTES == sizeof(((struct device *)0)->uuid_bytes), "one kind of UUID");

/* What a handler works on and what it fills. */
struct ask {
    struct core *core;
    struct session_table *table;
    struct session *session;
    struct side_packet *packet;
    union side_message answer;
    int fds[SIDE_FDS_MAX]; /* borrowed: of the session or its buffers */
    uint32_t n_fds;
};

/* ask_sequence() - what its answer repeats. */
static inline uint64_t ask_sequence(const struct ask *ask)
{
    return ask->packet->message.header.sequence;
}

/* ---- session_side_ask.c ---- */

/* ask_device() - by the index that clients know it by: 0 or NOT_FOUND. ask_check_descriptor() - may
 * a client hold that descriptor, or is it one of the last? fd of -1: there is none. 0 or QUOTA. */
int ask_device(const struct ask *ask, uint32_t index, struct device **ret_device,
               struct reason *why) GD_MUST_CHECK;
int ask_check_descriptor(int fd, struct reason *why) GD_MUST_CHECK;

/* ---- session_side_lanes.c ---- */

/* Handlers: 0 with the answer filled in, a status, or a negative errno. */
int side_on_open_lane(struct ask *ask, struct reason *why) GD_MUST_CHECK;
int side_on_open_order(struct ask *ask, struct reason *why) GD_MUST_CHECK;

/* ---- session_side_buffers.c ---- */

/* Handlers, likewise. */
int side_on_alloc_buffer(struct ask *ask, struct reason *why) GD_MUST_CHECK;
int side_on_import_buffer(struct ask *ask, struct reason *why) GD_MUST_CHECK;
int side_on_import_ipc(struct ask *ask, struct reason *why) GD_MUST_CHECK;
int side_on_release_buffer(struct ask *ask, struct reason *why) GD_MUST_CHECK;
