/* sched.c - natural batching with two rings of turns.
 *
 *   sched.turns -> weight queue -> weight queue ...        whose launch is next
 *                    |
 *                  streams -> stream -> stream ...         whose request is next in that launch
 *                               |
 *                             items, oldest first          of one session for one weight
 *
 * Only queues and streams with items exist; each comes from a pool of items_max, since there can be
 * no more of them than items. Both are found by one hash table of streams and one of queues.
 *
 * A queue that was served goes to the end of the turns; a stream that was served goes to the end of
 * its queue, one that was passed over (its next request did not fit, or is of another class) keeps
 * its place at the front, where the first stream always gets its request into the launch. */
#include "daemon/engine/sched.h"

#include <errno.h>
#include <stdlib.h>

#include "ipc/base/error.h"

#include "daemon/engine/hash.h"

struct sched_queue {
    uint64_t weight_key;
    struct list in_turns; /* or in the pool of free queues */
    struct list in_bucket;
    struct list streams;
};

struct sched_stream {
    struct sched_queue *queue;
    uint64_t session_id;
    struct list in_queue; /* or in the pool of free streams */
    struct list in_bucket;
    struct list items;
};

struct sched {
    struct sched_limits limits;
    uint32_t n_queued;
    struct list turns;
    struct deadlines deadlines;
    uint32_t n_buckets; /* a power of two */
    struct list *queue_buckets;
    struct list *stream_buckets;
    struct sched_queue *queues;
    struct sched_stream *streams;
    struct list free_queues;
    struct list free_streams;
};

/* A launch while it is being filled. */
struct filling {
    struct sched_item **items;
    uint32_t n_items;
    uint32_t n_rows;
    uint32_t class_key;
};

/* ---- setting up ---- */

static uint32_t buckets_for(uint32_t n)
{
    uint32_t n_buckets = 16;
    while (n_buckets < n && n_buckets < 1u << 30) {
        n_buckets *= 2;
    }
    return n_buckets;
}

static struct list *buckets_new(uint32_t n)
{
    struct list *buckets = calloc(n, sizeof(*buckets));
    for (uint32_t i = 0; buckets != NULL && i < n; i++) {
        list_init(&buckets[i]);
    }
    return buckets;
}

static void fill_pools(struct sched *sched)
{
    for (uint32_t i = 0; i < sched->limits.items_max; i++) {
        list_init(&sched->queues[i].in_bucket);
        list_init(&sched->queues[i].streams);
        list_append(&sched->free_queues, &sched->queues[i].in_turns);
        list_init(&sched->streams[i].in_bucket);
        list_init(&sched->streams[i].items);
        list_append(&sched->free_streams, &sched->streams[i].in_queue);
    }
}

int sched_new(const struct sched_limits *limits, struct sched **ret_sched)
{
    if (limits->items_max == 0 || limits->rows_max == 0 || limits->batch_items_max == 0) {
        return err_raise(-EINVAL);
    }
    struct sched *sched = calloc(1, sizeof(*sched));
    if (sched == NULL) {
        return err_raise(-ENOMEM);
    }
    sched->limits = *limits;
    list_init(&sched->turns);
    list_init(&sched->free_queues);
    list_init(&sched->free_streams);
    sched->n_buckets = buckets_for(limits->items_max);
    sched->queue_buckets = buckets_new(sched->n_buckets);
    sched->stream_buckets = buckets_new(sched->n_buckets);
    sched->queues = calloc(limits->items_max, sizeof(*sched->queues));
    sched->streams = calloc(limits->items_max, sizeof(*sched->streams));
    int r = deadlines_init(&sched->deadlines, limits->items_max);
    if (r != 0 || sched->queue_buckets == NULL || sched->stream_buckets == NULL ||
        sched->queues == NULL || sched->streams == NULL) {
        (void)sched_free(sched);
        return err_raise(-ENOMEM);
    }
    fill_pools(sched);
    *ret_sched = sched;
    return 0;
}

struct sched *sched_free(struct sched *sched)
{
    if (sched != NULL) {
        deadlines_finish(&sched->deadlines);
        free(sched->queue_buckets);
        free(sched->stream_buckets);
        free(sched->queues);
        free(sched->streams);
        free(sched);
    }
    return NULL;
}

/* ---- queues and streams ---- */

static struct sched_queue *queue_get(struct sched *sched, uint64_t weight_key)
{
    struct list *bucket = &sched->queue_buckets[hash_mix(weight_key) & (sched->n_buckets - 1)];
    list_for_each (node, bucket) {
        struct sched_queue *queue = LIST_OWNER(node, struct sched_queue, in_bucket);
        if (queue->weight_key == weight_key) {
            return queue;
        }
    }
    struct list *node = list_pop(&sched->free_queues);
    GD_ASSERT(node != NULL);
    struct sched_queue *queue = LIST_OWNER(node, struct sched_queue, in_turns);
    queue->weight_key = weight_key;
    list_append(bucket, &queue->in_bucket);
    list_append(&sched->turns, &queue->in_turns);
    return queue;
}

static struct sched_stream *stream_get(struct sched *sched, struct sched_queue *queue,
                                       uint64_t session_id)
{
    uint64_t hash = hash_mix(queue->weight_key ^ hash_mix(session_id));
    struct list *bucket = &sched->stream_buckets[hash & (sched->n_buckets - 1)];
    list_for_each (node, bucket) {
        struct sched_stream *stream = LIST_OWNER(node, struct sched_stream, in_bucket);
        if (stream->queue == queue && stream->session_id == session_id) {
            return stream;
        }
    }
    struct list *node = list_pop(&sched->free_streams);
    GD_ASSERT(node != NULL);
    struct sched_stream *stream = LIST_OWNER(node, struct sched_stream, in_queue);
    stream->queue = queue;
    stream->session_id = session_id;
    list_append(bucket, &stream->in_bucket);
    list_append(&queue->streams, &stream->in_queue);
    return stream;
}

