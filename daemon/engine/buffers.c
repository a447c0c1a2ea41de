/* buffers.c - a hash table by id; ids count up, so the low bits spread them evenly. */
#include "daemon/engine/buffers.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "ipc/base/error.h"
#include "ipc/base/list.h"

#define N_BUCKETS 64u

struct buffer {
    _Atomic uint32_t n_refs; /* one of them the table's */
    uint64_t id;
    struct list in_bucket;
    struct device *device;
    struct region region;
    struct quota_charge charge;
    struct device_place place; /* which memory it is, whatever the mapping's address */
};

struct buffers {
    pthread_mutex_t mutex;
    uint32_t n_max;
    uint32_t n;
    uint64_t last_id;
    struct list buckets[N_BUCKETS];
};

int buffers_new(uint32_t n_max, struct buffers **ret_buffers)
{
    struct buffers *buffers = calloc(1, sizeof(*buffers));
    if (buffers == NULL) {
        return err_raise(-ENOMEM);
    }
    (void)pthread_mutex_init(&buffers->mutex, NULL);
    buffers->n_max = n_max;
    for (uint32_t i = 0; i < N_BUCKETS; i++) {
        list_init(&buffers->buckets[i]);
    }
    *ret_buffers = buffers;
    return 0;
}

struct buffers *buffers_free(struct buffers *buffers)
{
    if (buffers == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < N_BUCKETS; i++) {
        struct list *node;
        while ((node = list_pop(&buffers->buckets[i])) != NULL) {
            (void)buffer_unref(LIST_OWNER(node, struct buffer, in_bucket));
        }
    }
    (void)pthread_mutex_destroy(&buffers->mutex);
    free(buffers);
    return NULL;
}

static struct buffer *find(struct buffers *buffers, uint64_t id)
{
    list_for_each (node, &buffers->buckets[id % N_BUCKETS]) {
        struct buffer *buffer = LIST_OWNER(node, struct buffer, in_bucket);
        if (buffer->id == id) {
            return buffer;
        }
    }
    return NULL;
}

/* Give the buffer an id and a place; false when the table is full. */
static bool insert(struct buffers *buffers, struct buffer *buffer)
{
    (void)pthread_mutex_lock(&buffers->mutex);
    bool has_room = buffers->n < buffers->n_max;
    if (has_room) {
        buffers->n++;
        buffer->id = ++buffers->last_id;
        list_append(&buffers->buckets[buffer->id % N_BUCKETS], &buffer->in_bucket);
    }
    (void)pthread_mutex_unlock(&buffers->mutex);
    return has_room;
}

int buffers_add(struct buffers *buffers, struct device *device, struct region *region,
                struct quota_charge *charge, uint64_t *ret_id, struct reason *why)
{
    struct device_place place;
    int r = device_place_of(device, region, &place);
    if (r != 0) {
        return r;
    }
    struct buffer *buffer = calloc(1, sizeof(*buffer));
    if (buffer == NULL) {
        return err_raise(-ENOMEM);
    }
    atomic_init(&buffer->n_refs, 1);
    buffer->device = device;
    buffer->region = *region;
    buffer->charge = *charge;
    buffer->place = place;
    if (!insert(buffers, buffer)) {
        free(buffer);
        return reason_set(why, STATUS_QUOTA, "the session has %u buffers, which is its limit",
                          buffers->n_max);
    }
    *region = REGION_NULL;
    *charge = QUOTA_CHARGE_NULL;
    *ret_id = buffer->id;
    return 0;
}

int buffers_remove(struct buffers *buffers, uint64_t id, struct reason *why)
{
    (void)pthread_mutex_lock(&buffers->mutex);
    struct buffer *buffer = find(buffers, id);
    if (buffer != NULL) {
        list_remove(&buffer->in_bucket);
        buffers->n--;
    }
    (void)pthread_mutex_unlock(&buffers->mutex);
    if (buffer == NULL) {
        return reason_set(why, STATUS_NOT_FOUND, "the session has no buffer %llu",
                          (unsigned long long)id);
    }
    (void)buffer_unref(buffer);
    return 0;
}

struct buffer *buffers_acquire(struct buffers *buffers, uint64_t id, void **ret_base,
                               uint64_t *ret_bytes)
{
    (void)pthread_mutex_lock(&buffers->mutex);
    struct buffer *buffer = find(buffers, id);
    if (buffer != NULL) {
        atomic_fetch_add_explicit(&buffer->n_refs, 1, memory_order_relaxed);
        *ret_base = buffer->region.base;
        *ret_bytes = buffer->region.size_bytes;
    }
    (void)pthread_mutex_unlock(&buffers->mutex);
    return buffer;
}

struct buffer *buffer_unref(struct buffer *buffer)
{
    if (buffer != NULL &&
        atomic_fetch_sub_explicit(&buffer->n_refs, 1, memory_order_acq_rel) == 1) {
        buffer->device->ops->region_free(buffer->device, &buffer->region);
        quota_give(&buffer->charge);
        free(buffer);
    }
    return NULL;
}

bool buffers_share_memory(const struct buffer *a, const struct buffer *b)
{
    return a->place.space[0] == b->place.space[0] && a->place.space[1] == b->place.space[1];
}

uint64_t buffer_origin(const struct buffer *buffer)
{
    return buffer->place.origin;
}

const struct device *buffer_device(const struct buffer *buffer)
{
    return buffer->device;
}

bool buffer_is_cpu_memory(const struct buffer *buffer)
{
    return buffer->place.is_cpu_memory;
}

uint32_t buffers_count(struct buffers *buffers)
{
    (void)pthread_mutex_lock(&buffers->mutex);
    uint32_t n = buffers->n;
    (void)pthread_mutex_unlock(&buffers->mutex);
    return n;
}

uint64_t buffers_bytes(struct buffers *buffers)
{
    uint64_t n_bytes = 0;
    (void)pthread_mutex_lock(&buffers->mutex);
    for (uint32_t i = 0; i < N_BUCKETS; i++) {
        list_for_each (node, &buffers->buckets[i]) {
            n_bytes += LIST_OWNER(node, struct buffer, in_bucket)->region.size_bytes;
        }
    }
    (void)pthread_mutex_unlock(&buffers->mutex);
    return n_bytes;
}
