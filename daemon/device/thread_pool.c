/* thread_pool.c - see thread_pool.h for the design. An OpenMP runtime would do the loops as well,
 * but it spins or sleeps by its own rules, and its barrier waits for every thread of the team. */
#include "daemon/device/thread_pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "ipc/base/error.h"
#include "ipc/spin.h"

/* Polls before a waiting caller offers its CPU to somebody else: a thread that holds the last part
 * may need just that CPU. */
#define POLLS_PER_YIELD 64u

struct thread_pool {
    /* loop number << 32 | parts not yet taken */
    alignas(64) _Atomic uint64_t loop;
    alignas(64) _Atomic uint32_t n_done;
    _Atomic bool is_stopping;
    /* Arguments of the loop: written before `loop` is published, read after a part was taken. */
    alignas(64) thread_pool_fn fn;
    void *arg;
    uint32_t n_parts;
    uint32_t n_loops;

    alignas(64) _Atomic uint32_t n_sleeping;
    pthread_mutex_t mutex; /* with `wake`: for sleeping only */
    pthread_cond_t wake;
    uint32_t n_helpers;
    pthread_t helpers[THREAD_POOL_THREADS_MAX];
};

static bool has_parts(struct thread_pool *pool)
{
    return (uint32_t)atomic_load_explicit(&pool->loop, memory_order_acquire) != 0;
}

/* Take one part of the published loop; false when none is left. */
static bool take_part(struct thread_pool *pool, uint32_t *ret_part)
{
    uint64_t loop = atomic_load_explicit(&pool->loop, memory_order_acquire);
    while ((uint32_t)loop != 0) {
        if (atomic_compare_exchange_weak_explicit(&pool->loop, &loop, loop - 1,
                                                  memory_order_acq_rel, memory_order_acquire)) {
            *ret_part = (uint32_t)loop - 1;
            return true;
        }
    }
    return false;
}

static void work(struct thread_pool *pool)
{
    uint32_t i_part;
    while (take_part(pool, &i_part)) {
        pool->fn(pool->arg, i_part, pool->n_parts);
        atomic_fetch_add_explicit(&pool->n_done, 1, memory_order_release);
    }
}

/* Poll for parts; false when it is time to sleep. */
static bool spin_for_parts(struct thread_pool *pool, struct spin *spin)
{
    struct spin_wait wait = spin_begin(spin, THREAD_POOL_SPIN_USEC);
    while (spin_again(&wait)) {
        if (has_parts(pool)) {
            spin_hit(&wait);
            return true;
        }
    }
    return false;
}

/* The sleeper counts itself, then looks again; the caller publishes, then reads the count: all four
 * sequentially consistent, so that one of them sees the other. */
static void sleep_for_parts(struct thread_pool *pool)
{
    (void)pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_sleeping, 1);
    while ((uint32_t)atomic_load(&pool->loop) == 0 && !atomic_load(&pool->is_stopping)) {
        (void)pthread_cond_wait(&pool->wake, &pool->mutex);
    }
    atomic_fetch_sub(&pool->n_sleeping, 1);
    (void)pthread_mutex_unlock(&pool->mutex);
}

static void *helper_main(void *arg)
{
    struct thread_pool *pool = arg;
    struct spin spin = {0};
    while (!atomic_load_explicit(&pool->is_stopping, memory_order_relaxed)) {
        if (!spin_for_parts(pool, &spin)) {
            sleep_for_parts(pool);
        }
        work(pool);
    }
    return NULL;
}

int thread_pool_new(uint32_t n_threads, struct thread_pool **ret_pool)
{
    if (n_threads == 0 || n_threads > THREAD_POOL_THREADS_MAX) {
        return err_raise(-EINVAL);
    }
    struct thread_pool *pool = aligned_alloc(alignof(struct thread_pool), sizeof(*pool));
    if (pool == NULL) {
        return err_raise(-ENOMEM);
    }
    *pool = (struct thread_pool){0};
    (void)pthread_mutex_init(&pool->mutex, NULL);
    (void)pthread_cond_init(&pool->wake, NULL);
    while (pool->n_helpers < n_threads - 1) {
        int r = pthread_create(&pool->helpers[pool->n_helpers], NULL, helper_main, pool);
        if (r != 0) {
            (void)thread_pool_free(pool);
            return err_raise(-r);
        }
        (void)pthread_setname_np(pool->helpers[pool->n_helpers], "gemmd-compute");
        pool->n_helpers++;
    }
    *ret_pool = pool;
    return 0;
}

struct thread_pool *thread_pool_free(struct thread_pool *pool)
{
    if (pool == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->is_stopping, true);
    (void)pthread_cond_broadcast(&pool->wake);
    (void)pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < pool->n_helpers; i++) {
        (void)pthread_join(pool->helpers[i], NULL);
    }
    (void)pthread_cond_destroy(&pool->wake);
    (void)pthread_mutex_destroy(&pool->mutex);
    free(pool);
    return NULL;
}

static void wake_sleepers(struct thread_pool *pool, uint32_t n_wanted)
{
    if (atomic_load(&pool->n_sleeping) == 0) {
        return;
    }
    (void)pthread_mutex_lock(&pool->mutex);
    for (uint32_t i = 0; i < n_wanted && i < pool->n_helpers; i++) {
        (void)pthread_cond_signal(&pool->wake);
    }
    (void)pthread_mutex_unlock(&pool->mutex);
}

static void wait_for_others(struct thread_pool *pool, uint32_t n_parts)
{
    for (uint32_t i_poll = 1; atomic_load_explicit(&pool->n_done, memory_order_acquire) != n_parts;
         i_poll++) {
        spin_pause();
        if (i_poll % POLLS_PER_YIELD == 0) {
            (void)sched_yield();
        }
    }
}

void thread_pool_run(struct thread_pool *pool, thread_pool_fn fn, void *arg, uint32_t n_parts)
{
    if (n_parts <= 1 || pool->n_helpers == 0) {
        for (uint32_t i = 0; i < n_parts; i++) {
            fn(arg, i, n_parts);
        }
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->n_parts = n_parts;
    pool->n_loops++;
    atomic_store_explicit(&pool->n_done, 0, memory_order_relaxed);
    atomic_store(&pool->loop, (uint64_t)pool->n_loops << 32 | n_parts);
    wake_sleepers(pool, n_parts - 1);
    work(pool);
    wait_for_others(pool, n_parts);
}
