/* spin.h - how long a thread that waits polls before it sleeps.
 *
 * Polling answers in a fraction of a microsecond and burns a CPU; sleeping is free and costs a
 * wake-up of tens. So a wait polls while recent waits say that it pays, by these rules:
 *
 *   - The first SPIN_LOOK_POLLS polls, 2 to 4 us, look at no clock and always happen.
 *   - Then it polls for limit_usec at most. A wait that polled in vain makes the next ones skip
 *     this step: 1 of them, then 3, 7, ... up to SPIN_SKIPS_MAX; each wait that ends while it polls
 *     sets that back to none. So a stream of long waits costs less than limit_usec / 64 each, one
 * of short waits never sleeps, and a change from one to the other is noticed within 64 waits. What
 *     counts is whether polling would have helped, not how long the sleep was: two sides that wake
 *     each other see long waits for ever, until one of them tries to poll.
 *   - At each look at the clock the CPU is offered to whoever wants it (sched_yield). Time that is
 *     missing then means that somebody did: polling is given up, since a sleeper is woken before
 *     others while a poller has to stand in line.
 *   - A process that may run on one CPU only never polls: nobody could make it succeed.
 *
 * Threads: several may wait on one struct spin; what they learn mixes. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SPIN_LOOK_POLLS 64u /* between two looks at the clock */
#define SPIN_SKIPS_MAX  63u
#define SPIN_LOST_NSEC  50000u /* between two looks: this thread's CPU went to another */

/* What was learned. Zero is "nothing yet": the next wait polls. */
struct spin {
    _Atomic uint32_t n_skips; /* waits that will not poll beyond the first look */
    _Atomic uint32_t backoff; /* n_skips after the latest failure */
};

/* One wait. */
struct spin_wait {
    struct spin *spin;
    uint64_t budget_nsec; /* 0: until the first look only */
    uint64_t end_nsec;
    uint64_t look_nsec; /* the last look; 0: none yet */
    uint32_t n_polls;
};

/* spin_begin() - a wait begins; limit_usec: what polling may take, 0 for not at all.
 * spin_again() - to be called before each poll: true to poll (a pause of the CPU is included),
 * false to sleep; not to be called again then. spin_hit() - a poll found what it waited for. */
struct spin_wait spin_begin(struct spin *spin, uint32_t limit_usec);
bool spin_again(struct spin_wait *wait);
void spin_hit(const struct spin_wait *wait);

/* spin_pause() - tell the CPU that this is a polling loop. */
static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}
