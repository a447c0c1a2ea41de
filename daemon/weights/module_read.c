/* Reading one layer. Memory is the layer's own bytes, its canonical arrays, and nothing of any
 * other layer: peak memory of a load is set by the largest layer, not by the model. */
#include "daemon/weights/module_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/clock.h"
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
        uint64_t start_nsec = clock_now_nsec();
        if (r == 0) {
            r = safetensors_read(at->file, at->tensor, offset, (char *)bytes + offset, n_bytes,
                                 why);
        }
        (void)progress_spend(progress, MSG_LOAD_READ, start_nsec);
        if (r != 0) {
            return r;
        }
        atomic_fetch_add_explicit(&progress->done_bytes, n_bytes, memory_order_relaxed);
    }
    return 0;
}

/* A module's tensors as they lie in the file, but for the weights of plain modules and biases,
 * which are read where they belong. NULL where a tensor is absent. */
struct raw {
    void *bytes[MODULE_ROLES];
};

static void raw_finish(struct raw *raw)
{
    for (uint32_t i = 0; i < MODULE_ROLES; i++) {
        free(raw->bytes[i]);
    }
}

static int raw_read(const struct module *module, bool has_codes, struct progress *progress,
                    struct raw *ret_raw, struct reason *why)
{
    struct raw raw = {{NULL}};
    for (uint32_t i = 0; i < MODULE_BIAS; i++) {
        const struct checkpoint_tensor *at = module->tensors[i];
        if (!at || (i == MODULE_WEIGHT && !has_codes)) {
            continue;
        }
        raw.bytes[i] = malloc(at->tensor->size_bytes + 1);
        int r = raw.bytes[i] ? read_into(at, raw.bytes[i], progress, why) : err_raise(-ENOMEM);
        if (r != 0) {
            raw_finish(&raw);
            return r;
        }
    }
    *ret_raw = raw;
    return 0;
}

static int read_gptq(const struct module *module, const struct raw *raw, struct warnings *warnings,
                     struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_gptq source = {raw->bytes[MODULE_WEIGHT], raw->bytes[MODULE_ZEROS],
                                   raw->bytes[MODULE_SCALES], module->is_v1};
    uint64_t n_wrapped = 0;
    int r = gk_gptq_read(&source, canonical, &n_wrapped, why);
    if (r == 0 && n_wrapped > 0) {
        warnings_add(warnings,
                     "tensor '%s': %llu zero points are stored as all ones and taken as 0; some "
                     "writers damage the ones beside them",
                     module->tensors[MODULE_ZEROS]->tensor->name, (unsigned long long)n_wrapped);
    }
    return r;
}

static int read_awq(const struct raw *raw, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_awq source = {raw->bytes[MODULE_WEIGHT], raw->bytes[MODULE_ZEROS],
                                  raw->bytes[MODULE_SCALES]};
    return gk_awq_read(&source, canonical, why);
}

static int read_packed(const struct raw *raw, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_ct_packed source = {raw->bytes[MODULE_WEIGHT], raw->bytes[MODULE_SCALES],
                                        raw->bytes[MODULE_ZEROS], raw->bytes[MODULE_SHAPE]};
    return gk_ct_packed_read(&source, canonical, why);
}

static int read_int8(const struct raw *raw, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_int8 source = {raw->bytes[MODULE_WEIGHT], raw->bytes[MODULE_SCALES],
                                   raw->bytes[MODULE_ZEROS]};
    return gk_int8_read(&source, canonical, why);
}

static int read_fp8(const struct raw *raw, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_fp8 source = {raw->bytes[MODULE_WEIGHT], raw->bytes[MODULE_SCALES]};
    return gk_fp8_read(&source, canonical, why);
}

static int read_fp4(const struct raw *raw, struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_fp4 source = {raw->bytes[MODULE_WEIGHT], raw->bytes[MODULE_SCALES],
                                  raw->bytes[MODULE_GLOBAL_SCALE]};
    return gk_fp4_read(&source, canonical, why);
}

static int decode(const struct module *module, const struct raw *raw, struct warnings *warnings,
                  struct gk_canonical *canonical, struct reason *why)
{
    switch (module->family) {
    case QUANT_GPTQ:
        return read_gptq(module, raw, warnings, canonical, why);
    case QUANT_AWQ:
        return read_awq(raw, canonical, why);
    case QUANT_PACKED:
        return read_packed(raw, canonical, why);
    case QUANT_INT8:
        return read_int8(raw, canonical, why);
    case QUANT_FP8:
    case QUANT_MXFP8:
        return read_fp8(raw, canonical, why);
    case QUANT_NVFP4:
    case QUANT_MXFP4:
        return read_fp4(raw, canonical, why);
    case QUANT_NONE:
        break;
    }
    return 0;
}

