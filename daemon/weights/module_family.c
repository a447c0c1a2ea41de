/* Weights against settings. See module_family.h. */
#include "daemon/weights/module_family.h"

#include <string.h>

#include "ipc/base/num.h"

#define BAD(why, ...) reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)

int module_find_plain(struct module_draft *draft, struct reason *why)
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
                       at->tensor->name, at->tensor->dtype_text, search->rules->place,
                       quant_rule_text(rule), families[i].title, families[i].leaf,
                       dtype_safetensors_name(families[i].dtype));
        }
    }
    return BAD(why, "tensor '%s' (%s) is quantised, but %s (rule '%.80s') says that it is not",
               at->tensor->name, at->tensor->dtype_text, search->rules->place,
               quant_rule_text(rule));
}

int module_choose(const struct module_search *search, const char *prefix, const char *leaf,
                  const struct checkpoint_tensor *at, const struct quant_scheme **ret_scheme,
                  module_finder *ret_find, struct reason *why)
{
    const struct quant_rule *rule;
    int r = quant_rules_find(search->rules, prefix, &rule, why);
    if (r != 0) {
        return r;
    }
    if (!rule) {
        return BAD(
            why, "tensor '%s' (%s) is quantised, and %s", at->tensor->name, at->tensor->dtype_text,
            search->rules->place[0]
                ? "no rule of the settings says how"
                : "neither config.json nor quantize_config.json says how (for a file that is "
                  "loaded by itself neither is read)");
    }
    const struct family *family = find_family(rule->scheme.family, leaf, at->tensor->dtype);
    if (!family) {
        return refuse_family(search, rule, at, why);
    }
    *ret_scheme = &rule->scheme;
    *ret_find = family->find;
    return 0;
}

/* Floats where the settings speak of a quantised weight. */
int module_judge_plain(const struct module_search *search, const char *prefix,
                       const struct checkpoint_tensor *at, struct reason *why)
{
    const struct quant_rule *rule;
    int r = quant_rules_find(search->rules, prefix, &rule, why);
    if (r != 0 || !rule || rule->scheme.family == QUANT_NONE ||
        rule->pattern.kind == QUANT_PATTERN_ANY) {
        return r;
    }
    if (rule->pattern.kind == QUANT_PATTERN_CLASS) {
        warnings_add(search->warnings, "tensor '%s' is %s and served so, though %s has '%s'",
                     at->tensor->name, at->tensor->dtype_text, search->rules->place,
                     quant_rule_text(rule));
        return 0;
    }
    return BAD(why, "tensor '%s' is %s, but %s (rule '%.80s') says that it is quantised",
               at->tensor->name, at->tensor->dtype_text, search->rules->place,
               quant_rule_text(rule));
}
