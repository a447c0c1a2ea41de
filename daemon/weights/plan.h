/* plan.h - which weights are made of a checkpoint's modules: each by itself, or several fused; each
 * whole, or one tensor-parallel rank's slice. Made from descriptions alone, before data is read.
 *
 * Fused weights are exact: scales that differ are kept row by row, nothing is requantised
 * (gk_canonical_concat_n()). Parts that cannot be fused so are a refusal. The parts of a fused
 * weight are served in it only.
 *
 * A rank has the i-th of tp_size equal pieces of a module's n or k; a side that does not divide is
 * refused. What is cut along n is cut before it is fused, so that a rank's qkv_proj has its rows of
 * q, of k and of v. A piece of k keeps the bias on rank 0 only, so that the ranks' products sum to
 * the whole; cuts through groups are judged by gk_desc_slice_k(). A module whose name does not tell
 * how it is cut is served whole by every rank, with a warning. */
#pragma once

#include <stdint.h>

#include "daemon/weights/module.h"
#include "daemon/weights/progress.h"
#include "daemon/weights/shaping.h"
#include "daemon/weights/warnings.h"
#include "gk/gk.h"

struct plan_part {
    const struct module *module;
    enum shaping_axis axis; /* SHAPING_WHOLE, N or K */
    uint32_t first;         /* of n or k */
    uint32_t count;
    struct gk_desc desc; /* of the piece */
};

struct plan_item {
    char *name; /* owned: the weight's name within the model */
    struct plan_part parts[SHAPING_PARTS_MAX];
    uint32_t n_parts;
    struct gk_desc desc; /* of the weight */
};

struct plan {
    struct plan_item *items; /* owned, sorted by name */
    uint32_t n;
};

#define PLAN_NULL ((struct plan){.items = NULL})

/* plan_make() - points into the modules, which must outlive the plan. Return: 0,
 * STATUS_INVALID_ARGUMENT (a fuse rule that fits nowhere or in part), STATUS_UNSUPPORTED (cannot be
 * fused or cut), STATUS_BAD_CHECKPOINT (a fused name that is taken), or -ENOMEM. */
int plan_make(const struct module_list *modules, const struct shaping *shaping,
              struct warnings *warnings, struct plan *ret_plan, struct reason *why) GD_MUST_CHECK;
void plan_finish(struct plan *plan); /* safe on PLAN_NULL */

/* plan_get() - by name; NULL when there is none. plan_item_bytes() - what reading it reads. */
const struct plan_item *plan_get(const struct plan *plan, const char *name);
uint64_t plan_item_bytes(const struct plan_item *item);
