/* worker_landing.c - launches end: what the device gives back is counted, and its requests are
 * answered, or launched anew where the device had not begun. */
#include "daemon/engine/worker_internal.h"

#include <assert.h>
#include <errno.h>

#include "ipc/base/clock.h"
#include "ipc/base/log.h"
#include "ipc/base/num.h"

/* The device is gone: nothing that waits will ever run. */
static void lose_device(struct worker *worker)
{
    if (worker->is_lost) {
        return;
    }
    worker->is_lost = true;
    struct reason why;
    (void)reason_set(&why, STATUS_DEVICE_LOST, "device %s failed during a launch",
                     worker->device->name);
    log_write(LOG_LEVEL_ERROR, "worker", "%s; every request is answered DEVICE_LOST", why.text);
    batch_refuse_all(worker, STATUS_DEVICE_LOST, why.text);
    worker->callbacks.on_fatal(worker->callbacks.arg, &why);
}

/* What stops a request between two chunks; 0: nothing. */
static int stop_reason(const struct worker *worker, const struct worker_request *request)
{
    if (request->session->is_muted) {
        return STATUS_CANCELLED;
    }
    if (worker->is_lost) {
        return STATUS_DEVICE_LOST;
    }
    return atomic_load_explicit(&worker->is_stopping, memory_order_relaxed) ? STATUS_SHUTTING_DOWN
                                                                            : 0;
}

static enum request_accumulation accumulation_of(const struct worker_batch *batch)
{
    const struct gk_kernel *kernel = batch->launch.kernel;
    bool is_fast =
        kernel->accumulates_fast != NULL && kernel->accumulates_fast(&batch->launch.gk.problem);
    return is_fast ? REQUEST_ACCUMULATION_FAST : REQUEST_ACCUMULATION_PROMOTED;
}

static void finish_ok(struct worker *worker, struct worker_batch *batch,
                      struct worker_request *request)
{
    struct outcome outcome = {
        .batch_rows = batch->n_rows,
        .batch_requests = batch->n_requests,
        .batch_sessions = batch->n_sessions,
        .accumulation = accumulation_of(batch),
        .end_nsec = batch->launch.end_nsec,
    };
    if (request->start_nsec == 0) {
        request->start_nsec = batch->launch.start_nsec;
    }
    request->n_rows_done +=
        (uint32_t)num_min(request->checked.m - request->n_rows_done, batch->n_rows);
    if (request->n_rows_done == request->checked.m) {
        batch_finish_one(worker, request, &outcome);
        return;
    }
    int status = stop_reason(worker, request);
    if (status != 0) {
        batch_finish_one(worker, request,
                         &(struct outcome){.status = status, .text = status_text(status)});
        return;
    }
    sched_again(worker->sched, &request->item);
}

/* ---- counting ---- */

static uint32_t rows_bucket(const struct worker_batch *batch)
{
    return request_is_prefill(batch->requests[0]) ? STATS_ROW_BUCKETS - 1
                                                  : stats_row_bucket(batch->n_rows);
}

static struct stats_times *kernel_times(struct stats_worker *counters,
                                        const struct worker_batch *batch)
{
    static_assert(GK_CODE_E2M1 < STATS_CODES, "a kind of weight has no place in the figures");
    const struct gk_desc *desc = &batch->launch.gk.problem.desc;
    uint32_t act = gk_act_is_int8(desc->act) ? 1 : gk_act_is_fp8(desc->act) ? 2 : 0;
    return &counters->kernel[desc->code][act][rows_bucket(batch)];
}

/* How long the device was free while a request of this launch waited for it. A chunk of a request
 * that had others before it waits from the end of the launch before. */
static uint64_t stall_nsec(const struct stats_worker *counters, const struct worker_batch *batch)
{
    uint64_t ready_nsec = num_max(batch->oldest_nsec, stats_read(&counters->last_end_nsec));
    uint64_t start_nsec = batch->launch.start_nsec;
    return start_nsec > ready_nsec ? start_nsec - ready_nsec : 0;
}

static void count_launch(struct worker *worker, const struct worker_batch *batch)
{
    struct stats_worker *counters = worker->counters;
    uint64_t run_nsec = batch->launch.end_nsec - batch->launch.start_nsec;
    stats_add(&counters->n_launches, 1);
    stats_add(&counters->n_failed_launches, batch->launch.result != 0);
    stats_add(&counters->n_shared_launches, batch->n_sessions > 1);
    stats_add(&counters->launches_by_rows[rows_bucket(batch)], 1);
    stats_add(&counters->launch_rows, batch->n_rows);
    stats_add(&counters->busy_nsec, run_nsec);
    stats_count_time(kernel_times(counters, batch), run_nsec);
    stats_count_time(&counters->stall, stall_nsec(counters, batch));
    stats_set(&counters->last_end_nsec, batch->launch.end_nsec);
}

static void land(struct worker *worker, struct worker_batch *batch)
{
    count_launch(worker, batch);
    uint64_t run_nsec = batch->launch.end_nsec - batch->launch.start_nsec;
    sched_ended(worker->sched, batch->launch.end_nsec, batch->launch.result == 0 ? run_nsec : 0);
    if (batch->launch.result != 0) {
        bool is_lost = batch->launch.result == STATUS_DEVICE_LOST;
        batch_finish_all(worker, batch, batch->launch.result, status_text(batch->launch.result));
        if (is_lost) {
            lose_device(worker);
        }
        return;
    }
    for (uint32_t i = 0; i < batch->n_requests; i++) {
        finish_ok(worker, batch, batch->requests[i]);
    }
    batch_end(worker, batch);
}

/* One that was armed and has no requests. */
static void land_unfired(struct worker *worker, struct worker_batch *batch)
{
    bool is_lost = batch->launch.result == STATUS_DEVICE_LOST;
    batch_end(worker, batch);
    if (is_lost) {
        lose_device(worker);
    }
}

/* One that came too late: the device had ceased to wait for it. */
static void launch_anew(struct worker *worker, struct worker_batch *batch)
{
    armed_yield(worker); /* its rows may be made of these products */
    sched_postponed(worker->sched, clock_now_nsec());
    batch_send(worker, batch);
}

static void batch_finish(struct worker *worker, struct worker_batch *batch)
{
    if (armed_landed(worker, batch)) {
        land_unfired(worker, batch);
    } else if (batch->launch.result == -ECANCELED) {
        launch_anew(worker, batch);
    } else {
        land(worker, batch);
    }
}

bool batch_poll(struct worker *worker)
{
    bool has_worked = false;
    struct device_launch *launch;
    while (worker->n_busy_batches > 0 &&
           (launch = worker->device->ops->poll(worker->device)) != NULL) {
        batch_finish(worker, LIST_OWNER(launch, struct worker_batch, launch));
        has_worked = true;
    }
    return has_worked;
}
