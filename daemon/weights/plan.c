/* Making the plan. Every module starts as an item of its own; a fuse rule takes some of them away
 * and puts one in their place; at last everything is cut. */
#include "daemon/weights/plan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

#define INVALID(why, ...)     reason_set((why), STATUS_INVALID_ARGUMENT, __VA_ARGS__)
#define UNSUPPORTED(why, ...) reason_set((why), STATUS_UNSUPPORTED, __VA_ARGS__)

struct maker {
    const struct module_list *modules;
    const struct shaping *shaping;
    struct warnings *warnings;
    bool *is_taken; /* (modules->n): part of a fused item */
    struct plan plan;
};

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* A malloc'd sibling: the path with another last part. NULL without memory. */
static char *sibling(const char *path, const char *part)
{
    char *name;
    int n_prefix = (int)(last_part(path) - path);
    return asprintf(&name, "%.*s%s", n_prefix, path, part) < 0 ? NULL : name;
}

/* ---- fusing ---- */

/* Modules beside `first`, one a part of the rule; *ret_n_found counts those that are there. */
static int find_parts(const struct maker *maker, const struct shaping_fuse *fuse, const char *first,
                      const struct module *ret_parts[SHAPING_PARTS_MAX], uint32_t *ret_n_found)
{
    *ret_n_found = 0;
    for (uint32_t i = 0; i < fuse->n_parts; i++) {
        CLEAN_FREE char *name = sibling(first, fuse->parts[i]);
        if (!name) {
            return err_raise(-ENOMEM);
        }
        ret_parts[i] = modules_get(maker->modules, name);
        *ret_n_found += ret_parts[i] != NULL;
    }
    return 0;
}

static int refuse_incomplete(const struct shaping_fuse *fuse, const char *path,
                             const struct module *const *parts, struct reason *why)
{
    uint32_t i = 0;
    while (parts[i]) {
        i++;
    }
    return INVALID(why, "fuse '%s': '%.*s%s' is not there beside '%s'", fuse->name,
                   (int)(last_part(path) - path), path, fuse->parts[i], path);
}

static int check_free_name(const struct maker *maker, const char *name, struct reason *why)
{
    if (modules_get(maker->modules, name)) {
        return reason_set(why, STATUS_BAD_CHECKPOINT,
                          "fused weight '%s' would have the name of a module of the checkpoint",
                          name);
    }
    return 0;
}

static struct plan_item *add_item(struct maker *maker, char *name)
{
    struct plan_item *item = &maker->plan.items[maker->plan.n++];
    *item = (struct plan_item){.name = name};
    return item;
}

static int add_fused(struct maker *maker, const struct shaping_fuse *fuse,
                     const struct module *const *parts, struct reason *why)
{
    CLEAN_FREE char *name = sibling(parts[0]->name, fuse->name);
    if (!name) {
        return err_raise(-ENOMEM);
    }
    int r = check_free_name(maker, name, why);
    if (r != 0) {
        return r;
    }
    struct plan_item *item = add_item(maker, steal_ptr(&name));
    for (uint32_t i = 0; i < fuse->n_parts; i++) {
        bool *is_taken = &maker->is_taken[parts[i] - maker->modules->items];
        if (*is_taken) {
            return INVALID(why, "fuse '%s': '%s' is fused already", fuse->name, parts[i]->name);
        }
        *is_taken = true;
        item->parts[item->n_parts++].module = parts[i];
    }
    return 0;
}

static bool is_part(const struct shaping_fuse *fuse, const char *part)
{
    for (uint32_t i = 0; i < fuse->n_parts; i++) {
        if (strcmp(fuse->parts[i], part) == 0) {
            return true;
        }
    }
    return false;
}

/* One module, which may begin a fused one. */
static int try_fuse(struct maker *maker, const struct shaping_fuse *fuse, const char *path,
                    uint32_t *n_fused, struct reason *why)
{
    const struct module *parts[SHAPING_PARTS_MAX];
    uint32_t n_found;
    if (!is_part(fuse, last_part(path))) {
        return 0;
    }
    int r = find_parts(maker, fuse, path, parts, &n_found);
    if (r != 0) {
        return r;
    }
    if (n_found < fuse->n_parts) {
        return fuse->is_usual ? 0 : refuse_incomplete(fuse, path, parts, why);
    }
    if (strcmp(parts[0]->name, path) != 0) {
        return 0; /* its first part's turn */
    }
    ++*n_fused;
    return add_fused(maker, fuse, parts, why);
}

static int fuse_all(struct maker *maker, struct reason *why)
{
    for (uint32_t i_rule = 0; i_rule < maker->shaping->n_fuses; i_rule++) {
        const struct shaping_fuse *fuse = &maker->shaping->fuses[i_rule];
        uint32_t n_fused = 0;
        for (uint32_t i = 0; i < maker->modules->n; i++) {
            int r = try_fuse(maker, fuse, maker->modules->items[i].name, &n_fused, why);
            if (r != 0) {
                return r;
            }
        }
        if (n_fused == 0 && !fuse->is_usual) {
            return INVALID(why, "fuse '%s': no module of the checkpoint has those parts",
                           fuse->name);
        }
        if (n_fused == 0) {
            warnings_add(maker->warnings, "fuse '%s': no module of the checkpoint has those parts",
                         fuse->name);
        }
    }
    return 0;
}

static int add_single(struct maker *maker)
{
    for (uint32_t i = 0; i < maker->modules->n; i++) {
        if (maker->is_taken[i]) {
            continue;
        }
        char *name = strdup(maker->modules->items[i].name);
        if (!name) {
            return err_raise(-ENOMEM);
        }
        struct plan_item *item = add_item(maker, name);
        item->n_parts = 1;
        item->parts[0].module = &maker->modules->items[i];
    }
    return 0;
}

