/* Finds linear layers by the tensors that exist and cross-checks them against the settings. What a
 * config claims about modules (ignore lists, lm_head flags) is not consulted: "is P.qweight there?"
 * is the one rule that no tool gets wrong. */
#include "daemon/weights/modules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define BAD(why, ...)         reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

struct search {
    const struct checkpoint *checkpoint;
    const struct quant_config *config;
    struct warnings *warnings;
    struct module_list *list;
};

/* ---- names -------------------------------------------------------------------------------------
 */

/* "P.leaf" of the checkpoint, or NULL. An absent tensor and no memory for its name are told apart
 * by the return: 0 or -ENOMEM. */
static int find_leaf(const struct search *search, const char *prefix, const char *leaf,
                     const struct checkpoint_tensor **ret_tensor)
{
    CLEAN_FREE char *name = NULL;
    if (asprintf(&name, "%s.%s", prefix, leaf) < 0) {
        name = NULL;
        return err_raise(-ENOMEM);
    }
    *ret_tensor = checkpoint_find(search->checkpoint, name);
    return 0;
}

static const char *last_part(const char *prefix)
{
    const char *dot = strrchr(prefix, '.');
    return dot ? dot + 1 : prefix;
}

static bool is_lookup_table(const char *prefix)
{
    const char *part = last_part(prefix);
    if (strcmp(part, "wte") == 0 || strcmp(part, "wpe") == 0) {
        return true;
    }
    return strcasestr(part, "embed") && strcmp(part, "embed_out") != 0;
}

/* ---- shapes and types --------------------------------------------------------------------------
 */

static bool is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static int check_float(const struct checkpoint_tensor *at, struct reason *why)
{
    if (!is_float(at->tensor->dtype)) {
        return UNSUPPORTED(why, "tensor '%s' is %s; known: F32, F16, BF16", at->tensor->name,
                           at->tensor->dtype_text);
    }
    return 0;
}

static int check_words(const struct checkpoint_tensor *at, struct reason *why)
{
    if (at->tensor->dtype != DTYPE_I32 && at->tensor->dtype != DTYPE_U32) {
        return UNSUPPORTED(why, "tensor '%s' is %s; known: I32", at->tensor->name,
                           at->tensor->dtype_text);
    }
    return 0;
}

/* A needed matrix: two dimensions, both in 1..limit. */
static int check_matrix(const struct checkpoint_tensor *at, uint64_t limit, struct reason *why)
{
    const struct safetensors_tensor *tensor = at->tensor;
    char shape[96];
    if (tensor->n_dims != 2 || tensor->dims[0] > limit || tensor->dims[1] > limit) {
        return BAD(why, "tensor '%s' is %s, expected two dimensions of at most %" PRIu64,
                   tensor->name, safetensors_shape(tensor, shape, sizeof(shape)), limit);
    }
    if (tensor->dims[0] == 0 || tensor->dims[1] == 0) {
        return BAD(why, "tensor '%s' is %s: a weight without elements", tensor->name,
                   safetensors_shape(tensor, shape, sizeof(shape)));
    }
    return 0;
}

/* n_cols 0: one dimension. */
static int check_shape(const struct checkpoint_tensor *at, uint64_t n_rows, uint64_t n_cols,
                       const struct gk_desc *desc, struct reason *why)
{
    const struct safetensors_tensor *tensor = at->tensor;
    uint32_t n_dims = n_cols ? 2 : 1;
    if (tensor->n_dims == n_dims && tensor->dims[0] == n_rows &&
        (n_dims == 1 || tensor->dims[1] == n_cols)) {
        return 0;
    }
    char found[96];
    char expected[96];
    struct safetensors_tensor right = {.n_dims = n_dims, .dims = {n_rows, n_cols}};
    return BAD(why, "tensor '%s' is %s, expected %s (n %u, k %u, group_size %u)", tensor->name,
               safetensors_shape(tensor, found, sizeof(found)),
               safetensors_shape(&right, expected, sizeof(expected)), desc->n, desc->k,
               desc->group_k);
}

static int check_bias(struct module *module, struct reason *why)
{
    if (!module->bias) {
        return 0;
    }
    int r = check_float(module->bias, why);
    if (r == 0) {
        r = check_shape(module->bias, module->desc.n, 0, &module->desc, why);
    }
    if (r == 0) {
        module->desc.bias_dtype = module->bias->tensor->dtype;
    }
    return r;
}

/* ---- GPTQ --------------------------------------------------------------------------------------
 */