static int read_quantised(const struct module *module, struct progress *progress,
                          struct warnings *warnings, struct gk_canonical *canonical,
                          struct reason *why)
{
    struct raw raw;
    int r = raw_read(module, canonical->codes != NULL, progress, &raw, why);
    if (r != 0) {
        return r;
    }
    if (module->perm) {
        memcpy(canonical->perm, module->perm, (size_t)module->desc.k * sizeof(*module->perm));
    }
    uint64_t start_nsec = clock_now_nsec();
    r = decode(module, &raw, warnings, canonical, why);
    (void)progress_spend(progress, MSG_LOAD_PACK, start_nsec);
    raw_finish(&raw);
    if (r > 0) {
        reason_prefix(why, "module '%s'", module->name);
    }
    return r;
}

/* Into arrays that are there; taken apart again after a failure. */
static int fill(const struct module *module, struct progress *progress, struct warnings *warnings,
                struct gk_canonical *canonical, struct reason *why)
{
    int r = 0;
    if (module->family != QUANT_NONE) {
        r = read_quantised(module, progress, warnings, canonical, why);
    } else if (canonical->codes != NULL) {
        r = read_into(module->tensors[MODULE_WEIGHT], canonical->codes, progress, why);
    }
    if (r == 0 && module->tensors[MODULE_BIAS]) {
        r = read_into(module->tensors[MODULE_BIAS], canonical->bias, progress, why);
    }
    if (r != 0) {
        gk_canonical_finish(canonical);
    }
    return r;
}

int module_read(const struct module *module, struct progress *progress, struct warnings *warnings,
                struct gk_canonical *ret_canonical, struct reason *why)
{
    int r = gk_canonical_alloc(ret_canonical, &module->desc);
    return r != 0 ? r : fill(module, progress, warnings, ret_canonical, why);
}

/* ---- without codes ---- */

enum gk_code_order module_code_order(const struct module *module)
{
    static const enum gk_code_order orders[] = {
        [QUANT_NONE] = GK_CODE_ORDER_PLAIN, [QUANT_GPTQ] = GK_CODE_ORDER_GPTQ,
        [QUANT_AWQ] = GK_CODE_ORDER_AWQ,    [QUANT_PACKED] = GK_CODE_ORDER_CT_PACKED,
        [QUANT_INT8] = GK_CODE_ORDER_INT8,  [QUANT_FP8] = GK_CODE_ORDER_FP8,
        [QUANT_MXFP8] = GK_CODE_ORDER_FP8,  [QUANT_NVFP4] = GK_CODE_ORDER_FP4,
        [QUANT_MXFP4] = GK_CODE_ORDER_FP4,
    };
    return orders[module->family];
}

int module_read_rest(const struct module *module, struct progress *progress,
                     struct warnings *warnings, struct gk_canonical *ret_canonical,
                     struct reason *why)
{
    int r = gk_canonical_alloc_rest(ret_canonical, &module->desc);
    return r != 0 ? r : fill(module, progress, warnings, ret_canonical, why);
}

int module_send_codes(const struct module *module, struct device *device, struct packer *packer,
                      uint64_t offset, struct progress *progress, struct reason *why)
{
    const struct packer_ops *packing = device->ops->packing;
    const struct checkpoint_tensor *at = module->tensors[MODULE_WEIGHT];
    uint64_t size_bytes = at->tensor->size_bytes;
    int r = 0;
    for (uint64_t done = 0; r == 0 && done < size_bytes; done += PACKER_CHUNK_BYTES) {
        uint64_t n_bytes = num_min(PACKER_CHUNK_BYTES, size_bytes - done);
        void *bytes = NULL;
        uint64_t at_nsec = clock_now_nsec();
        r = progress_check(progress, why);
        r = r != 0 ? r : packing->chunk(packer, &bytes, why);
        at_nsec = progress_spend(progress, MSG_LOAD_COPY, at_nsec);
        r = r != 0 ? r : safetensors_read(at->file, at->tensor, done, bytes, n_bytes, why);
        at_nsec = progress_spend(progress, MSG_LOAD_READ, at_nsec);
        r = r != 0 ? r : packing->send(packer, offset + done, n_bytes, why);
        (void)progress_spend(progress, MSG_LOAD_COPY, at_nsec);
        atomic_fetch_add_explicit(&progress->done_bytes, n_bytes, memory_order_relaxed);
    }
    return r;
}
