/* probe.c - see probe.h. A row of zeros: that the device computes is the question, what it computes
 * is the tests' to check. */
#include "daemon/server/probe.h"

#include <errno.h>
#include <stdlib.h>

#include "ipc/base/error.h"

/* The first weight of the list; NULL when there is none. */
static struct weight *any_weight(const struct core *core)
{
    struct msg_weight *weights = NULL;
    uint32_t n = 0;
    if (store_list_weights(core->store, NULL, &weights, &n, NULL) != 0) {
        return NULL;
    }
    struct weight *weight = n > 0 ? store_acquire(core->store, weights[0].weight_id) : NULL;
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

static int submit(struct probe *probe, struct core *core, const struct weight *weight,
                  struct reason *why)
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
    const struct worker_client client = {.session_id = PROBE_SESSION_ID, .buffers = probe->buffers};
    return worker_submit(core->workers[weight->device->index], &client, &desc, why);
}

int probe_begin(struct probe *probe, struct core *core, bool *ret_is_under_way, struct reason *why)
{
    struct weight *weight = any_weight(core);
    if (weight == NULL) {
        *ret_is_under_way = false;
        return 0;
    }
    int r = submit(probe, core, weight, why);
    weight_unref(weight);
    if (r == 0) {
        *ret_is_under_way = true;
    }
    return r;
}

void probe_finish(struct probe *probe)
{
    probe->buffers = buffers_free(probe->buffers);
}
