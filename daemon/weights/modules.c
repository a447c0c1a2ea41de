/* Finds linear layers by the tensors that exist and holds them against the settings. The walk is
 * here; what a family's tensors must be is in module_int.c and module_scaled.c. */
#include "daemon/weights/modules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/weights/module_parts.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

static bool is_lookup_table(const char *prefix)
{
    const char *dot = strrchr(prefix, '.');
    const char *part = dot ? dot + 1 : prefix;
    if (strcmp(part, "wte") == 0 || strcmp(part, "wpe") == 0) {
        return true;
    }
    return strcasestr(part, "embed") && strcmp(part, "embed_out") != 0;
}

/* ---- one module --------------------------------------------------------------------------------
 */

static int find_plain(struct module_draft *draft, struct reason *why)
{
    const struct checkpoint_tensor *weight = draft->module.tensors[MODULE_WEIGHT];
    int r = module_check_matrix(weight, UINT32_MAX, why);
    if (r != 0) {
        return r;
    }
    draft->module.desc = (struct gk_desc){
        .n = (uint32_t)weight->tensor->dims[0],
        .k = (uint32_t)weight->tensor->dims[1],
        .code = gk_code_of_dtype(weight->tensor->dtype),
    };
    return module_take_bias(draft, why);
}

typedef int (*module_finder)(struct module_draft *draft, struct reason *why);

/* What the weight of a family is called and made of. */
static const struct family {
    const char *title;
    const char *leaf;
    enum dtype dtype;
    enum quant_family family;
    module_finder find;
} families[] = {
    {"GPTQ", "qweight", DTYPE_I32, QUANT_GPTQ, module_find_int},
    {"AWQ", "qweight", DTYPE_I32, QUANT_AWQ, module_find_int},
    {"packed integers", "weight_packed", DTYPE_I32, QUANT_PACKED, module_find_int},
    {"INT8", "weight", DTYPE_I8, QUANT_INT8, module_find_scaled},
    {"FP8", "weight", DTYPE_F8_E4M3, QUANT_FP8, module_find_scaled},
    {"NVFP4", "weight_packed", DTYPE_U8, QUANT_NVFP4, module_find_scaled},
    {"NVFP4", "weight", DTYPE_U8, QUANT_NVFP4, module_find_scaled},
    {"MXFP4", "weight_packed", DTYPE_U8, QUANT_MXFP4, module_find_scaled},
    {"MXFP8", "weight", DTYPE_F8_E4M3, QUANT_MXFP8, module_find_scaled},
};

/* Both halves of the table for a family may fit; NULL: none does. */
static const struct family *find_family(enum quant_family family, const char *leaf,
                                        enum dtype dtype)
{
    enum dtype signed_dtype = dtype == DTYPE_U32 ? DTYPE_I32 : dtype;
    for (uint32_t i = 0; i < ARRAY_LENGTH(families); i++) {
        if (families[i].family == family && strcmp(families[i].leaf, leaf) == 0 &&
            families[i].dtype == signed_dtype) {
            return &families[i];
        }
    }
    return NULL;
}

static int refuse_family(const struct module_search *search, const struct quant_rule *rule,
                         const struct checkpoint_tensor *at, struct reason *why)
{
    for (uint32_t i = 0; i < ARRAY_LENGTH(families); i++) {
        if (families[i].family == rule->scheme.family) {
            return BAD(why, "tensor '%s' is %s, but %s (rule '%.80s') says %s, which is '%s' of %s",
                       at->tensor->name, at->tensor->dtype_text, search->config->place,
                       quant_rule_text(rule), families[i].title, families[i].leaf,
                       dtype_safetensors_name(families[i].dtype));
        }
    }
    return BAD(why, "tensor '%s' (%s) is quantised, but %s (rule '%.80s') says that it is not",
               at->tensor->name, at->tensor->dtype_text, search->config->place,
               quant_rule_text(rule));
}

