/* See module.h. */
#include "daemon/weights/module.h"

#include <stdlib.h>
#include <string.h>

void module_finish(struct module *module)
{
    free(module->name);
    free(module->perm);
    *module = (struct module){.name = NULL};
}

uint64_t module_bytes(const struct module *module)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < MODULE_ROLES; i++) {
        sum += module->tensors[i] ? module->tensors[i]->tensor->size_bytes : 0;
    }
    return sum;
}

bool module_has(const struct module *module, const struct checkpoint_tensor *at)
{
    for (uint32_t i = 0; i < MODULE_ROLES; i++) {
        if (module->tensors[i] == at) {
            return true;
        }
    }
    return false;
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
