/* buffers.h - one session's client buffers: ids, ranges, references.
 *
 * A buffer that is removed while requests use it disappears from look-ups at once and is unmapped
 * when the last of them ends. Ids count up from 1 within a session and are never reused.
 * Threads: any; one mutex per table. The quota handle is released on the thread that drops the last
 * reference. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device.h"
#include "daemon/engine/quota.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"
#include "ipc/shm.h"

struct buffers;
struct buffer; /* a reference-counted mapping */

/* buffers_new() - a table of n_max buffers at most. 0 or -ENOMEM. */
int buffers_new(uint32_t n_max, struct buffers **ret_buffers) GD_MUST_CHECK;
/* buffers_free() - removes all; mappings in use live on until their last reference. */
struct buffers *buffers_free(struct buffers *buffers);

/* buffers_add() - takes region and charge over on success; the region's fd stays open in it, since
 * it says which memory this is. 0, negative errno, or STATUS_QUOTA. */
int buffers_add(struct buffers *buffers, struct device *device, struct region *region,
                struct quota_charge *charge, uint64_t *ret_id, struct reason *why) GD_MUST_CHECK;
int buffers_remove(struct buffers *buffers, uint64_t id,
                   struct reason *why) GD_MUST_CHECK; /* NOT_FOUND */

/* buffers_acquire() - a reference to the buffer and its address; NULL when there is none of that
 * id. */
struct buffer *buffers_acquire(struct buffers *buffers, uint64_t id, void **ret_base,
                               uint64_t *ret_bytes);
struct buffer *buffer_unref(struct buffer *buffer);

/* buffers_share_memory() - may both have bytes in common, be it under two ids? buffer_origin() -
 * then byte i of one is byte j of the other where i and j plus their origins are equal. */
bool buffers_share_memory(const struct buffer *a, const struct buffer *b);
uint64_t buffer_origin(const struct buffer *buffer);

/* buffer_device() - the one that reaches it at its address; no other does. */
const struct device *buffer_device(const struct buffer *buffer);

/* buffer_is_cpu_memory() - does it lie in CPU memory, whatever device reads it? */
bool buffer_is_cpu_memory(const struct buffer *buffer);

/* Of those in the table now: how many, and their sizes together. */
uint32_t buffers_count(struct buffers *buffers);
uint64_t buffers_bytes(struct buffers *buffers);
