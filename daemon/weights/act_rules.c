/* Choosing activations by rule. See act_rules.h. */
#include "daemon/weights/act_rules.h"

#define GROUP_K 128u

static bool is_int4(const struct gk_desc *desc)
{
    return desc->code == GK_CODE_U4 && desc->act == GK_ACT_FLOAT;
}

static const char *fault_of(const struct gk_desc *desc)
{
    if (!is_int4(desc)) {
        return "they go with 4-bit integers whose x comes as it is";
    }
    if (desc->has_perm) {
        return "they do not go with act-order";
    }
    if (desc->group_k % GROUP_K != 0 && desc->group_k != desc->k) {
        return "they go with groups of 128 of k or a multiple, or one over all of k";
    }
    if (desc->scale_dtype != DTYPE_F16 && desc->scale_dtype != DTYPE_BF16) {
        return "they go with scales in f16 and bf16";
    }
    return NULL;
}

static int apply(const struct shaping_act *act, struct module *module, struct reason *why)
{
    const char *fault = fault_of(&module->desc);
    if (fault) {
        char format[MSG_WORD_BYTES];
        gk_desc_format(&module->desc, format, sizeof(format));
        return reason_set(why, STATUS_UNSUPPORTED,
                          "module '%s' (%s) cannot have fp8 activations: %s; %s=float leaves it "
                          "out",
                          module->name, format, fault, module->name);
    }
    module->desc.act = act->act;
    return 0;
}

/* A rule that names a module has to name one that is there. */
static int check_names(const struct shaping *shaping, const struct module_list *modules,
                       struct reason *why)
{
    for (uint32_t i = 0; i < shaping->n_acts; i++) {
        const struct shaping_act *act = &shaping->acts[i];
        bool is_found = act->module[0] == '\0';
        for (uint32_t j = 0; !is_found && j < modules->n; j++) {
            is_found = shaping_is_about(act, modules->items[j].name);
        }
        if (!is_found) {
            return reason_set(why, STATUS_INVALID_ARGUMENT,
                              "activations '%s': no module of the checkpoint has that name",
                              act->module);
        }
    }
    return 0;
}

int act_rules_apply(const struct shaping *shaping, struct module_list *modules,
                    struct warnings *warnings, struct reason *why)
{
    uint32_t n_asked = 0, n_applied = 0;
    int r = check_names(shaping, modules, why);
    for (uint32_t i = 0; r == 0 && i < modules->n; i++) {
        struct module *module = &modules->items[i];
        const struct shaping_act *act = shaping_act_of(shaping, module->name);
        if (!act || act->act == GK_ACT_FLOAT) {
            continue;
        }
        n_asked++;
        if (is_int4(&module->desc) || shaping_is_about(act, module->name)) {
            r = apply(act, module, why);
            n_applied++;
        }
    }
    if (r == 0 && n_asked > 0 && n_applied == 0) {
        warnings_add(warnings,
                     "activations fp8: no module of the checkpoint has 4-bit integers whose x "
                     "comes as it is");
    }
    return r;
}
