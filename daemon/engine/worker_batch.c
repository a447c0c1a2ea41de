/* worker_batch.c - from the scheduler's choice to a launch and back.
 *
 * A batch reads and writes the clients' buffers in place, through tables of row addresses. Of a
 * request of more rows than a batch has, a prefill, the scheduler launches a chunk at a time. All
 * of its chunks are launched as prefill, so that their bits do not depend on how it is cut. */
#include "daemon/engine/worker_internal.h"

#include <assert.h>
#include <errno.h>

#include "ipc/base/clock.h"
#include "ipc/base/log.h"
#include "ipc/base/num.h"

/* ---- filling ---- */

/* A request whose last rows these are. */
static void add_signal(struct worker_batch *batch, const struct worker_request *request)
{
    if (order_signal(request, &batch->signals[batch->n_signals])) {
        batch->n_signals++;
    }
}

static bool is_prefill(const struct worker_request *request)
{
    return request->item.n_rows > GK_BATCH_ROWS_MAX;
}

/* As many rows of the request as it has left, n_rows_max at most. More than the tables hold are
 * launched by address and stride alone. */
static void add_rows(struct worker_batch *batch, const struct worker_request *request,
                     uint32_t n_rows_max)
{
    const struct checked *checked = &request->checked;
    uint32_t n_rows = (uint32_t)num_min(checked->m - request->n_rows_done, n_rows_max);
    for (uint64_t i = 0; n_rows <= GK_BATCH_ROWS_MAX && i < n_rows; i++) {
        uint64_t i_row = request->n_rows_done + i;
        batch->x_rows[batch->n_rows + i] = checked->x + i_row * checked->x_stride_bytes;
        batch->y_rows[batch->n_rows + i] = checked->y + i_row * checked->y_stride_bytes;
        if (checked->x_scales != NULL) {
            batch->x_scale_rows[batch->n_rows + i] =
                (const float *)(checked->x_scales + i_row * checked->x_scale_stride_bytes);
        }
    }
    batch->n_rows += n_rows;
    if (request->n_rows_done + n_rows == checked->m) {
        add_signal(batch, request);
    }
}

static void add_request(struct worker *worker, struct worker_batch *batch,
                        struct worker_request *request, uint32_t n_rows_max)
{
    add_rows(batch, request, n_rows_max);
    batch->has_cpu_rows |= buffer_is_cpu_memory(request->checked.x_buffer);
    batch->oldest_nsec = num_min(batch->oldest_nsec, request->seen_nsec);
    batch->requests[batch->n_requests++] = request;
    if (request->session->last_batch != worker->n_batches) {
        request->session->last_batch = worker->n_batches;
        batch->n_sessions++;
    }
}

static struct worker_batch *batch_begin(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->device->launches_max; i++) {
        struct worker_batch *batch = &worker->batches[i];
        if (!batch->is_busy) {
            batch->is_busy = true;
            batch->n_requests = 0;
            batch->n_sessions = 0;
            batch->n_rows = 0;
            batch->n_signals = 0;
            batch->has_cpu_rows = false;
            batch->oldest_nsec = UINT64_MAX;
            worker->n_busy_batches++;
            worker->n_batches++;
            return batch;
        }
    }
    return NULL;
}

static void batch_end(struct worker *worker, struct worker_batch *batch)
{
    batch->is_busy = false;
    worker->n_busy_batches--;
}

/* ---- ending ---- */

static void finish_taken(struct worker *worker, struct worker_request *request,
                         const struct outcome *outcome)
{
    uint64_t now_nsec = outcome->end_nsec != 0 ? outcome->end_nsec : clock_now_nsec();
    sched_done(worker->sched, &request->item, now_nsec);
    request_finish(worker, request, outcome);
}

static void finish_all(struct worker *worker, struct worker_batch *batch, int status,
                       const char *text)
{
    for (uint32_t i = 0; i < batch->n_requests; i++) {
        finish_taken(worker, batch->requests[i], &(struct outcome){.status = status, .text = text});
    }
    batch_end(worker, batch);
}

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
        finish_taken(worker, request, &outcome);
        return;
    }
    int status = stop_reason(worker, request);
    if (status != 0) {
        finish_taken(worker, request,
                     &(struct outcome){.status = status, .text = status_text(status)});
        return;
    }
    sched_again(worker->sched, &request->item);
}

/* ---- counting ---- */