/* Give back the queue if nothing is left in it; true if it was. */
static bool queue_drop_if_empty(struct sched *sched, struct sched_queue *queue)
{
    if (!list_is_empty(&queue->streams)) {
        return false;
    }
    list_remove(&queue->in_bucket);
    list_remove(&queue->in_turns);
    list_append(&sched->free_queues, &queue->in_turns);
    return true;
}

static bool stream_drop_if_empty(struct sched *sched, struct sched_stream *stream)
{
    if (!list_is_empty(&stream->items)) {
        return false;
    }
    list_remove(&stream->in_bucket);
    list_remove(&stream->in_queue);
    list_append(&sched->free_streams, &stream->in_queue);
    return true;
}

/* Unlink a queued item from its stream and the deadlines; the caller drops what is empty then. */
static void unlink_item(struct sched *sched, struct sched_item *item, enum sched_state state)
{
    list_remove(&item->in_stream);
    deadlines_remove(&sched->deadlines, &item->deadline);
    item->stream = NULL;
    item->state = state;
    sched->n_queued--;
}

/* ---- events ---- */

enum sched_push sched_push(struct sched *sched, struct sched_item *item, uint64_t now_nsec)
{
    GD_ASSERT(item->state == SCHED_OUTSIDE && item->n_rows > 0);
    if (sched->n_queued == sched->limits.items_max) {
        return SCHED_FULL;
    }
    struct sched_queue *queue = queue_get(sched, item->weight_key);
    item->stream = stream_get(sched, queue, item->session_id);
    list_append(&item->stream->items, &item->in_stream);
    item->deadline = (struct deadline){item->deadline_nsec, DEADLINES_NOWHERE};
    if (item->deadline_nsec != 0) {
        deadlines_add(&sched->deadlines, &item->deadline);
    }
    item->arrival_nsec = now_nsec;
    item->state = SCHED_QUEUED;
    sched->n_queued++;
    return SCHED_PUSHED;
}

void sched_done(struct sched *sched, struct sched_item *item)
{
    (void)sched;
    GD_ASSERT(item->state == SCHED_TAKEN);
    item->state = SCHED_OUTSIDE;
}

bool sched_cancel(struct sched *sched, struct sched_item *item)
{
    if (item->state != SCHED_QUEUED) {
        return false;
    }
    struct sched_stream *stream = item->stream;
    unlink_item(sched, item, SCHED_OUTSIDE);
    if (stream_drop_if_empty(sched, stream)) {
        (void)queue_drop_if_empty(sched, stream->queue);
    }
    return true;
}

struct sched_item *sched_expired(struct sched *sched, uint64_t now_nsec)
{
    struct deadline *first = deadlines_first(&sched->deadlines);
    if (first == NULL || first->at_nsec > now_nsec) {
        return NULL;
    }
    struct sched_item *item = LIST_OWNER(first, struct sched_item, deadline);
    (void)sched_cancel(sched, item);
    return item;
}

uint64_t sched_deadline(const struct sched *sched)
{
    const struct deadline *first = deadlines_first(&sched->deadlines);
    return first == NULL ? UINT64_MAX : first->at_nsec;
}

uint32_t sched_queued(const struct sched *sched)
{
    return sched->n_queued;
}

/* ---- decisions ---- */

static bool fits(const struct sched *sched, const struct filling *filling,
                 const struct sched_item *item)
{
    if (filling->n_items == 0) {
        return true;
    }
    return item->class_key == filling->class_key && item->n_rows <= sched->limits.rows_max &&
           filling->n_rows + item->n_rows <= sched->limits.rows_max;
}

static bool is_full(const struct sched *sched, const struct filling *filling)
{
    uint32_t items_max = sched->limits.is_batching ? sched->limits.batch_items_max : 1;
    return filling->n_items == items_max || filling->n_rows >= sched->limits.rows_max;
}

/* Take the stream's oldest item if it fits. */
static bool take_from(struct sched *sched, struct sched_stream *stream, struct filling *filling)
{
    struct sched_item *item = LIST_OWNER(stream->items.next, struct sched_item, in_stream);
    if (!fits(sched, filling, item)) {
        return false;
    }
    unlink_item(sched, item, SCHED_TAKEN);
    filling->class_key = item->class_key;
    filling->n_rows += item->n_rows;
    filling->items[filling->n_items++] = item;
    return true;
}

uint32_t sched_next(struct sched *sched, struct sched_item **ret_items)
{
    if (list_is_empty(&sched->turns)) {
        return 0;
    }
    struct sched_queue *queue = LIST_OWNER(sched->turns.next, struct sched_queue, in_turns);
    struct filling filling = {.items = ret_items};
    struct list passed_over;
    list_init(&passed_over);
    while (!list_is_empty(&queue->streams) && !is_full(sched, &filling)) {
        struct list *node = list_pop(&queue->streams);
        struct sched_stream *stream = LIST_OWNER(node, struct sched_stream, in_queue);
        if (!take_from(sched, stream, &filling)) {
            list_append(&passed_over, node);
        } else if (!stream_drop_if_empty(sched, stream)) {
            list_append(&queue->streams, node);
        }
    }
    struct list *place = queue->streams.next;
    for (struct list *node; (node = list_pop(&passed_over)) != NULL;) {
        list_insert_before(place, node);
    }
    if (!queue_drop_if_empty(sched, queue)) {
        list_remove(&queue->in_turns);
        list_append(&sched->turns, &queue->in_turns);
    }
    return filling.n_items;
}
