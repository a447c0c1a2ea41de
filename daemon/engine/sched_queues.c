/* sched_queues.c - where items wait, and how a launch is filled.
 *
 *   queue of a weight -> stream -> stream ...      whose request is next in that launch
 *                          |
 *                        items, oldest first       of one session for one weight
 *
 * Only queues and streams with items exist; each comes from a pool of items_max, since there can be
 * no more of them than items. Both are found by one hash table of streams and one of queues. A
 * stream that was served goes to the end of its queue, one that was passed over (its next request
 * did not fit, or is of another class) keeps its place at the front, where the first stream always
 * gets its request into the launch. */
#include "daemon/engine/sched_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "ipc/base/clock.h"
#include "ipc/base/error.h"

#include "daemon/engine/hash.h"

double sched_quantum_nsec(enum sched_priority priority)
{
    static const double quantum_nsec[SCHED_PRIORITIES] = {
        [SCHED_HIGH] = 200.0 * CLOCK_NSEC_PER_USEC,
        [SCHED_NORMAL] = 50.0 * CLOCK_NSEC_PER_USEC,
        [SCHED_LOW] = 12.5 * CLOCK_NSEC_PER_USEC,
    };
    return quantum_nsec[priority];
}

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

int sched_queues_init(struct sched *sched)
{
    list_init(&sched->all_queues);
    list_init(&sched->free_queues);
    list_init(&sched->free_streams);
    sched->n_buckets = buckets_for(sched->limits.items_max);
    sched->queue_buckets = buckets_new(sched->n_buckets);
    sched->stream_buckets = buckets_new(sched->n_buckets);
    sched->queues = calloc(sched->limits.items_max, sizeof(*sched->queues));
    sched->streams = calloc(sched->limits.items_max, sizeof(*sched->streams));
    if (sched->queue_buckets == NULL || sched->stream_buckets == NULL || sched->queues == NULL ||
        sched->streams == NULL) {
        return err_raise(-ENOMEM);
    }
    for (uint32_t i = 0; i < sched->limits.items_max; i++) {
        list_append(&sched->free_queues, &sched->queues[i].in_all);
        list_append(&sched->free_streams, &sched->streams[i].in_queue);
    }
    return 0;
}

void sched_queues_finish(struct sched *sched)
{
    free(sched->queue_buckets);
    free(sched->stream_buckets);
    free(sched->queues);
    free(sched->streams);
}

/* ---- queues and streams ---- */

static struct sched_queue *queue_get(struct sched *sched, uint64_t weight_key,
                                     struct route_node *node)
{
    struct list *bucket = &sched->queue_buckets[hash_mix(weight_key) & (sched->n_buckets - 1)];
    list_for_each (in_bucket, bucket) {
        struct sched_queue *queue = LIST_OWNER(in_bucket, struct sched_queue, in_bucket);
        if (queue->weight_key == weight_key) {
            return queue;
        }
    }
    struct list *in_all = list_pop(&sched->free_queues);
    GD_ASSERT(in_all != NULL);
    struct sched_queue *queue = LIST_OWNER(in_all, struct sched_queue, in_all);
    queue->weight_key = weight_key;
    queue->node = node;
    queue->n_rows = 0;
    list_init(&queue->streams);
    list_append(bucket, &queue->in_bucket);
    list_append(&sched->all_queues, &queue->in_all);
    return queue;
}

static struct sched_stream *stream_get(struct sched *sched, struct sched_queue *queue,
                                       struct sched_session *session)
{
    uint64_t hash = hash_mix(queue->weight_key ^ hash_mix((uintptr_t)session));
    struct list *bucket = &sched->stream_buckets[hash & (sched->n_buckets - 1)];
    list_for_each (in_bucket, bucket) {
        struct sched_stream *stream = LIST_OWNER(in_bucket, struct sched_stream, in_bucket);
        if (stream->queue == queue && stream->session == session) {
            return stream;
        }
    }
    struct list *in_queue = list_pop(&sched->free_streams);
    GD_ASSERT(in_queue != NULL);
    struct sched_stream *stream = LIST_OWNER(in_queue, struct sched_stream, in_queue);
    stream->queue = queue;
    stream->session = session;
    list_init(&stream->items);
    list_append(bucket, &stream->in_bucket);
    list_append(&queue->streams, &stream->in_queue);
    if (list_is_empty(&session->streams)) {
        session->has_jumped = false;
        turns_enter(sched, session);
    }
    list_append(&session->streams, &stream->in_session);
    return stream;
}