static uint32_t rows_bucket(const struct worker_batch *batch)
{
    return is_prefill(batch->requests[0]) ? STATS_ROW_BUCKETS - 1 : stats_row_bucket(batch->n_rows);
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

static void batch_finish(struct worker *worker, struct worker_batch *batch)
{
    count_launch(worker, batch);
    uint64_t run_nsec = batch->launch.end_nsec - batch->launch.start_nsec;
    sched_ended(worker->sched, batch->launch.end_nsec, batch->launch.result == 0 ? run_nsec : 0);
    if (batch->launch.result != 0) {
        bool is_lost = batch->launch.result == STATUS_DEVICE_LOST;
        finish_all(worker, batch, batch->launch.result, status_text(batch->launch.result));
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

/* ---- launching ---- */

static struct gk_problem problem_of(const struct worker *worker,
                                    const struct worker_request *request)
{
    const struct weight *weight = request->checked.weight;
    return (struct gk_problem){
        .desc = weight->desc,
        .layout = weight->layout,
        .x_dtype = (enum dtype)(request->item.class_key & 0xffu),
        .y_dtype = (enum dtype)(request->item.class_key >> 8),
        .cuda_arch = worker->device->cuda_arch,
        .is_prefill = is_prefill(request),
        .may_accumulate_fast = is_prefill(request) && request->may_accumulate_fast,
    };
}

uint32_t batch_chunk_rows(const struct worker *worker, const struct worker_request *request)
{
    uint32_t m = request->checked.m;
    if (m <= GK_BATCH_ROWS_MAX) {
        return m; /* no need to ask: this is on every decode request's way */
    }
    struct gk_problem problem = problem_of(worker, request);
    return (uint32_t)num_min(m, gk_rows_max(&problem));
}

static struct gk_prefill prefill_of(const struct worker_request *request)
{
    const struct checked *checked = &request->checked;
    uint64_t i_row = request->n_rows_done;
    return (struct gk_prefill){
        .x = checked->x + i_row * checked->x_stride_bytes,
        .y = checked->y + i_row * checked->y_stride_bytes,
        .x_scales = checked->x_scales != NULL
                        ? checked->x_scales + i_row * checked->x_scale_stride_bytes
                        : NULL,
        .x_stride_bytes = checked->x_stride_bytes,
        .y_stride_bytes = checked->y_stride_bytes,
        .x_scale_stride_bytes = checked->x_scale_stride_bytes,
    };
}

static void batch_start(struct worker *worker, struct worker_batch *batch)
{
    const struct worker_request *first = batch->requests[0];
    const struct weight *weight = first->checked.weight;
    batch->launch = (struct device_launch){
        .has_cpu_rows = batch->has_cpu_rows,
        .signals = batch->signals,
        .n_signals = batch->n_signals,
        .gk.problem = problem_of(worker, first),
        .gk.prefill = prefill_of(first),
        .gk.packed = weight->packed.base,
        .gk.x_rows = batch->x_rows,
        .gk.x_scale_rows = first->checked.x_scales != NULL ? batch->x_scale_rows : NULL,
        .gk.y_rows = batch->y_rows,
    };
    batch->launch.gk.problem.m = batch->n_rows;
    struct reason why;
    int r = weight_select(weight, &batch->launch.gk.problem, &batch->launch.kernel, &why);
    if (r != 0) {
        sched_failed(worker->sched, clock_now_nsec());
        finish_all(worker, batch, r, why.text);
        return;
    }
    r = worker->device->ops->launch(worker->device, &batch->launch);
    if (r < 0) {
        sched_failed(worker->sched, clock_now_nsec());
        finish_all(worker, batch, STATUS_DEVICE_ERROR, "the device refused the launch");
    }
}

/* The scheduler's figures, after each decision. */
static void count_decisions(struct worker *worker)
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

bool batch_launch(struct worker *worker)
{
    uint64_t last_wake_nsec = worker->wake_nsec;
    worker->wake_nsec = UINT64_MAX;
    if (worker->n_busy_batches == worker->device->launches_max ||
        sched_queued(worker->sched) == 0) {
        return false;
    }
    struct sched_item *items[GK_BATCH_ROWS_MAX];
    struct sched_verdict verdict;
    uint32_t n_items = sched_next(worker->sched, clock_now_nsec(), items, &verdict);
    if (n_items == 0) {
        worker->wake_nsec = verdict.until_nsec;
        if (verdict.until_nsec != last_wake_nsec) {
            count_decisions(worker);
        }
        return false;
    }
    struct worker_batch *batch = batch_begin(worker);
    for (uint32_t i = 0; i < n_items; i++) {
        add_request(worker, batch, request_of_item(items[i]), verdict.n_rows);
    }
    batch_start(worker, batch);
    count_decisions(worker);
    return true;
}

/* ---- waiting ---- */

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
