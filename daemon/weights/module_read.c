/* Reading one layer. Memory is the layer's own bytes, its canonical arrays, and nothing of any
 * other layer: peak memory of a load is set by the largest layer, not by the model. */
#include "daemon/weights/module_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define CHUNK_BYTES (UINT64_C(4) << 20)

static int read_into(const struct checkpoint_tensor *at, void *bytes, struct progress *progress,
                     struct reason *why)
{
    uint64_t size_bytes = at->tensor->size_bytes;
    for (uint64_t offset = 0; offset < size_bytes; offset += CHUNK_BYTES) {
        int r = progress_check(progress, why);
        uint64_t n_bytes = num_min(CHUNK_BYTES, size_bytes - offset);
        if (r == 0) {
            r = safetensors_read(at->file, at->tensor, offset, (char *)bytes + offset, n_bytes,
                                 why);
        }
        if (r != 0) {
            return r;
        }
        atomic_fetch_add_explicit(&progress->done_bytes, n_bytes, memory_order_relaxed);
    }
    return 0;
}

/* NULL in *ret_bytes for a tensor that is absent. */
static int read_new(const struct checkpoint_tensor *at, void **ret_bytes, struct progress *progress,
                    struct reason *why)
{
    if (!at) {
        return 0;
    }
    CLEAN_FREE void *bytes = malloc(at->tensor->size_bytes);
    if (!bytes) {
        return err_raise(-ENOMEM);
    }
    int r = read_into(at, bytes, progress, why);
    if (r == 0) {
        *ret_bytes = steal_ptr(&bytes);
    }
    return r;
}

static bool is_all_unset(const int32_t *g_idx, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++) {
        if (g_idx[i] != -1) {
            return false;
        }
    }
    return true;
}

static int check_g_idx(const struct module *module, const int32_t *g_idx, struct warnings *warnings,
                       struct reason *why)
{
    const char *name = module->g_idx->tensor->name;
    const struct gk_desc *desc = &module->desc;
    uint32_t n_groups = gk_desc_groups(desc);
    if (is_all_unset(g_idx, desc->k)) {
        warnings_add(warnings, "tensor '%s' is -1 throughout and taken as k / %u", name,
                     desc->group_k);
        return 0;
    }
    for (uint32_t i = 0; i < desc->k; i++) {
        if (g_idx[i] < 0 || (uint32_t)g_idx[i] >= n_groups) {
            return reason_set(why, STATUS_BAD_CHECKPOINT,
                              "tensor '%s': entry %u is %d, outside the %u groups", name, i,
                              g_idx[i], n_groups);
        }
    }
    for (uint32_t i = 0; i < desc->k; i++) {
        if ((uint32_t)g_idx[i] != i / desc->group_k) {
            return reason_set(why, STATUS_UNSUPPORTED,
                              "tensor '%s': entry %u is group %d, not %u: act-order is not served",
                              name, i, g_idx[i], i / desc->group_k);
        }
    }
    return 0;
}

static int read_g_idx(const struct module *module, struct progress *progress,
                      struct warnings *warnings, struct reason *why)
{
    void *g_idx = NULL;
    int r = read_new(module->g_idx, &g_idx, progress, why);
    if (r == 0 && g_idx) {
        r = check_g_idx(module, g_idx, warnings, why);
    }
    free(g_idx);
    return r;
}

static int read_gptq(const struct module *module, struct progress *progress,
                     struct gk_canonical *canonical, struct reason *why)
{
    CLEAN_FREE void *qweight = NULL;
    CLEAN_FREE void *qzeros = NULL;
    CLEAN_FREE void *scales = NULL;
    int r = read_new(module->weight, &qweight, progress, why);
    if (r == 0) {
        r = read_new(module->qzeros, &qzeros, progress, why);
    }
    if (r == 0) {
        r = read_new(module->scales, &scales, progress, why);
    }
    if (r != 0) {
        return r;
    }
    const struct gk_gptq source = {qweight, qzeros, scales, module->is_v1};
    r = gk_gptq_read(&source, canonical, NULL, why);
    if (r > 0) {
        reason_prefix(why, "module '%s'", module->name);
    }
    return r;
}

static int read_parts(const struct module *module, struct progress *progress,
                      struct warnings *warnings, struct gk_canonical *canonical, struct reason *why)
{
    int r;
    if (!gk_code_is_plain(module->desc.code)) {
        r = read_g_idx(module, progress, warnings, why);
        if (r == 0) {
            r = read_gptq(module, progress, canonical, why);
        }
    } else {
        r = read_into(module->weight, canonical->codes, progress, why);
    }
    if (r == 0 && module->bias) {
        r = read_into(module->bias, canonical->bias, progress, why);
    }
    return r;
}

int module_read(const struct module *module, struct progress *progress, struct warnings *warnings,
                struct gk_canonical *ret_canonical, struct reason *why)
{
    struct gk_canonical canonical;
    int r = gk_canonical_alloc(&canonical, &module->desc);
    if (r != 0) {
        return r;
    }
    r = read_parts(module, progress, warnings, &canonical, why);
    if (r != 0) {
        gk_canonical_finish(&canonical);
        return r;
    }
    *ret_canonical = canonical;
    return 0;
}