/* The rule that a quantised weight needs, and the family that fits it. */
static int choose_family(const struct module_search *search, const char *prefix, const char *leaf,
                         const struct checkpoint_tensor *at, const struct quant_rule **ret_rule,
                         const struct family **ret_family, struct reason *why)
{
    int r = quant_config_find(search->config, prefix, ret_rule, why);
    if (r != 0) {
        return r;
    }
    if (!*ret_rule) {
        const char *place = search->config->place;
        return BAD(why, "tensor '%s' (%s) is quantised, and %s how", at->tensor->name,
                   at->tensor->dtype_text,
                   place[0] ? "no rule of the settings says"
                            : "neither config.json nor quantize_config.json says");
    }
    *ret_family = find_family((*ret_rule)->scheme.family, leaf, at->tensor->dtype);
    return *ret_family ? 0 : refuse_family(search, *ret_rule, at, why);
}

/* Floats where the settings speak of a quantised weight. */
static int judge_plain(const struct module_search *search, const char *prefix,
                       const struct checkpoint_tensor *at, struct reason *why)
{
    const struct quant_rule *rule;
    int r = quant_config_find(search->config, prefix, &rule, why);
    if (r != 0 || !rule || rule->scheme.family == QUANT_NONE ||
        rule->pattern.kind == QUANT_PATTERN_ANY) {
        return r;
    }
    if (rule->pattern.kind == QUANT_PATTERN_CLASS) {
        warnings_add(search->warnings, "tensor '%s' is %s and served so, though %s has '%s'",
                     at->tensor->name, at->tensor->dtype_text, search->config->place,
                     quant_rule_text(rule));
        return 0;
    }
    return BAD(why, "tensor '%s' is %s, but %s (rule '%.80s') says that it is quantised",
               at->tensor->name, at->tensor->dtype_text, search->config->place,
               quant_rule_text(rule));
}

static void module_finish(struct module *module)
{
    free(module->name);
    free(module->perm);
}

static int add_module(const struct module_search *search, const char *prefix,
                      const struct checkpoint_tensor *weight, const struct quant_scheme *scheme,
                      module_finder find, struct reason *why)
{
    struct module_draft draft = {
        .search = search, .scheme = scheme, .module = {.family = scheme->family}};
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
    search->list->items[search->list->n++] = draft.module;
    return 0;
}

static int add_plain(const struct module_search *search, const char *prefix,
                     const struct checkpoint_tensor *at, struct reason *why)
{
    static const struct quant_scheme none = {.family = QUANT_NONE};
    int r = judge_plain(search, prefix, at, why);
    return r != 0 ? r : add_module(search, prefix, at, &none, find_plain, why);
}

static int add_quantised(const struct module_search *search, const char *prefix, const char *leaf,
                         const struct checkpoint_tensor *at, struct reason *why)
{
    const struct quant_rule *rule;
    const struct family *family;
    int r = choose_family(search, prefix, leaf, at, &rule, &family, why);
    return r != 0 ? r : add_module(search, prefix, at, &rule->scheme, family->find, why);
}

/* ---- the walk ----------------------------------------------------------------------------------
 */

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

static int look_at_weight(const struct module_search *search, const char *prefix,
                          const struct checkpoint_tensor *at, struct reason *why)
{
    switch (at->tensor->dtype) {
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16:
        return add_plain(search, prefix, at, why);
    case DTYPE_F8_E4M3:
    case DTYPE_I8:
    case DTYPE_U8:
        return add_quantised(search, prefix, "weight", at, why);
    default:
        return UNSUPPORTED(why, "tensor '%s' is %s; known: F32, F16, BF16, F8_E4M3, I8, U8",
                           at->tensor->name, at->tensor->dtype_text);
    }
}

/* "P.leaf" into a malloc'd P and leaf; NULL in *ret_prefix for a name without a module. */
static int split_name(const struct checkpoint_tensor *at, char **ret_prefix, const char **ret_leaf)
{
    const char *dot = strrchr(at->tensor->name, '.');
    if (!dot || dot == at->tensor->name) {
        return 0;
    }
    char *prefix = strndup(at->tensor->name, (size_t)(dot - at->tensor->name));
    if (!prefix) {
        return err_raise(-ENOMEM);
    }
    *ret_prefix = prefix;
    *ret_leaf = dot + 1;
    return 0;
}

