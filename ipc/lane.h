/* lane.h - a lane: one session's pair of rings with one device's worker, in one sealed memfd.
 *
 *   offset 0      struct lane_shared (one page)
 *   4096          n_entries x struct request_desc     client -> worker
 *   then          n_entries x struct request_result   worker -> client
 *
 * Submitting: push, then, only if the worker says that it sleeps, write the lane's doorbell (an
 * eventfd). Completing: push, then, only if the client says that somebody waits, wake the futex
 * `complete_tail`. Each sleeper publishes its flag, issues a full fence and looks at the ring once
 * more before it sleeps; each waker pushes, issues a full fence and then reads the flag: so no
 * wake-up is lost and no system call is spent on a peer that is awake.
 *
 * No completion is ever lost: the worker takes a request only while a completion entry is free for
 * it (`n_taken - n_consumed < n_entries`), so a client that does not read stalls only itself.
 *
 * Threads: the client side is serialised by the client library's lane lock; the worker side belongs
 * to the worker thread. */
#pragma once

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/reason.h"
#include "ipc/request.h"
#include "ipc/ring.h"
#include "ipc/shm.h"
#include "ipc/spin.h"

#define LANE_MAGIC        0x454e414cu /* "LANE" */
#define LANE_VERSION      1u
#define LANE_ENTRIES_MIN  16u
#define LANE_ENTRIES_MAX  4096u
#define LANE_HEADER_BYTES 4096u

struct lane_shared {
    uint32_t magic;
    uint32_t version;
    uint32_t n_entries;
    uint32_t device_index;
    alignas(64) _Atomic uint32_t submit_tail;
    alignas(64) _Atomic uint32_t submit_head;
    alignas(64) _Atomic uint32_t complete_tail; /* futex */
    alignas(64) _Atomic uint32_t complete_head;
    alignas(64) _Atomic uint32_t is_worker_asleep; /* written by the worker */
    alignas(64) _Atomic uint32_t n_client_waiters; /* written by the client */
};

/* One side of a lane. Embedded; LANE_NULL is safe to finish. */
struct lane {
    struct region region;
    int doorbell_fd; /* eventfd, non-blocking; owned */
    struct lane_shared *shared;
    struct ring submit;
    struct ring complete;
    struct spin spin; /* of lane_wait_completion() */
    uint32_t n_entries;
    uint32_t device_index;
};

#define LANE_NULL ((struct lane){.region = REGION_NULL, .doorbell_fd = -1})

/* lane_bytes() - the memory of a lane of that many entries. */
uint64_t lane_bytes(uint32_t n_entries);

/* lane_create() - daemon side: make region and doorbell. n_entries: a power of two between
 * LANE_ENTRIES_MIN and LANE_ENTRIES_MAX. Return: 0 or negative errno, as region_create(). */
int lane_create(struct lane *lane, uint32_t n_entries, uint32_t device_index) GD_MUST_CHECK;

/* lane_attach() - client side: take over both fds (closed on failure too) and check header and
 * size. Return: 0, negative errno, or STATUS_VERSION / STATUS_BAD_MESSAGE. */
int lane_attach(struct lane *lane, int region_fd, int doorbell_fd,
                struct reason *why) GD_MUST_CHECK;

void lane_finish(struct lane *lane);

/* Client side. lane_submit() pushes one descriptor and rings the doorbell if the worker sleeps.
 * lane_submit_many() pushes up to n and rings once; returns how many were pushed (0..n), or
 * -EPROTO when the peer's index is impossible. */
enum ring_result lane_submit(struct lane *lane, const struct request_desc *desc) GD_MUST_CHECK;
int lane_submit_many(struct lane *lane, const struct request_desc *descs, uint32_t n) GD_MUST_CHECK;

/* lane_wait_completion() - sleep until the completion ring is not empty or timeout_usec has passed.
 * Polls for spin_usec first at most, by the rules of spin.h. Return: 0 when there is something,
 * -ETIMEDOUT otherwise. May be called by several threads at once; popping is serialised by the
 * caller. */
int lane_wait_completion(struct lane *lane, uint32_t spin_usec,
                         uint64_t timeout_usec) GD_MUST_CHECK;

/* Worker side. lane_complete() pushes one result and wakes waiters.
 * lane_room(): RING_OK while a further request may be popped, since a completion entry is free for
 * it; RING_FULL while none is; RING_CORRUPT when the client's index is impossible.
 * lane_sleep_begin(): publish that the worker will sleep; true if the submit ring is still empty.
 * lane_sleep_end(): the worker is awake again; also empties the doorbell. */
enum ring_result lane_complete(struct lane *lane,
                               const struct request_result *result) GD_MUST_CHECK;
enum ring_result lane_room(const struct lane *lane, uint32_t n_in_flight) GD_MUST_CHECK;
bool lane_sleep_begin(struct lane *lane);
void lane_sleep_end(struct lane *lane);
