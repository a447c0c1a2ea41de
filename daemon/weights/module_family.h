/* module_family.h - which family a weight is of, by its tensors and by the settings; and tensors
 * that belong to no weight. Of modules.c only. Return, unless said otherwise: 0,
 * STATUS_BAD_CHECKPOINT, or -ENOMEM. */
#pragma once

#include "daemon/weights/module_parts.h"

/* Fills in a draft whose weight is set; return as modules_find(). */
typedef int (*module_finder)(struct module_draft *draft, struct reason *why);

/* module_choose() - the scheme of a quantised weight P.leaf and who finds its tensors. Refused:
 * settings that say nothing about it, or something else than its name and type. */
int module_choose(const struct module_search *search, const char *prefix, const char *leaf,
                  const struct checkpoint_tensor *at, const struct quant_scheme **ret_scheme,
                  module_finder *ret_find, struct reason *why) GD_MUST_CHECK;

/* module_judge_plain() - may a weight of floats be served as it is? */
int module_judge_plain(const struct module_search *search, const char *prefix,
                       const struct checkpoint_tensor *at, struct reason *why) GD_MUST_CHECK;

/* module_find_plain() - the finder of a weight of floats. */
int module_find_plain(struct module_draft *draft, struct reason *why) GD_MUST_CHECK;

/* module_judge_companions() - scales, zero points and the like that belong to no module of the list
 * or to one that makes no use of them. */
int module_judge_companions(const struct module_search *search, const struct module_list *list,
                            struct reason *why) GD_MUST_CHECK;
