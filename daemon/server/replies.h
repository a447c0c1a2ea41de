/* replies.h - what one session is still to be told on the control socket, and what it was told.
 *
 * - pending: SUBMITs in flight, and where their replies go;
 * - history: the last REPLIES_HISTORY_MAX replies to verbs that change something, so that repeating
 *   one with its request id gives the same answer instead of doing it twice;
 * - outbox: replies that the peer's queue had no room for; it has room for what may be in
 *   flight and REPLIES_OUTBOX_VERBS more, and a session that fills it is misbehaving.
 *
 * Main thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/list.h"
#include "ipc/frame.h"
#include "ipc/msg.h"

#define REPLIES_HISTORY_MAX      64u
#define REPLIES_OUTBOX_VERBS     64u
#define REPLIES_OUTBOX_BYTES_MAX (16u * 1024u * 1024u)

struct pending {
    struct list in_pending;
    uint64_t message_id; /* of the control message */
    uint64_t request_id; /* of the descriptor */
    bool is_cancelled;   /* the worker has been asked */
    struct frame_route route;
};

struct remembered {
    enum msg_verb verb; /* NONE: the place is free */
    uint64_t request_id;
    uint8_t *bytes; /* owned */
    size_t n_bytes;
};

struct unsent {
    struct list in_outbox;
    struct frame_route route;
    uint8_t *bytes; /* owned */
    size_t n_bytes;
};

struct replies {
    struct list pending;
    uint32_t n_pending;
    struct remembered history[REPLIES_HISTORY_MAX];
    uint32_t i_oldest;
    struct list outbox;
    uint32_t n_unsent_max;
    uint32_t n_unsent;
    uint64_t unsent_bytes;
};

/* replies_init() - nothing pending, nothing unsent. in_flight_max: SUBMITs that may be pending. */
void replies_init(struct replies *replies, uint32_t in_flight_max);
void replies_finish(struct replies *replies);

/* pending: by the id of either the message or the descriptor. has_request: of the descriptor. */
bool replies_is_pending(const struct replies *replies, uint64_t message_id, uint64_t request_id);
/* replies_cancel() - mark the one of that descriptor. False when there is none, or it is marked. */
bool replies_has_request(const struct replies *replies, uint64_t request_id);
bool replies_cancel(struct replies *replies, uint64_t request_id);
int replies_add_pending(struct replies *replies, uint64_t message_id, uint64_t request_id,
                        const struct frame_route *route) GD_MUST_CHECK;
/* replies_take_pending() - out of the list; the caller frees it. NULL when there is none. */
struct pending *replies_take_pending(struct replies *replies, uint64_t request_id);

/* replies_remember() - copies the bytes, forgetting the oldest. Without memory nothing is
 * remembered, and a repetition is done again. replies_recall() - NULL when not remembered. */
void replies_remember(struct replies *replies, enum msg_verb verb, uint64_t request_id,
                      const uint8_t *bytes, size_t n_bytes);
const struct remembered *replies_recall(const struct replies *replies, enum msg_verb verb,
                                        uint64_t request_id);

/* replies_hold() - put a copy into the outbox. 0, -ENOMEM, or -ENOBUFS when it is full. */
int replies_hold(struct replies *replies, const struct frame_route *route, const uint8_t *bytes,
                 size_t n_bytes) GD_MUST_CHECK;
struct unsent *replies_first_unsent(const struct replies *replies); /* stays inside; NULL: none */
void replies_drop_unsent(struct replies *replies, struct unsent *unsent);
