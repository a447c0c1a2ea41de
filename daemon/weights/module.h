/* module.h - a linear layer of a checkpoint: its description and the tensors that it is made of;
 * and the list of all of them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/weights/checkpoint.h"
#include "daemon/weights/quant_rules.h"
#include "gk/gk.h"

/* What a tensor is to its module, whatever its name. */
enum module_role {
    MODULE_WEIGHT,
    MODULE_SCALES,
    MODULE_ZEROS,
    MODULE_G_IDX,
    MODULE_SHAPE,
    MODULE_GLOBAL_SCALE,
    MODULE_INPUT_SCALE,
    MODULE_INPUT_ZERO,
    MODULE_BIAS,
    MODULE_ROLES,
};

struct module {
    char *name; /* owned: "model.layers.0.mlp.down_proj" */
    struct gk_desc desc;
    enum quant_family family;
    bool is_v1;                                            /* GPTQ: zero points minus one */
    const struct checkpoint_tensor *tensors[MODULE_ROLES]; /* NULL when absent */
    uint32_t *perm;                                        /* owned, (k): with desc.has_perm */
};

void module_finish(struct module *module);

/* module_bytes() - what reading it reads. module_has() - is that tensor one of its own? */
uint64_t module_bytes(const struct module *module);
bool module_has(const struct module *module, const struct checkpoint_tensor *at);

struct module_list {
    struct module *items; /* owned, sorted by name */
    uint32_t n;
    enum dtype act_dtype; /* of the model: config.json's, else that of the first 16-bit scales or
                             weights by name, else F16 */
};

#define MODULE_LIST_NULL ((struct module_list){0})

void modules_finish(struct module_list *list); /* safe on MODULE_LIST_NULL */

/* modules_get() - by name; NULL when there is none. */
const struct module *modules_get(const struct module_list *list, const char *name);
