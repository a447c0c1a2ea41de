/* thread_pool.h - a few threads that help one caller through loops of independent parts.
 *
 * DESIGN. The caller publishes one word, (loop number, parts left), and takes parts itself; every
 * thread that sees the word takes parts from it by compare-and-swap until none is left. So a loop
 * never waits for a thread that has not started, a late thread can only find an empty word, and a
 * part that was taken keeps the loop open, which makes it safe to read the loop's arguments after
 * taking. Idle threads poll the word for THREAD_POOL_SPIN_USEC at most, by the rules of ipc/spin.h,
 * then sleep on a condition; the caller looks at the number of sleepers and makes no system call
 * when there is none. A loop of one part runs in the caller and touches no other thread.
 *
 * Threads: thread_pool_run() by one thread at a time. */
#pragma once

#include <stdint.h>

#include "ipc/base/check.h"

#define THREAD_POOL_THREADS_MAX 256u
#define THREAD_POOL_SPIN_USEC   50u

struct thread_pool;

typedef void (*thread_pool_fn)(void *arg, uint32_t i_part, uint32_t n_parts);

/* thread_pool_new() - n_threads counts the caller: n_threads - 1 are started. 1 is a pool that does
 * everything in the caller. Return: 0 or negative errno. */
int thread_pool_new(uint32_t n_threads, struct thread_pool **ret_pool) GD_MUST_CHECK;
struct thread_pool *thread_pool_free(struct thread_pool *pool); /* joins; no loop may be running */

/* thread_pool_run() - call fn once for each part, on any of the threads, and return when all are
 * done; what they wrote is visible to the caller, and to the parts of the next loop. */
void thread_pool_run(struct thread_pool *pool, thread_pool_fn fn, void *arg, uint32_t n_parts);
