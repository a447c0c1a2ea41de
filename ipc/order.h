/* order.h - words by which a GPU's stream in the client and a worker take turns: one pair for each
 * request that can be in flight in a lane, in one sealed memfd.
 *
 *   offset 0               n_entries x u32  ready: written by the client's GPU (or CPU)
 *   4 x n_entries          n_entries x u32  ended: written by the worker's CPU
 *
 * A request with REQUEST_FLAG_ORDERED names an entry and a value. The worker launches it once
 * ready[entry] is that value. When it has ended, in whatever way and after its completion was
 * pushed, ended[entry] becomes the value. Where the device has memory for them, two more arrays lie
 * there, in ORDER_DEVICE_BYTES of it:
 *
 *   offset 0                    n_entries x u32  done: written by the device's own stream
 *   ORDER_DEVICE_READY_OFFSET   n_entries x u32  ready: written by the client's GPU
 *
 * done is written behind the product, and only if there is one. So it is the quick word, ended the
 * one that always comes. The device's ready is a quick word too, for a launch that waits on the
 * device; a client may leave it alone, but writes the other ready in any case.
 *
 * The values of one entry count up by one, so that a word that has moved on still tells an old
 * waiter that its turn has come: order_is_reached() compares on the circle of 32 bits. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ORDER_STREAMS_MAX 64u /* of one session on one device */

#define ORDER_DEVICE_READY_OFFSET (1u << 20) /* gemmd_device.h and PTX of libgemmd know it */
#define ORDER_DEVICE_BYTES        (2u * ORDER_DEVICE_READY_OFFSET)
#define ORDER_ENTRIES_MAX         (ORDER_DEVICE_READY_OFFSET / 4u)

struct order_words {
    _Atomic uint32_t *ready; /* (n_entries) */
    _Atomic uint32_t *ended; /* (n_entries) */
    uint32_t n_entries;
};

/* order_bytes() - the memory of that many pairs. */
static inline uint64_t order_bytes(uint32_t n_entries)
{
    return 2ull * n_entries * sizeof(uint32_t);
}

/* order_words_at() - where they lie in memory of order_bytes(). */
static inline struct order_words order_words_at(void *base, uint32_t n_entries)
{
    _Atomic uint32_t *words = base;
    return (struct order_words){
        .ready = words,
        .ended = words + n_entries,
        .n_entries = n_entries,
    };
}

/* order_is_reached() - is a word at that value or beyond it? */
static inline bool order_is_reached(uint32_t word, uint32_t value)
{
    return (int32_t)(word - value) >= 0;
}
