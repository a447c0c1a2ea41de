/* weight_fill.h - the memory of one weight of a plan: read, cut, fused and packed into a region of
 * its device. */
#pragma once

#include "daemon/weights/model.h"
#include "daemon/weights/plan.h"
#include "daemon/weights/progress.h"
#include "daemon/weights/warnings.h"

/* weight_fill() - weight has its desc, layout and device, and no region yet. packer: of this
 * thread; NULL: the CPU packs. What a packer has no room for, and weights that it finds damaged,
 * the CPU packs too: it can name the damage. Several threads may fill weights of one device.
 * Return as plan_read(), device_ops.region_new() and weight_make_ready(). */
int weight_fill(struct weight *weight, const struct plan_item *item, struct packer *packer,
                struct progress *progress, struct warnings *warnings,
                struct reason *why) GD_MUST_CHECK;
