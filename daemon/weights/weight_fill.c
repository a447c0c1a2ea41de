/* weight_fill.c - see weight_fill.h. Two ways with the same bytes: canonical form packed by the CPU
 * into a view of the region, or the checkpoint's codes packed by the device. */
#include "daemon/weights/weight_fill.h"

#include <stdatomic.h>
#include <stdio.h>

#include "daemon/weights/module_read.h"
#include "daemon/weights/plan_read.h"
#include "ipc/base/clock.h"
#include "ipc/base/num.h"

#define TENSOR_ALIGNMENT 256u

static int new_region(struct weight *weight, struct progress *progress, struct reason *why)
{
    char name[128];
    uint64_t start_nsec = clock_now_nsec();
    (void)snprintf(name, sizeof(name), "gemmd:%.100s", weight->name);
    int r = weight->device->ops->region_new(
        weight->device, name, weight->layout->packed_bytes(&weight->desc), &weight->packed, why);
    (void)progress_spend(progress, MSG_LOAD_PREPARE, start_nsec);
    return r;
}

/* ---- by the CPU ---- */

static int pack_view(struct weight *weight, const struct gk_canonical *canonical,
                     struct reason *why)
{
    void *packed;
    int r = device_view_begin(weight->device, &weight->packed, DEVICE_WRITE, &packed, why);
    if (r != 0) {
        return r;
    }
    weight->layout->pack(canonical, packed);
    return device_view_end(weight->device, &weight->packed, DEVICE_WRITE, why);
}

static int fill_by_cpu(struct weight *weight, const struct plan_item *item,
                       struct progress *progress, struct warnings *warnings, struct reason *why)
{
    struct gk_canonical canonical;
    int r = plan_read(item, progress, warnings, &canonical, why);
    if (r != 0) {
        return r;
    }
    r = new_region(weight, progress, why);
    uint64_t start_nsec = clock_now_nsec();
    r = r != 0 ? r : pack_view(weight, &canonical, why);
    (void)progress_spend(progress, MSG_LOAD_PACK, start_nsec);
    gk_canonical_finish(&canonical);
    return r;
}

/* ---- by the device ---- */

static uint64_t tensor_bytes(const struct plan_part *part)
{
    uint64_t size_bytes = part->module->tensors[MODULE_WEIGHT]->tensor->size_bytes;
    return num_align_up(size_bytes, TENSOR_ALIGNMENT);
}

static struct gk_codes codes_of(const struct plan_part *part, const void *bytes, uint32_t to_n)
{
    const struct module *module = part->module;
    return (struct gk_codes){
        .order = module_code_order(module),
        .bytes = bytes,
        .size_bytes = module->tensors[MODULE_WEIGHT]->tensor->size_bytes,
        .tensor_n = module->desc.n,
        .tensor_k = module->desc.k,
        .first_n = part->axis == SHAPING_N ? part->first : 0,
        .first_k = part->axis == SHAPING_K ? part->first : 0,
        .n = part->desc.n,
        .to_n = to_n,
    };
}

/* The tensors of all parts to the device, one behind the other. */
static int send_codes(struct weight *weight, const struct plan_item *item, struct packer *packer,
                      struct progress *progress, struct gk_codes codes[SHAPING_PARTS_MAX],
                      struct reason *why)
{
    const void *base = NULL;
    uint64_t total_bytes = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        total_bytes += tensor_bytes(&item->parts[i]);
    }
    uint64_t start_nsec = clock_now_nsec();
    int r = weight->device->ops->packing->begin(packer, total_bytes, &base, why);
    (void)progress_spend(progress, MSG_LOAD_PREPARE, start_nsec);
    uint64_t offset = 0;
    uint32_t to_n = 0;
    for (uint32_t i = 0; r == 0 && i < item->n_parts; i++) {
        const struct plan_part *part = &item->parts[i];
        codes[i] = codes_of(part, (const char *)base + offset, to_n);
        r = module_send_codes(part->module, weight->device, packer, offset, progress, why);
        offset += tensor_bytes(part);
        to_n += part->desc.n;
    }
    return r;
}

static int fill_by_device(struct weight *weight, const struct plan_item *item,
                          struct packer *packer, struct progress *progress,
                          struct warnings *warnings, struct reason *why)
{
    struct gk_codes codes[SHAPING_PARTS_MAX];
    struct gk_canonical rest;
    int r = new_region(weight, progress, why);
    r = r != 0 ? r : send_codes(weight, item, packer, progress, codes, why);
    r = r != 0 ? r : plan_read_rest(item, progress, warnings, &rest, why);
    if (r != 0) {
        return r;
    }
    uint64_t start_nsec = clock_now_nsec();
    r = weight->device->ops->packing->pack(packer, &rest, codes, item->n_parts, &weight->packed,
                                           why);
    (void)progress_spend(progress, MSG_LOAD_PACK, start_nsec);
    gk_canonical_finish(&rest);
    return r;
}

/* What was read and warned of is taken back where the CPU does it all over. */
static int fill_by_either(struct weight *weight, const struct plan_item *item,
                          struct packer *packer, struct progress *progress,
                          struct warnings *warnings, struct reason *why)
{
    struct warnings own = WARNINGS_NULL;
    struct reason own_why = REASON_NULL;
    int r = fill_by_device(weight, item, packer, progress, &own, &own_why);
    if (r == STATUS_NO_SPACE || r == STATUS_BAD_CHECKPOINT) {
        warnings_finish(&own);
        if (weight->packed.base) {
            weight->device->ops->region_free(weight->device, &weight->packed);
        }
        return fill_by_cpu(weight, item, progress, warnings, why);
    }
    warnings_take(warnings, &own);
    return r > 0 ? reason_set(why, r, "%s", own_why.text) : r;
}

int weight_fill(struct weight *weight, const struct plan_item *item, struct packer *packer,
                struct progress *progress, struct warnings *warnings, struct reason *why)
{
    progress_step(progress, "%s", item->name);
    int r = packer ? fill_by_either(weight, item, packer, progress, warnings, why)
                   : fill_by_cpu(weight, item, progress, warnings, why);
    uint64_t start_nsec = clock_now_nsec();
    r = r != 0 ? r : weight_make_ready(weight, why);
    (void)progress_spend(progress, MSG_LOAD_PREPARE, start_nsec);
    return r;
}
