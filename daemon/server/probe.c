/* probe.c - see probe.h. A row of zeros: that the device computes is the question, what it computes
 * is the tests' to check. */
#include "daemon/server/probe.h"

#include <errno.h>
#include <stdlib.h>

#include "ipc/base/clock.h"
#include "ipc/base/error.h"

void probe_init(struct probe *probe, struct core *core, uint32_t i_device)
{
    *probe = (struct probe){.core = core, .i_device = i_device};
}

void probe_finish(struct probe *probe)
{
    probe->buffers = buffers_free(probe->buffers);
    probe->state = PROBE_IDLE;
}

/* Clients' sessions count up from 1. */
uint64_t probe_session_id(uint32_t i_device)
{
    return UINT64_MAX - i_device;
}

struct probe *probe_of(struct probe *probes, uint64_t session_id)
{
    uint64_t i_device = UINT64_MAX - session_id;
    return i_device < CONFIG_DEVICES_MAX ? &probes[i_device] : NULL;
}

/* ---- asking ---- */

/* A weight of the device; NULL when there is none. */
static struct weight *any_weight(const struct core *core, uint32_t i_device)
{
    struct msg_weight *weights = NULL;
    struct weight *weight = NULL;
    uint32_t n = 0;
    if (store_list_weights(core->store, NULL, &weights, &n, NULL) != 0) {
        return NULL;
    }
    for (uint32_t i = 0; i < n && weight == NULL; i++) {
        if (weights[i].device_index == i_device) {
            weight = store_acquire(core->store, weights[i].weight_id);
        }
    }
    free(weights);
    return weight;
}

static int add_buffer(struct probe *probe, struct device *device, uint64_t size_bytes,
                      uint64_t *ret_id, struct reason *why)
{
    struct region region = REGION_NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    int r = device->ops->region_new(device, "gemmd-probe", size_bytes, &region, why);
    if (r != 0) {
        return r;
    }
    r = buffers_add(probe->buffers, device, &region, &charge, ret_id, why);
    if (r != 0) {
        device->ops->region_free(device, &region);
    }
    return r;
}

static int submit(struct probe *probe, const struct weight *weight, struct reason *why)
{
    struct request_desc desc = {
        .request_id = 1,
        .weight_id = weight->slot_id,
        .x_stride_elems = weight->desc.k,
        .y_stride_elems = weight->desc.n,
        .m = 1,
        .n = weight->desc.n,
        .k = weight->desc.k,
        .op = REQUEST_OP_GEMM,
        .x_dtype = DTYPE_F32,
        .y_dtype = DTYPE_F32,
    };
    int r = buffers_new(2, &probe->buffers);
    r = r != 0 ? r : add_buffer(probe, weight->device, desc.k * 4ull, &desc.x_buffer_id, why);
    r = r != 0 ? r : add_buffer(probe, weight->device, desc.n * 4ull, &desc.y_buffer_id, why);
    if (r != 0) {
        return r;
    }
    const struct worker_client client = {.session_id = probe_session_id(probe->i_device),
                                         .buffers = probe->buffers};
    return worker_submit(probe->core->workers[probe->i_device], &client, &desc, why);
}

int probe_begin(struct probe *probe, bool *ret_is_under_way, struct reason *why)
{
    GD_ASSERT(probe->state == PROBE_IDLE);
    struct weight *weight = any_weight(probe->core, probe->i_device);
    if (weight == NULL) {
        *ret_is_under_way = false;
        return 0;
    }
    int r = submit(probe, weight, why);
    weight_unref(weight);
    if (r != 0) {
        probe->buffers = buffers_free(probe->buffers);
        return r;
    }
    probe->state = PROBE_ASKED;
    probe->begin_nsec = clock_now_nsec();
    *ret_is_under_way = true;
    return 0;
}

/* ---- the answer ---- */

static void note_failure(struct probe *probe, int status, const char *text)
{
    probe->failure_nsec = clock_now_nsec();
    (void)reason_set(&probe->failure, status, "%.300s", text);
}

void probe_on_reply(struct probe *probe, const struct request_result *result)
{
    probe->failure_nsec = 0;
    if (result->status != STATUS_OK) {
        note_failure(probe, (int)result->status, result->text);
    }
    struct worker *worker = probe->core->workers[probe->i_device];
    if (worker == NULL) { /* it has ended, and its sessions with it */
        probe_finish(probe);
        return;
    }
    probe->state = PROBE_LEAVING;
    worker_detach(worker, probe_session_id(probe->i_device));
}

void probe_on_detached(struct probe *probe)
{
    probe_finish(probe);
}

static int judge_running(const struct probe *probe, struct reason *why)
{
    uint64_t waited_nsec = clock_now_nsec() - probe->begin_nsec;
    if (waited_nsec < PROBE_WAIT_MSEC * (uint64_t)CLOCK_NSEC_PER_MSEC) {
        return -EAGAIN; /* an answer, not a fault */
    }
    return reason_set(why, STATUS_TIMEOUT, "a product has been waited for for %.1f s",
                      (double)waited_nsec / 1e9);
}

int probe_judge(struct probe *probe, uint64_t max_age_nsec, struct reason *why)
{
    struct worker_stats stats;
    worker_stats(probe->core->workers[probe->i_device], &stats);
    uint64_t now_nsec = clock_now_nsec();
    if (stats.last_ok_nsec != 0 && now_nsec - stats.last_ok_nsec <= max_age_nsec) {
        return 0;
    }
    if (probe->failure_nsec != 0 && now_nsec - probe->failure_nsec <= max_age_nsec) {
        *why = probe->failure;
        return probe->failure.status;
    }
    if (probe->state != PROBE_IDLE) {
        return judge_running(probe, why);
    }
    bool is_under_way = false;
    int r = probe_begin(probe, &is_under_way, why);
    if (r != 0) {
        return r;
    }
    return is_under_way ? -EAGAIN : 0;
}
