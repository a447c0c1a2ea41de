/* plan_read.h - the numbers of one weight of a plan: its modules read, cut and fused. */
#pragma once

#include "daemon/weights/plan.h"
#include "daemon/weights/progress.h"
#include "daemon/weights/warnings.h"
#include "gk/gk.h"

/* plan_read_rest() - as plan_read(), without codes, which are neither read nor in the result. */
int plan_read_rest(const struct plan_item *item, struct progress *progress,
                   struct warnings *warnings, struct gk_canonical *ret_canonical,
                   struct reason *why) GD_MUST_CHECK;

/* plan_read() - holds the canonical forms of all parts beside the fused one while it runs. Return
 * as module_read(). The caller gk_canonical_finish()es the result. */
int plan_read(const struct plan_item *item, struct progress *progress, struct warnings *warnings,
              struct gk_canonical *ret_canonical, struct reason *why) GD_MUST_CHECK;
