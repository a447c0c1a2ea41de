/* Finds linear layers by the tensors that exist: the walk over them. Which family a weight is of,
 * by the settings, is asked in module_family.c. */
#include "daemon/weights/modules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/weights/module_family.h"
#include "daemon/weights/module_parts.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

struct walk {
    struct module_search search;
    struct module_list list;
};

static bool is_lookup_table(const char *prefix)
{
    const char *dot = strrchr(prefix, '.');
    const char *part = dot ? dot + 1 : prefix;
    if (strcmp(part, "wte") == 0 || strcmp(part, "wpe") == 0) {
        return true;
    }
    return strcasestr(part, "embed") && strcmp(part, "embed_out") != 0;
}

/* ---- one module ---- */

static int add_module(struct walk *walk, const char *prefix, const struct checkpoint_tensor *weight,
                      const struct quant_scheme *scheme, module_finder find, struct reason *why)
{
    struct module_draft draft = {
        .search = &walk->search, .scheme = scheme, .module = {.family = scheme->family}};
    draft.module.tensors[MODULE_WEIGHT] = weight;
    draft.module.name = strdup(prefix);
    if (!draft.module.name) {
        return err_raise(-ENOMEM);
    }
    int r = find(&draft, why);
    if (r == 0) {
        r = gk_desc_check(&draft.module.desc, why);
        if (r > 0) {
            reason_prefix(why, "tensor '%s'", weight->tensor->name);
        }
    }
    if (r != 0) {
        module_finish(&draft.module);
        return r;
    }
    walk->list.items[walk->list.n++] = draft.module;
    return 0;
}

static int add_plain(struct walk *walk, const char *prefix, const struct checkpoint_tensor *at,
                     struct reason *why)
{
    static const struct quant_scheme none = {.family = QUANT_NONE};
    int r = module_judge_plain(&walk->search, prefix, at, why);
    return r != 0 ? r : add_module(walk, prefix, at, &none, module_find_plain, why);
}

static int add_quantised(struct walk *walk, const char *prefix, const char *leaf,
                         const struct checkpoint_tensor *at, struct reason *why)
{
    const struct quant_scheme *scheme;
    module_finder find;
    int r = module_choose(&walk->search, prefix, leaf, at, &scheme, &find, why);
    return r != 0 ? r : add_module(walk, prefix, at, scheme, find, why);
}

/* ---- the walk ---- */

static bool is_linear_shape(const struct module_search *search, const char *prefix,
                            const struct checkpoint_tensor *at)
{
    const struct safetensors_tensor *tensor = at->tensor;
    if (tensor->n_dims > 2) {
        char shape[96];
        warnings_add(search->warnings, "tensor '%s' is %s: no linear layer, not served",
                     tensor->name, safetensors_shape(tensor, shape, sizeof(shape)));
    }
    return tensor->n_dims == 2 && !is_lookup_table(prefix);
}

static int look_at_weight(struct walk *walk, const char *prefix, const struct checkpoint_tensor *at,
                          struct reason *why)
{
    switch (at->tensor->dtype) {
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16:
        return add_plain(walk, prefix, at, why);
    case DTYPE_F8_E4M3:
    case DTYPE_I8:
    case DTYPE_U8:
        return add_quantised(walk, prefix, "weight", at, why);
    default:
        return UNSUPPORTED(why, "tensor '%s' is %s; known: F32, F16, BF16, F8_E4M3, I8, U8",
                           at->tensor->name, at->tensor->dtype_text);
    }
}

static int look_at_tensor(struct walk *walk, const struct checkpoint_tensor *at, struct reason *why)
{
    CLEAN_FREE char *prefix = NULL;
    const char *leaf;
    int r = module_split_name(at, &prefix, &leaf);
    if (r != 0 || !prefix) {
        return r;
    }
    if (strcmp(leaf, "qweight") == 0 || strcmp(leaf, "weight_packed") == 0) {
        return add_quantised(walk, prefix, leaf, at, why);
    }
    if (strcmp(leaf, "weight") == 0 && is_linear_shape(&walk->search, prefix, at)) {
        return look_at_weight(walk, prefix, at, why);
    }
    return 0;
}

static int compare_modules(const void *a, const void *b)
{
    const struct module *x = a;
    const struct module *y = b;
    return strcmp(x->name, y->name);
}

static int find_all(struct walk *walk, struct reason *why)
{
    const struct checkpoint *checkpoint = walk->search.checkpoint;
    struct module_list *list = &walk->list;
    for (uint64_t i = 0; i < checkpoint->n_tensors; i++) {
        int r = look_at_tensor(walk, &checkpoint->tensors[i], why);
        if (r != 0) {
            return r;
        }
    }
    if (list->n == 0) {
        return BAD(why, "the checkpoint has no linear layer");
    }
    qsort(list->items, list->n, sizeof(*list->items), compare_modules);
    for (uint32_t i = 1; i < list->n; i++) {
        if (strcmp(list->items[i - 1].name, list->items[i].name) == 0) {
            return BAD(why, "both '%s' and '%s' are there: which one counts?",
                       list->items[i - 1].tensors[MODULE_WEIGHT]->tensor->name,
                       list->items[i].tensors[MODULE_WEIGHT]->tensor->name);
        }
    }
    return 0;
}

/* ---- the list ---- */

static enum dtype model_act_dtype(const struct module_list *list, const struct quant_config *config)
{
    if (config->act_dtype != DTYPE_NONE) {
        return config->act_dtype;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        const struct gk_desc *desc = &list->items[i].desc;
        enum dtype dtype =
            gk_code_is_plain(desc->code) ? gk_code_dtype(desc->code) : desc->scale_dtype;
        if (dtype_bits(dtype) == 16) {
            return dtype;
        }
    }
    return DTYPE_F16;
}

int modules_find(const struct checkpoint *checkpoint, struct quant_config *config,
                 struct warnings *warnings, struct module_list *ret_list, struct reason *why)
{
    struct walk walk = {.search = {checkpoint, &config->rules, warnings}};
    if (checkpoint->n_tensors > UINT32_MAX) {
        return BAD(why, "%" PRIu64 " tensors are too many", checkpoint->n_tensors);
    }
    walk.list.items = calloc(checkpoint->n_tensors + 1, sizeof(*walk.list.items));
    if (!walk.list.items) {
        return err_raise(-ENOMEM);
    }
    int r = find_all(&walk, why);
    if (r == 0) {
        r = module_judge_companions(&walk.search, &walk.list, why);
    }
    if (r != 0) {
        modules_finish(&walk.list);
        return r;
    }
    quant_rules_tell_unused(&config->rules, warnings);
    walk.list.act_dtype = model_act_dtype(&walk.list, config);
    *ret_list = walk.list;
    return 0;
}
