/* Every scale and zero point must belong to a weight that makes use of it: where one does not, the
 * product would be wrong by it. */
#include "daemon/weights/module_family.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define BAD(why, ...) reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)

/* Leaves that only make sense beside a quantised weight. Those that are not `is_strict` may lie
 * beside one that makes no use of them: scales of x for formats that are served as weight-only. */
static const struct companion {
    const char *leaf;
    bool is_strict;
} companions[] = {
    {"scales", true},
    {"qzeros", true},
    {"g_idx", true},
    {"weight_scale_inv", true},
    {"weight_scale", true},
    {"weight_zero_point", true},
    {"weight_g_idx", true},
    {"weight_shape", true},
    {"weight_global_scale", true},
    {"weight_scale_2", true},
    {"input_scale", false},
    {"input_zero_point", false},
    {"input_global_scale", false},
};

static const struct companion *find_companion(const char *leaf)
{
    for (uint32_t i = 0; i < ARRAY_LENGTH(companions); i++) {
        if (strcmp(leaf, companions[i].leaf) == 0) {
            return &companions[i];
        }
    }
    return NULL;
}

/* No layer of that name was found. A weight of floats that is no layer (an embedding) counts too:
 * it would be wrong by that scale, wherever it is used. */
static int judge_orphan(const struct module_search *search, const char *prefix,
                        const struct checkpoint_tensor *at, struct reason *why)
{
    CLEAN_FREE char *name = NULL;
    if (asprintf(&name, "%s.weight", prefix) < 0) {
        name = NULL;
        return err_raise(-ENOMEM);
    }
    const struct checkpoint_tensor *weight = checkpoint_find(search->checkpoint, name);
    if (weight) {
        return BAD(why, "tensor '%s' belongs to a quantised weight, and '%s' is %s",
                   at->tensor->name, name, weight->tensor->dtype_text);
    }
    warnings_add(search->warnings, "tensor '%s' is ignored: there is no weight beside it",
                 at->tensor->name);
    return 0;
}

static int judge_companion(const struct module_search *search, const struct module_list *list,
                           const struct checkpoint_tensor *at, struct reason *why)
{
    CLEAN_FREE char *prefix = NULL;
    const char *leaf;
    int r = module_split_name(at, &prefix, &leaf);
    const struct companion *companion = r == 0 && prefix ? find_companion(leaf) : NULL;
    if (!companion) {
        return r;
    }
    const struct module *module = modules_get(list, prefix);
    if (!module) {
        return judge_orphan(search, prefix, at, why);
    }
    if (module_has(module, at) || (module->family != QUANT_NONE && !companion->is_strict)) {
        return 0;
    }
    const struct safetensors_tensor *weight = module->tensors[MODULE_WEIGHT]->tensor;
    return BAD(why, "tensor '%s' belongs to a quantised weight%s, and '%s' is %s", at->tensor->name,
               module->family == QUANT_NONE ? "" : " of another kind", weight->name,
               weight->dtype_text);
}

int module_judge_companions(const struct module_search *search, const struct module_list *list,
                            struct reason *why)
{
    for (uint64_t i = 0; i < search->checkpoint->n_tensors; i++) {
        int r = judge_companion(search, list, &search->checkpoint->tensors[i], why);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}
