/* act_rules.h - which weights have their activations quantised although the checkpoint does not
 * say so: 4-bit integers, whose x is then rounded to e4m3 with a scale a row (W4A8). That makes
 * products of many rows faster where layers are large, and all of them less exact, so somebody has
 * to ask for it (shaping.h).
 *
 * "fp8" for all is about modules of 4-bit integers with x as it comes; others stay what they are. A
 * module that is asked for by name and is none of those is refused. So is one that the kernels have
 * no fast way for: act-order, groups that are no multiple of 128, scales in f32. "MODULE=float"
 * leaves it out. */
#pragma once

#include "daemon/weights/module.h"
#include "daemon/weights/shaping.h"
#include "daemon/weights/warnings.h"

/* act_rules_apply() - write into the modules' descriptions what the rules say; a rule for all
 * that finds nothing is warned of. Return: 0, STATUS_INVALID_ARGUMENT (a rule about no module),
 * STATUS_UNSUPPORTED with module and reason. */
int act_rules_apply(const struct shaping *shaping, struct module_list *modules,
                    struct warnings *warnings, struct reason *why) GD_MUST_CHECK;
