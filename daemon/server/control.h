/* control.h - the ZeroMQ ROUTER in the main loop: messages in, verbs done, replies out. Main
 * thread, never blocking. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/server/core.h"
#include "daemon/server/log_sink.h"
#include "daemon/server/session_table.h"
#include "ipc/base/check.h"
#include "ipc/sock.h"

struct control {
    struct core *core;           /* borrowed */
    struct session_table *table; /* borrowed */
    struct sock sock;
    uint8_t *payload; /* owned, FRAME_REQUEST_BYTES_MAX */
    struct log_rate rate;
    uint32_t n_holding; /* sessions whose outbox is not empty, as of the last control_flush() */

    /* A session whose replies cannot be held has to go: the owner hangs it up, saying why. */
    void (*on_overflow)(void *arg, struct session *session, const char *why);
    void *arg;
};

/* control_init() - no socket yet; safe to finish. */
int control_init(struct control *control, struct core *core,
                 struct session_table *table) GD_MUST_CHECK;
/* control_open() - listen at path, or on a socket that does so already (fd >= 0; taken over). 0 or
 * negative errno. */
int control_open(struct control *control, const char *path, mode_t mode, int fd) GD_MUST_CHECK;
void control_finish(struct control *control);

/* control_pump() - serve up to n_max messages, and begin with none but the first after usec_max.
 * True if more may wait: ZeroMQ's descriptor is edge-triggered, so the caller has to come back
 * without being woken. */
bool control_pump(struct control *control, uint32_t n_max, uint64_t usec_max);

/* control_on_reply() - a SUBMIT has ended. */
void control_on_reply(struct control *control, uint64_t session_id,
                      const struct request_result *result);

/* control_flush() - try the outboxes once more. control_is_quiet() - no reply is owed or held. */
void control_flush(struct control *control);
bool control_is_quiet(const struct control *control);
