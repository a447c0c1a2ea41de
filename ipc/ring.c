/* ring.c - the small functions of the shared-memory ring.
 *
 * Invariant: `own` is this side's only truth about itself, and the peer's word is read once per
 * call and judged by its distance from `own`. An index into `entries` is always made from `own`.
 *
 * Ordering: the producer's release of `tail` publishes the entry; the consumer's release of `head`
 * says that its copy is done, so that the producer, acquiring `head`, may overwrite. Indices that
 * run freely tell full from empty without an entry that is never used; the power of two makes them
 * right across 2^32. */
#include "ipc/ring.h"

#include <string.h>

void ring_init(struct ring *ring, _Atomic uint32_t *tail, _Atomic uint32_t *head, void *entries,
               uint32_t n_entries, uint32_t entry_bytes)
{
    GD_ASSERT(n_entries != 0 && (n_entries & (n_entries - 1)) == 0);
    *ring = (struct ring){
        .tail = tail,
        .head = head,
        .entries = entries,
        .n_entries = n_entries,
        .entry_bytes = entry_bytes,
    };
}

static uint8_t *own_entry(const struct ring *ring)
{
    return ring->entries + (size_t)(ring->own & (ring->n_entries - 1)) * ring->entry_bytes;
}

enum ring_result ring_push(struct ring *ring, const void *entry)
{
    uint32_t fill = ring->own - atomic_load_explicit(ring->head, memory_order_acquire);
    if (fill > ring->n_entries) {
        return RING_CORRUPT;
    }
    if (fill == ring->n_entries) {
        return RING_FULL;
    }
    memcpy(own_entry(ring), entry, ring->entry_bytes);
    ring->own++;
    atomic_store_explicit(ring->tail, ring->own, memory_order_release);
    return RING_OK;
}

enum ring_result ring_room(const struct ring *ring, uint32_t *ret_n_free)
{
    uint32_t fill = ring->own - atomic_load_explicit(ring->head, memory_order_acquire);
    *ret_n_free = fill > ring->n_entries ? 0 : ring->n_entries - fill;
    return fill > ring->n_entries ? RING_CORRUPT : RING_OK;
}

bool ring_is_taken(const struct ring *ring, uint32_t mark)
{
    uint32_t fill = ring->own - atomic_load_explicit(ring->head, memory_order_acquire);
    return fill > ring->n_entries || fill <= ring->own - mark;
}

enum ring_result ring_peek(const struct ring *ring, void *ret_entry)
{
    uint32_t fill = atomic_load_explicit(ring->tail, memory_order_acquire) - ring->own;
    if (fill == 0) {
        return RING_EMPTY;
    }
    if (fill > ring->n_entries) {
        return RING_CORRUPT;
    }
    memcpy(ret_entry, own_entry(ring), ring->entry_bytes);
    return RING_OK;
}

void ring_advance(struct ring *ring)
{
    ring->own++;
    atomic_store_explicit(ring->head, ring->own, memory_order_release);
}

enum ring_result ring_pop(struct ring *ring, void *ret_entry)
{
    enum ring_result r = ring_peek(ring, ret_entry);
    if (r == RING_OK) {
        ring_advance(ring);
    }
    return r;
}

uint32_t ring_fill(const struct ring *ring)
{
    uint32_t fill = atomic_load_explicit(ring->tail, memory_order_acquire) - ring->own;
    return fill > ring->n_entries ? ring->n_entries : fill;
}
