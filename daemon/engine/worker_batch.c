/* worker_batch.c - what a launch is made of: a pool of batches, and requests that fill them.
 *
 * A batch reads and writes the clients' buffers in place, through tables of row addresses. Of a
 * request of more rows than a batch has, a prefill, the scheduler launches a chunk at a time. All
 * of its chunks are launched as prefill, so that their bits do not depend on how it is cut. */
#include "daemon/engine/worker_internal.h"

#include "ipc/base/clock.h"
#include "ipc/base/num.h"

/* ---- filling ---- */

/* A request whose last rows these are. */
static void add_signal(struct worker_batch *batch, const struct worker_request *request)
{
    if (order_signal(request, &batch->signals[batch->n_signals])) {
        batch->n_signals++;
    }
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

void batch_fill(struct worker *worker, struct worker_batch *batch, struct sched_item *const *items,
                uint32_t n_items, uint32_t n_rows)
{
    worker->n_batches++;
    for (uint32_t i = 0; i < n_items; i++) {
        add_request(worker, batch, request_of_item(items[i]), n_rows);
    }
}

/* ---- the pool ---- */

struct worker_batch *batch_begin(struct worker *worker)
{
    for (uint32_t i = 0; i < worker_batches(worker->device); i++) {
        struct worker_batch *batch = &worker->batches[i];
        if (!batch->is_busy) {
            batch->is_busy = true;
            batch->n_requests = 0;
            batch->n_sessions = 0;
            batch->n_rows = 0;
            batch->n_signals = 0;
            batch->has_cpu_rows = false;
            batch->is_expecting = false;
            batch->oldest_nsec = UINT64_MAX;
            worker->n_busy_batches++;
            return batch;
        }
    }
    return NULL;
}

void batch_end(struct worker *worker, struct worker_batch *batch)
{
    batch->weight = weight_unref(batch->weight);
    batch->is_busy = false;
    worker->n_busy_batches--;
}

void batch_finish_one(struct worker *worker, struct worker_request *request,
                      const struct outcome *outcome)
{
    uint64_t now_nsec = outcome->end_nsec != 0 ? outcome->end_nsec : clock_now_nsec();
    sched_done(worker->sched, &request->item, now_nsec);
    request_finish(worker, request, outcome);
}

void batch_finish_all(struct worker *worker, struct worker_batch *batch, int status,
                      const char *text)
{
    for (uint32_t i = 0; i < batch->n_requests; i++) {
        batch_finish_one(worker, batch->requests[i],
                         &(struct outcome){.status = status, .text = text});
    }
    batch_end(worker, batch);
}

/* ---- its problem ---- */

struct gk_problem batch_problem(const struct worker *worker, const struct weight *weight,
                                uint32_t class_key)
{
    return (struct gk_problem){
        .desc = weight->desc,
        .layout = weight->layout,
        .x_dtype = (enum dtype)(class_key & 0xffu),
        .y_dtype = (enum dtype)(class_key >> 8),
        .cuda_arch = worker->device->cuda_arch,
        .n_sms = worker->device->n_sms,
    };
}

uint32_t batch_chunk_rows(const struct worker *worker, const struct worker_request *request)
{
    uint32_t m = request->checked.m;
    if (m <= GK_BATCH_ROWS_MAX) {
        return m; /* no need to ask: this is on every decode request's way */
    }
    struct gk_problem problem =
        batch_problem(worker, request->checked.weight, request->item.class_key);
    problem.is_prefill = true;
    problem.may_accumulate_fast = request->may_accumulate_fast;
    return (uint32_t)num_min(m, gk_rows_max(&problem));
}
