/* spin.c - see spin.h.
 *
 * Not taken: an estimate of how long the next wait will last. Waits have two kinds of length, a few
 * microseconds and very long, and their mean is neither. */
#include "ipc/spin.h"

#include <sched.h>

#include "ipc/base/clock.h"

/* Asked once; threads that race here find the same answer. An unknown number is taken for many. */
static bool has_one_cpu(void)
{
    static _Atomic int n_known;
    int n_cpus = atomic_load_explicit(&n_known, memory_order_relaxed);
    if (n_cpus == 0) {
        cpu_set_t cpus;
        n_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : CPU_SETSIZE;
        atomic_store_explicit(&n_known, n_cpus, memory_order_relaxed);
    }
    return n_cpus == 1;
}

struct spin_wait spin_begin(struct spin *spin, uint32_t limit_usec)
{
    struct spin_wait wait = {.spin = spin};
    if (limit_usec == 0 || has_one_cpu()) {
        wait.n_polls = SPIN_LOOK_POLLS; /* the first look comes at once, and ends it */
    } else if (atomic_load_explicit(&spin->n_skips, memory_order_relaxed) == 0) {
        wait.budget_nsec = (uint64_t)limit_usec * CLOCK_NSEC_PER_USEC;
    }
    return wait;
}

/* The wait goes to sleep. Several threads may get here at once: a skip more or less is no harm. */
static void learn_failure(const struct spin_wait *wait)
{
    struct spin *spin = wait->spin;
    if (wait->budget_nsec == 0) {
        uint32_t n_skips = atomic_load_explicit(&spin->n_skips, memory_order_relaxed);
        atomic_store_explicit(&spin->n_skips, n_skips > 0 ? n_skips - 1 : 0, memory_order_relaxed);
        return;
    }
    uint32_t backoff = 2 * atomic_load_explicit(&spin->backoff, memory_order_relaxed) + 1;
    backoff = backoff < SPIN_SKIPS_MAX ? backoff : SPIN_SKIPS_MAX;
    atomic_store_explicit(&spin->backoff, backoff, memory_order_relaxed);
    atomic_store_explicit(&spin->n_skips, backoff, memory_order_relaxed);
}

/* Has the wait any time left? Offers the CPU to others when it has. */
static bool look(struct spin_wait *wait)
{
    if (wait->budget_nsec == 0) {
        return false;
    }
    uint64_t now = clock_now_nsec();
    if (wait->look_nsec == 0) {
        wait->end_nsec = now + wait->budget_nsec;
    } else if (now >= wait->end_nsec || now - wait->look_nsec >= SPIN_LOST_NSEC) {
        return false;
    }
    wait->look_nsec = now;
    (void)sched_yield();
    return true;
}

bool spin_again(struct spin_wait *wait)
{
    if (wait->n_polls >= SPIN_LOOK_POLLS) {
        wait->n_polls = 0;
        if (!look(wait)) {
            learn_failure(wait);
            return false;
        }
    }
    wait->n_polls++;
    spin_pause();
    return true;
}

void spin_hit(const struct spin_wait *wait)
{
    /* Waits that are always short write nothing here. */
    if (atomic_load_explicit(&wait->spin->backoff, memory_order_relaxed) != 0) {
        atomic_store_explicit(&wait->spin->backoff, 0, memory_order_relaxed);
        atomic_store_explicit(&wait->spin->n_skips, 0, memory_order_relaxed);
    }
}
