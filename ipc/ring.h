/* ring.h - a single-producer single-consumer ring of fixed-size entries in shared memory.
 *
 * Indices run freely over 32 bits; their difference is the fill. Each side keeps its own index in
 * private memory and only ever reads the other's word, so that a peer that scribbles over the
 * shared page can make a ring look full, empty or corrupt, but never makes us leave the array:
 * ring_* return RING_CORRUPT when the peer's index is impossible.
 *
 * Threads: one producer thread and one consumer thread at a time, in different processes or not. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"

enum ring_result {
    RING_OK = 0,
    RING_EMPTY, /* consumer: nothing there */
    RING_FULL,  /* producer: no free entry */
    RING_CORRUPT,
};

/* One side's private view of a ring. `entries` and both words point into the shared region. */
struct ring {
    _Atomic uint32_t *tail; /* written by the producer: entries ever pushed */
    _Atomic uint32_t *head; /* written by the consumer: entries ever popped */
    uint8_t *entries;
    uint32_t n_entries; /* a power of two */
    uint32_t entry_bytes;
    uint32_t own; /* this side's index; never read back from the region */
};

/* ring_init() - one side's view of a ring whose two words are zero; n_entries is a power of two. */
void ring_init(struct ring *ring, _Atomic uint32_t *tail, _Atomic uint32_t *head, void *entries,
               uint32_t n_entries, uint32_t entry_bytes);

/* Producer: copy one entry in and publish it (release). */
enum ring_result ring_push(struct ring *ring, const void *entry) GD_MUST_CHECK;
/* Producer: entries that are free now, 0..n_entries. RING_OK or RING_CORRUPT (and then 0). */
enum ring_result ring_room(const struct ring *ring, uint32_t *ret_n_free) GD_MUST_CHECK;

/* Producer: has the consumer given back what was pushed before `own` was `mark`? True as well when
 * its index is impossible: nothing will come of waiting. */
bool ring_is_taken(const struct ring *ring, uint32_t mark);

/* Consumer: ring_peek() - copy the oldest entry out (acquire). ring_advance() - give its place
 * back, after that. ring_pop() - both. */
enum ring_result ring_peek(const struct ring *ring, void *ret_entry) GD_MUST_CHECK;
void ring_advance(struct ring *ring);
enum ring_result ring_pop(struct ring *ring, void *ret_entry) GD_MUST_CHECK;
/* Consumer: entries waiting, 0..n_entries; n_entries as well when the peer's index is impossible,
 * so that nobody sleeps on a corrupt ring: the pop that follows says what is wrong. */
uint32_t ring_fill(const struct ring *ring);