static int find_gptq_tensors(const struct search *search, struct module *module, struct reason *why)
{
    int r = find_leaf(search, module->name, "scales", &module->scales);
    if (r == 0) {
        r = find_leaf(search, module->name, "qzeros", &module->qzeros);
    }
    if (r == 0) {
        r = find_leaf(search, module->name, "g_idx", &module->g_idx);
    }
    if (r == 0) {
        r = find_leaf(search, module->name, "bias", &module->bias);
    }
    if (r == 0 && !module->scales) {
        r = BAD(why, "tensor '%s.scales' is missing beside '%s'", module->name,
                module->weight->tensor->name);
    }
    return r;
}

static void fill_gptq_desc(const struct quant_config *config, struct module *module)
{
    const struct safetensors_tensor *qweight = module->weight->tensor;
    uint32_t per_word = 32 / config->bits;
    module->is_v1 = config->is_v1;
    module->desc = (struct gk_desc){
        .n = (uint32_t)qweight->dims[1],
        .k = (uint32_t)qweight->dims[0] * per_word,
        .code = GK_CODE_U4, /* the one width that quant_config lets through */
        .group_n = 1,
        .scale_dtype = module->scales->tensor->dtype,
    };
    /* A group longer than k is one group over all of k, just as -1. */
    bool is_grouped = config->group_size > 0 && (uint32_t)config->group_size < module->desc.k;
    module->desc.group_k = is_grouped ? (uint32_t)config->group_size : module->desc.k;
}

static int check_qzeros(const struct module *module, uint32_t n_groups, uint32_t per_word,
                        struct reason *why)
{
    if (!module->qzeros) {
        return 0; /* symmetric by declaration */
    }
    if (module->desc.n % per_word != 0) {
        return BAD(why, "n %u is not a multiple of %u, so tensor '%s' cannot be packed right",
                   module->desc.n, per_word, module->qzeros->tensor->name);
    }
    int r = check_words(module->qzeros, why);
    return r != 0 ? r
                  : check_shape(module->qzeros, n_groups, module->desc.n / per_word, &module->desc,
                                why);
}

static int check_g_idx_shape(const struct module *module, struct reason *why)
{
    if (!module->g_idx) {
        return 0;
    }
    int r = check_words(module->g_idx, why);
    return r != 0 ? r : check_shape(module->g_idx, module->desc.k, 0, &module->desc, why);
}

static int check_gptq_shapes(struct module *module, struct reason *why)
{
    uint32_t n_groups = (uint32_t)num_div_up(module->desc.k, module->desc.group_k);
    int r = check_shape(module->scales, n_groups, module->desc.n, &module->desc, why);
    if (r == 0) {
        r = check_qzeros(module, n_groups, 32 / gk_code_bits(module->desc.code), why);
    }
    if (r == 0) {
        r = check_g_idx_shape(module, why);
    }
    return r != 0 ? r : check_bias(module, why);
}

static int find_gptq(const struct search *search, struct module *module, struct reason *why)
{
    const char *qweight = module->weight->tensor->name;
    if (!search->config->is_quantised) {
        return BAD(
            why, "tensor '%s' is packed, and neither config.json nor quantize_config.json says how",
            qweight);
    }
    const struct checkpoint_tensor *plain;
    int r = find_leaf(search, module->name, "weight", &plain);
    if (r == 0 && plain) {
        r = BAD(why, "both '%s' and '%s' are there: which one counts?", qweight,
                plain->tensor->name);
    }
    if (r == 0) {
        r = find_gptq_tensors(search, module, why);
    }
    if (r == 0) {
        r = check_words(module->weight, why);
    }
    if (r == 0) {
        r = check_float(module->scales, why);
    }
    if (r == 0) {
        r = check_matrix(module->weight, UINT32_MAX / 32, why);
    }
    if (r != 0) {
        return r;
    }
    fill_gptq_desc(search->config, module);
    return check_gptq_shapes(module, why);
}

/* ---- plain -------------------------------------------------------------------------------------
 */

static int find_plain(const struct search *search, struct module *module, struct reason *why)
{
    const struct safetensors_tensor *tensor = module->weight->tensor;
    int r = check_float(module->weight, why);
    if (r == 0) {
        r = check_matrix(module->weight, UINT32_MAX, why);
    }
    if (r == 0) {
        r = find_leaf(search, module->name, "bias", &module->bias);
    }
    if (r != 0) {
        return r;
    }
    module->desc = (struct gk_desc){
        .n = (uint32_t)tensor->dims[0],
        .k = (uint32_t)tensor->dims[1],
        .code = gk_code_of_dtype(tensor->dtype),
    };
    return check_bias(module, why);
}

