/* worker_launch.c - from the scheduler's choice to a launch. */
#include "daemon/engine/worker_internal.h"

#include "ipc/base/clock.h"

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

static void describe(const struct worker *worker, struct worker_batch *batch)
{
    const struct worker_request *first = batch->requests[0];
    const struct weight *weight = first->checked.weight;
    batch->launch = (struct device_launch){
        .has_cpu_rows = batch->has_cpu_rows,
        .signals = batch->signals,
        .n_signals = batch->n_signals,
        .gk.problem = batch_problem(worker, weight, first->item.class_key),
        .gk.prefill = prefill_of(first),
        .gk.packed = weight->packed.base,
        .gk.x_rows = batch->x_rows,
        .gk.x_scale_rows = first->checked.x_scales != NULL ? batch->x_scale_rows : NULL,
        .gk.y_rows = batch->y_rows,
    };
    batch->launch.gk.problem.m = batch->n_rows;
    batch->launch.gk.problem.is_prefill = request_is_prefill(first);
    batch->launch.gk.problem.may_accumulate_fast =
        request_is_prefill(first) && first->may_accumulate_fast;
}

static void fail(struct worker *worker, struct worker_batch *batch, int status, const char *text)
{
    sched_failed(worker->sched, clock_now_nsec());
    batch_finish_all(worker, batch, status, text);
}

void batch_send(struct worker *worker, struct worker_batch *batch)
{
    int r = worker->device->ops->launch(worker->device, &batch->launch);
    if (r < 0) {
        fail(worker, batch, STATUS_DEVICE_ERROR, "the device refused the launch");
    }
}

static void start(struct worker *worker, struct worker_batch *batch)
{
    describe(worker, batch);
    const struct weight *weight = batch->requests[0]->checked.weight;
    struct reason why;
    int r = weight_select(weight, &batch->launch.gk.problem, &batch->launch.kernel, &why);
    if (r != 0) {
        fail(worker, batch, r, why.text);
        return;
    }
    if (worker_may_arm(worker)) {
        armed_remember(worker, weight);
    }
    batch_send(worker, batch);
}

static void give_out(struct worker *worker, struct sched_item *const *items, uint32_t n_items,
                     uint32_t n_rows)
{
    struct worker_batch *armed = armed_take(worker, items, n_items, n_rows);
    struct worker_batch *batch = armed != NULL ? armed : batch_begin(worker);
    batch_fill(worker, batch, items, n_items, n_rows);
    if (armed != NULL) {
        armed_fire(worker, armed);
    } else {
        start(worker, batch);
    }
}

bool batch_launch(struct worker *worker)
{
    uint64_t last_wake_nsec = worker->wake_nsec;
    worker->wake_nsec = UINT64_MAX;
    if (worker->n_busy_batches - worker->n_unfired == worker->device->launches_max ||
        sched_queued(worker->sched) == 0) {
        return false;
    }
    struct sched_item *items[GK_BATCH_ROWS_MAX];
    struct sched_verdict verdict;
    uint32_t n_items = sched_next(worker->sched, clock_now_nsec(), items, &verdict);
    if (n_items == 0) {
        worker->wake_nsec = verdict.until_nsec;
        if (verdict.until_nsec != last_wake_nsec) {
            batch_count_decisions(worker);
        }
        return false;
    }
    give_out(worker, items, n_items, verdict.n_rows);
    armed_begin(worker);
    batch_count_decisions(worker);
    return true;
}