static int look_at_tensor(const struct module_search *search, const struct checkpoint_tensor *at,
                          struct reason *why)
{
    CLEAN_FREE char *prefix = NULL;
    const char *leaf;
    int r = split_name(at, &prefix, &leaf);
    if (r != 0 || !prefix) {
        return r;
    }
    if (strcmp(leaf, "qweight") == 0 || strcmp(leaf, "weight_packed") == 0) {
        return add_quantised(search, prefix, leaf, at, why);
    }
    if (strcmp(leaf, "weight") == 0 && is_linear_shape(search, prefix, at)) {
        return look_at_weight(search, prefix, at, why);
    }
    return 0;
}

static int compare_modules(const void *a, const void *b)
{
    const struct module *x = a;
    const struct module *y = b;
    return strcmp(x->name, y->name);
}

static int find_all(const struct module_search *search, struct reason *why)
{
    const struct checkpoint *checkpoint = search->checkpoint;
    struct module_list *list = search->list;
    for (uint64_t i = 0; i < checkpoint->n_tensors; i++) {
        int r = look_at_tensor(search, &checkpoint->tensors[i], why);
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

/* ---- companions --------------------------------------------------------------------------------
 */

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

static bool has_tensor(const struct module *module, const struct checkpoint_tensor *at)
{
    for (uint32_t i = 0; i < MODULE_ROLES; i++) {
        if (module->tensors[i] == at) {
            return true;
        }
    }
    return false;
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

static int judge_companion(const struct module_search *search, const struct checkpoint_tensor *at,
                           struct reason *why)
{
    CLEAN_FREE char *prefix = NULL;
    const char *leaf;
    int r = split_name(at, &prefix, &leaf);
    const struct companion *companion = r == 0 && prefix ? find_companion(leaf) : NULL;
    if (!companion) {
        return r;
    }
    const struct module *module = modules_get(search->list, prefix);
    if (!module) {
        return judge_orphan(search, prefix, at, why);
    }
    if (has_tensor(module, at) || (module->family != QUANT_NONE && !companion->is_strict)) {
        return 0;
    }
    const struct safetensors_tensor *weight = module->tensors[MODULE_WEIGHT]->tensor;
    return BAD(why, "tensor '%s' belongs to a quantised weight%s, and '%s' is %s", at->tensor->name,
               module->family == QUANT_NONE ? "" : " of another kind", weight->name,
               weight->dtype_text);
}

static int judge_companions(const struct module_search *search, struct reason *why)
{
    for (uint64_t i = 0; i < search->checkpoint->n_tensors; i++) {
        int r = judge_companion(search, &search->checkpoint->tensors[i], why);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

/* ---- the list ----------------------------------------------------------------------------------
 */

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
    struct module_list list = MODULE_LIST_NULL;
    const struct module_search search = {checkpoint, config, warnings, &list};
    if (checkpoint->n_tensors > UINT32_MAX) {
        return BAD(why, "%" PRIu64 " tensors are too many", checkpoint->n_tensors);
    }
    list.items = calloc(checkpoint->n_tensors + 1, sizeof(*list.items));
    if (!list.items) {
        return err_raise(-ENOMEM);
    }
    int r = find_all(&search, why);
    if (r == 0) {
        r = judge_companions(&search, why);
    }
    if (r != 0) {
        modules_finish(&list);
        return r;
    }
    quant_config_tell_unused(config, warnings);
    list.act_dtype = model_act_dtype(&list, config);
    *ret_list = list;
    return 0;
}

void modules_finish(struct module_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        module_finish(&list->items[i]);
    }
    free(list->items);
    *list = MODULE_LIST_NULL;
}

static int compare_name_to_module(const void *name, const void *element)
{
    const struct module *module = element;
    return strcmp(name, module->name);
}

const struct module *modules_get(const struct module_list *list, const char *name)
{
    return bsearch(name, list->items, list->n, sizeof(*list->items), compare_name_to_module);
}

uint64_t module_bytes(const struct module *module)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < MODULE_ROLES; i++) {
        sum += module->tensors[i] ? module->tensors[i]->tensor->size_bytes : 0;
    }
    return sum;
}