/* ---- cutting ---- */

static void choose_axis(const struct maker *maker, struct plan_part *part)
{
    if (maker->shaping->tp_size == 1) {
        part->axis = SHAPING_WHOLE;
        return;
    }
    part->axis = shaping_axis_of(maker->shaping, part->module->name);
    if (part->axis == SHAPING_UNSAID) {
        warnings_add(maker->warnings,
                     "module '%s' is served whole: its name does not tell how it is cut",
                     part->module->name);
        part->axis = SHAPING_WHOLE;
    }
}

static int choose_range(const struct maker *maker, struct plan_part *part, struct reason *why)
{
    const struct gk_desc *desc = &part->module->desc;
    uint32_t tp_size = maker->shaping->tp_size;
    uint32_t side = part->axis == SHAPING_N ? desc->n : desc->k;
    if (side % tp_size != 0) {
        return UNSUPPORTED(why, "module '%s': %c %u cannot be cut into %u equal pieces",
                           part->module->name, part->axis == SHAPING_N ? 'n' : 'k', side, tp_size);
    }
    part->count = side / tp_size;
    part->first = part->count * maker->shaping->tp_rank;
    return 0;
}

static int cut_part(const struct maker *maker, struct plan_part *part, struct reason *why)
{
    const struct gk_desc *whole = &part->module->desc;
    choose_axis(maker, part);
    if (part->axis == SHAPING_WHOLE) {
        part->desc = *whole;
        return 0;
    }
    int r = choose_range(maker, part, why);
    if (r != 0) {
        return r;
    }
    r = part->axis == SHAPING_N
            ? gk_desc_slice_n(whole, part->first, part->count, &part->desc, why)
            : gk_desc_slice_k(whole, part->first, part->count, &part->desc, why);
    if (r > 0) {
        reason_prefix(why, "module '%s', rank %u of %u", part->module->name,
                      maker->shaping->tp_rank, maker->shaping->tp_size);
    }
    return r;
}

static int describe_item(struct plan_item *item, struct reason *why)
{
    struct gk_desc descs[SHAPING_PARTS_MAX];
    if (item->n_parts == 1) {
        item->desc = item->parts[0].desc;
        return 0;
    }
    for (uint32_t i = 0; i < item->n_parts; i++) {
        if (item->parts[i].axis == SHAPING_K) {
            return UNSUPPORTED(why, "weight '%s': part '%s' is cut along k, and cannot be fused",
                               item->name, item->parts[i].module->name);
        }
        descs[i] = item->parts[i].desc;
    }
    int r = gk_desc_concat_n(descs, item->n_parts, &item->desc, why);
    if (r > 0) {
        reason_prefix(why, "weight '%s'", item->name);
    }
    return r;
}

static int cut_all(struct maker *maker, struct reason *why)
{
    for (uint32_t i = 0; i < maker->plan.n; i++) {
        struct plan_item *item = &maker->plan.items[i];
        for (uint32_t i_part = 0; i_part < item->n_parts; i_part++) {
            int r = cut_part(maker, &item->parts[i_part], why);
            if (r != 0) {
                return r;
            }
        }
        int r = describe_item(item, why);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

/* ---- the plan ---- */

static int compare_items(const void *a, const void *b)
{
    const struct plan_item *x = a;
    const struct plan_item *y = b;
    return strcmp(x->name, y->name);
}

/* Sorted: rules of one name may both have found their parts in one place. */
static int check_names(const struct plan *plan, struct reason *why)
{
    for (uint32_t i = 1; i < plan->n; i++) {
        const struct plan_item *one = &plan->items[i - 1], *other = &plan->items[i];
        if (strcmp(one->name, other->name) == 0) {
            return INVALID(why, "fuse '%s': two weights would be '%s', that of '%s' and of '%s'",
                           last_part(one->name), one->name, one->parts[0].module->name,
                           other->parts[0].module->name);
        }
    }
    return 0;
}

static int make(struct maker *maker, struct reason *why)
{
    int r = fuse_all(maker, why);
    if (r == 0) {
        r = add_single(maker);
    }
    if (r == 0) {
        r = cut_all(maker, why);
    }
    if (r == 0) {
        qsort(maker->plan.items, maker->plan.n, sizeof(*maker->plan.items), compare_items);
        r = check_names(&maker->plan, why);
    }
    return r;
}

int plan_make(const struct module_list *modules, const struct shaping *shaping,
              struct warnings *warnings, struct plan *ret_plan, struct reason *why)
{
    struct maker maker = {.modules = modules, .shaping = shaping, .warnings = warnings};
    CLEAN_FREE bool *is_taken = calloc(modules->n, sizeof(*is_taken));
    maker.is_taken = is_taken;
    maker.plan.items = calloc(modules->n, sizeof(*maker.plan.items)); /* fusing makes fewer */
    int r = is_taken && maker.plan.items ? make(&maker, why) : err_raise(-ENOMEM);
    if (r != 0) {
        plan_finish(&maker.plan);
        return r;
    }
    *ret_plan = maker.plan;
    return 0;
}

void plan_finish(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        free(plan->items[i].name);
    }
    free(plan->items);
    *plan = PLAN_NULL;
}

static int compare_name_to_item(const void *name, const void *element)
{
    const struct plan_item *item = element;
    return strcmp(name, item->name);
}

const struct plan_item *plan_get(const struct plan *plan, const char *name)
{
    return bsearch(name, plan->items, plan->n, sizeof(*plan->items), compare_name_to_item);
}

uint64_t plan_item_bytes(const struct plan_item *item)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < item->n_parts; i++) {
        sum += module_bytes(item->parts[i].module);
    }
    return sum;
}