static void drop_if_empty(struct sched *sched, struct sched_stream *stream)
{
    if (!list_is_empty(&stream->items)) {
        return;
    }
    struct sched_queue *queue = stream->queue;
    list_remove(&stream->in_bucket);
    list_remove(&stream->in_queue);
    list_remove(&stream->in_session);
    list_insert_before(sched->free_streams.next, &stream->in_queue); /* the next finds it cached */
    if (list_is_empty(&stream->session->streams)) {
        turns_leave(stream->session);
    }
    if (list_is_empty(&queue->streams)) {
        list_remove(&queue->in_bucket);
        list_remove(&queue->in_all);
        list_insert_before(sched->free_queues.next, &queue->in_all);
    }
}

/* ---- items ---- */

void sched_enqueue(struct sched *sched, struct sched_item *item, struct route_node *node)
{
    struct sched_queue *queue = queue_get(sched, item->weight_key, node);
    item->stream = stream_get(sched, queue, item->session);
    list_append(&item->stream->items, &item->in_stream);
    list_append(&item->session->queued, &item->in_session);
    queue->n_rows += item->n_rows;
}

/* Out of its stream; drop_if_empty() is still due. */
static void unlink_item(struct sched *sched, struct sched_item *item, enum sched_state state)
{
    list_remove(&item->in_stream);
    list_remove(&item->in_session);
    deadlines_remove(&sched->deadlines, &item->deadline);
    item->state = state;
    sched->n_queued--;
}

void sched_unlink(struct sched *sched, struct sched_item *item, enum sched_state state)
{
    struct sched_stream *stream = item->stream;
    unlink_item(sched, item, state);
    if (stream != NULL) {
        stream->queue->n_rows -= item->n_rows;
        item->stream = NULL;
        drop_if_empty(sched, stream);
    } else if (list_is_empty(&item->session->prefills)) {
        list_remove(&item->session->in_prefilling);
    }
}

struct sched_item *sched_oldest(const struct sched_session *session)
{
    return list_is_empty(&session->queued)
               ? NULL
               : LIST_OWNER(session->queued.next, struct sched_item, in_session);
}

/* ---- filling ---- */

static bool fits(const struct sched *sched, const struct filling *filling,
                 const struct sched_item *item)
{
    if (filling->n_items == 0) {
        return true;
    }
    return item->class_key == filling->class_key &&
           filling->n_rows + item->n_rows <= sched->limits.rows_max;
}

static bool is_full(const struct sched *sched, const struct filling *filling)
{
    uint32_t items_max = sched->limits.mode == SCHED_OFF ? 1 : sched->limits.batch_items_max;
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
    stream->queue->n_rows -= item->n_rows;
    item->stream = NULL;
    filling->class_key = item->class_key;
    filling->n_rows += item->n_rows;
    filling->items[filling->n_items++] = item;
    list_remove(&stream->in_session); /* its session's other weights are next */
    list_append(&item->session->streams, &stream->in_session);
    return true;
}

uint32_t sched_fill(struct sched *sched, struct sched_queue *queue, struct sched_item **ret_items,
                    uint32_t *ret_n_rows)
{
    struct filling filling = {.items = ret_items};
    struct list served;
    struct list passed_over;
    list_init(&served);
    list_init(&passed_over);
    while (!list_is_empty(&queue->streams) && !is_full(sched, &filling)) {
        struct list *in_queue = list_pop(&queue->streams);
        struct sched_stream *stream = LIST_OWNER(in_queue, struct sched_stream, in_queue);
        if (!take_from(sched, stream, &filling)) {
            list_append(&passed_over, in_queue);
        } else if (list_is_empty(&stream->items)) {
            list_append(&served, in_queue); /* dropped below: the last one ends the queue */
        } else {
            list_append(&queue->streams, in_queue);
        }
    }
    struct list *place = queue->streams.next;
    for (struct list *in_queue; (in_queue = list_pop(&passed_over)) != NULL;) {
        list_insert_before(place, in_queue);
    }
    for (struct list *in_queue; (in_queue = list_pop(&served)) != NULL;) {
        list_append(&queue->streams, in_queue);
        drop_if_empty(sched, LIST_OWNER(in_queue, struct sched_stream, in_queue));
    }
    *ret_n_rows = filling.n_rows;
    return filling.n_items;
}
