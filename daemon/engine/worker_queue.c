/* worker_queue.c - requests that wait for their launch: into the scheduler, and out of it without
 * one. */
#include "daemon/engine/worker_internal.h"

#include <assert.h>

#include "ipc/base/clock.h"
#include "ipc/base/num.h"

int worker_door_status(const struct worker *worker)
{
    if (worker->is_lost) {
        return STATUS_DEVICE_LOST;
    }
    if (atomic_load_explicit(&worker->is_stopping, memory_order_relaxed) ||
        atomic_load_explicit(&worker->is_draining, memory_order_relaxed)) {
        return STATUS_SHUTTING_DOWN;
    }
    return 0;
}

static uint64_t deadline_of(const struct worker_request *request, uint64_t now_nsec)
{
    uint64_t deadline_nsec;
    if (request->timeout_usec == 0 || !num_mul(request->timeout_usec, 1000, &deadline_nsec) ||
        !num_add(deadline_nsec, now_nsec, &deadline_nsec)) {
        return 0; /* none, or beyond the end of time */
    }
    return deadline_nsec;
}

void batch_enqueue(struct worker *worker, struct worker_request *request, uint64_t now_nsec)
{
    request->seen_nsec = now_nsec;
    request->item.deadline_nsec = deadline_of(request, now_nsec);
    enum sched_push r = sched_push(worker->sched, &request->item, now_nsec);
    GD_ASSERT(r == SCHED_PUSHED); /* it has room for every request of the pool */
}

bool batch_drop_waiting(struct worker *worker, struct worker_request *request)
{
    return sched_cancel(worker->sched, &request->item, clock_now_nsec());
}

void batch_refuse_all(struct worker *worker, int status, const char *text)
{
    uint64_t now_nsec = clock_now_nsec();
    for (struct sched_item *item; (item = sched_any(worker->sched, now_nsec)) != NULL;) {
        request_refuse(worker, request_of_item(item), status, text);
    }
}

void batch_count_decisions(struct worker *worker)
{
    static_assert(SCHED_CLOSES == STATS_CLOSES && SCHED_HOLDS == STATS_HOLDS,
                  "a reason has no place in the figures");
    struct stats_worker *counters = worker->counters;
    struct sched_stats stats;
    sched_stats(worker->sched, &stats);
    for (uint32_t i = 0; i < SCHED_CLOSES; i++) {
        stats_set(&counters->n_closed[i], stats.n_closed[i]);
    }
    for (uint32_t i = 0; i < SCHED_HOLDS; i++) {
        stats_set(&counters->n_holds[i], stats.n_holds[i]);
        stats_set(&counters->hold_idle_nsec[i], stats.idle_nsec[i]);
    }
    stats_set(&counters->n_held, stats.n_held);
    stats_set(&counters->n_passes, stats.n_rings);
    stats_set(&counters->n_in_step, stats.n_in_step);
}
