/* replies.c - see replies.h. Lists and a small ring: a session has at most a few hundred of each,
 * and its limits are what bounds the searches. */
#include "daemon/server/replies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/error.h"

void replies_init(struct replies *replies, uint32_t in_flight_max)
{
    *replies = (struct replies){.n_unsent_max = in_flight_max + REPLIES_OUTBOX_VERBS};
    list_init(&replies->pending);
    list_init(&replies->outbox);
}

void replies_finish(struct replies *replies)
{
    for (struct list *node; (node = list_pop(&replies->pending)) != NULL;) {
        free(LIST_OWNER(node, struct pending, in_pending));
    }
    for (struct unsent *unsent; (unsent = replies_first_unsent(replies)) != NULL;) {
        replies_drop_unsent(replies, unsent);
    }
    for (uint32_t i = 0; i < REPLIES_HISTORY_MAX; i++) {
        free(replies->history[i].bytes);
    }
    replies_init(replies, 0);
}

bool replies_is_pending(const struct replies *replies, uint64_t message_id, uint64_t request_id)
{
    list_for_each (node, &replies->pending) {
        const struct pending *pending = LIST_OWNER(node, struct pending, in_pending);
        if (pending->message_id == message_id || pending->request_id == request_id) {
            return true;
        }
    }
    return false;
}

static struct pending *find_request(const struct replies *replies, uint64_t request_id)
{
    list_for_each (node, &replies->pending) {
        struct pending *pending = LIST_OWNER(node, struct pending, in_pending);
        if (pending->request_id == request_id) {
            return pending;
        }
    }
    return NULL;
}

bool replies_has_request(const struct replies *replies, uint64_t request_id)
{
    return find_request(replies, request_id) != NULL;
}

bool replies_cancel(struct replies *replies, uint64_t request_id)
{
    struct pending *pending = find_request(replies, request_id);
    if (pending == NULL || pending->is_cancelled) {
        return false;
    }
    pending->is_cancelled = true;
    return true;
}

int replies_add_pending(struct replies *replies, uint64_t message_id, uint64_t request_id,
                        const struct frame_route *route)
{
    struct pending *pending = malloc(sizeof(*pending));
    if (pending == NULL) {
        return err_raise(-ENOMEM);
    }
    pending->message_id = message_id;
    pending->request_id = request_id;
    pending->is_cancelled = false;
    pending->route = *route;
    list_append(&replies->pending, &pending->in_pending);
    replies->n_pending++;
    return 0;
}

struct pending *replies_take_pending(struct replies *replies, uint64_t request_id)
{
    struct pending *pending = find_request(replies, request_id);
    if (pending != NULL) {
        list_remove(&pending->in_pending);
        replies->n_pending--;
    }
    return pending;
}

static uint8_t *copy_bytes(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes + 1); /* + 1: an empty reply is a reply */
    if (copy != NULL) {
        memcpy(copy, bytes, n_bytes);
    }
    return copy;
}

void replies_remember(struct replies *replies, enum msg_verb verb, uint64_t request_id,
                      const uint8_t *bytes, size_t n_bytes)
{
    struct remembered *place = &replies->history[replies->i_oldest];
    replies->i_oldest = (replies->i_oldest + 1) % REPLIES_HISTORY_MAX;
    free(place->bytes);
    *place = (struct remembered){.bytes = copy_bytes(bytes, n_bytes)};
    if (place->bytes != NULL) {
        place->verb = verb;
        place->request_id = request_id;
        place->n_bytes = n_bytes;
    }
}

const struct remembered *replies_recall(const struct replies *replies, enum msg_verb verb,
                                        uint64_t request_id)
{
    for (uint32_t i = 0; i < REPLIES_HISTORY_MAX; i++) {
        const struct remembered *place = &replies->history[i];
        if (place->verb == verb && place->verb != MSG_VERB_NONE &&
            place->request_id == request_id) {
            return place;
        }
    }
    return NULL;
}

int replies_hold(struct replies *replies, const struct frame_route *route, const uint8_t *bytes,
                 size_t n_bytes)
{
    if (replies->n_unsent >= replies->n_unsent_max ||
        replies->unsent_bytes + n_bytes > REPLIES_OUTBOX_BYTES_MAX) {
        return -ENOBUFS; /* an answer for the caller, not a fault: no trail */
    }
    struct unsent *unsent = malloc(sizeof(*unsent));
    uint8_t *copy = copy_bytes(bytes, n_bytes);
    if (unsent == NULL || copy == NULL) {
        free(unsent);
        free(copy);
        return err_raise(-ENOMEM);
    }
    unsent->route = *route;
    unsent->bytes = copy;
    unsent->n_bytes = n_bytes;
    list_append(&replies->outbox, &unsent->in_outbox);
    replies->n_unsent++;
    replies->unsent_bytes += n_bytes;
    return 0;
}

struct unsent *replies_first_unsent(const struct replies *replies)
{
    return list_is_empty(&replies->outbox)
               ? NULL
               : LIST_OWNER(replies->outbox.next, struct unsent, in_outbox);
}

void replies_drop_unsent(struct replies *replies, struct unsent *unsent)
{
    list_remove(&unsent->in_outbox);
    replies->n_unsent--;
    replies->unsent_bytes -= unsent->n_bytes;
    free(unsent->bytes);
    free(unsent);
}