static bool is_linear_shape(const struct search *search, const char *prefix,
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

/* ---- the walk ----------------------------------------------------------------------------------
 */

typedef int (*module_finder)(const struct search *search, struct module *module,
                             struct reason *why);

static int add_module(const struct search *search, const char *prefix,
                      const struct checkpoint_tensor *weight, module_finder find,
                      struct reason *why)
{
    struct module module = {.weight = weight, .name = strdup(prefix)};
    if (!module.name) {
        return err_raise(-ENOMEM);
    }
    int r = find(search, &module, why);
    if (r == 0) {
        r = gk_desc_check(&module.desc, why);
        if (r > 0) {
            reason_prefix(why, "tensor '%s'", weight->tensor->name);
        }
    }
    if (r != 0) {
        free(module.name);
        return r;
    }
    search->list->items[search->list->n++] = module;
    return 0;
}

/* A tensor that only makes sense beside a quantised weight. */
static int check_companion(const struct search *search, const char *prefix,
                           const struct checkpoint_tensor *at, struct reason *why)
{
    const struct checkpoint_tensor *qweight;
    const struct checkpoint_tensor *plain;
    int r = find_leaf(search, prefix, "qweight", &qweight);
    if (r == 0) {
        r = find_leaf(search, prefix, "weight", &plain);
    }
    if (r != 0 || qweight) {
        return r;
    }
    if (plain) {
        return BAD(why, "tensor '%s' belongs to a quantised weight, and '%s' is %s",
                   at->tensor->name, plain->tensor->name, plain->tensor->dtype_text);
    }
    warnings_add(search->warnings, "tensor '%s' is ignored: there is no weight beside it",
                 at->tensor->name);
    return 0;
}

static bool is_companion(const char *leaf)
{
    static const char *const leaves[] = {"scales",           "qzeros",       "g_idx",
                                         "weight_scale_inv", "weight_scale", "weight_zero_point"};
    for (uint32_t i = 0; i < ARRAY_LENGTH(leaves); i++) {
        if (strcmp(leaf, leaves[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int look_at_tensor(const struct search *search, const struct checkpoint_tensor *at,
                          struct reason *why)
{
    const char *dot = strrchr(at->tensor->name, '.');
    if (!dot || dot == at->tensor->name) {
        return 0;
    }
    const char *leaf = dot + 1;
    CLEAN_FREE char *prefix = strndup(at->tensor->name, (size_t)(dot - at->tensor->name));
    if (!prefix) {
        return err_raise(-ENOMEM);
    }
    if (strcmp(leaf, "qweight") == 0) {
        return add_module(search, prefix, at, find_gptq, why);
    }
    if (strcmp(leaf, "weight") == 0 && is_linear_shape(search, prefix, at)) {
        return add_module(search, prefix, at, find_plain, why);
    }
    if (strcmp(leaf, "weight_packed") == 0) {
        return UNSUPPORTED(why, "tensor '%s' is packed in a way that is not served",
                           at->tensor->name);
    }
    return is_companion(leaf) ? check_companion(search, prefix, at, why) : 0;
}

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

static int compare_modules(const void *a, const void *b)
{
    const struct module *x = a;
    const struct module *y = b;
    return strcmp(x->name, y->name);
}

static int find_all(const struct search *search, struct reason *why)
{
    const struct checkpoint *checkpoint = search->checkpoint;
    if (checkpoint->n_tensors > UINT32_MAX) {
        return BAD(why, "%" PRIu64 " tensors are too many", checkpoint->n_tensors);
    }
    for (uint64_t i = 0; i < checkpoint->n_tensors; i++) {
        int r = look_at_tensor(search, &checkpoint->tensors[i], why);
        if (r != 0) {
            return r;
        }
    }
    return search->list->n > 0 ? 0 : BAD(why, "the checkpoint has no linear layer");
}

int modules_find(const struct checkpoint *checkpoint, const struct quant_config *config,
                 struct warnings *warnings, struct module_list *ret_list, struct reason *why)
{
    struct module_list list = MODULE_LIST_NULL;
    struct search search = {checkpoint, config, warnings, &list};
    list.items = calloc(checkpoint->n_tensors + 1, sizeof(*list.items));
    if (!list.items) {
        return err_raise(-ENOMEM);
    }
    int r = find_all(&search, why);
    if (r != 0) {
        modules_finish(&list);
        return r;
    }
    qsort(list.items, list.n, sizeof(*list.items), compare_modules);
    list.act_dtype = model_act_dtype(&list, config);
    *ret_list = list;
    return 0;
}

void modules_finish(struct module_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        free(list->items[i].name);
    }
    free(list->items);
    *list = MODULE_LIST_NULL;
}

uint64_t module_bytes(const struct module *module)
{
    const struct checkpoint_tensor *const parts[] = {module->weight, module->qzeros, module->scales,
                                                     module->g_idx, module->bias};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ARRAY_LENGTH(parts); i++) {
        sum += parts[i] ? parts[i]->tensor->size_bytes : 0;
    }
    return sum;
}
