/* model_fill.h - the memory of all weights of a model, several at a time where that is faster. */
#pragma once

#include "daemon/weights/model.h"
#include "daemon/weights/plan.h"
#include "daemon/weights/progress.h"
#include "daemon/weights/warnings.h"

/* model_fill() - weight i is item i of the plan; see weight_fill(). On a device that packs by
 * itself threads of this function's own share the work, since one alone reads the page cache slower
 * than the bus takes it; each holds the scales of one layer and 8 MiB of the file. Elsewhere one
 * layer at a time is read, so that the largest one sets the peak of memory. Warnings are in the
 * order of the plan, and the first item that fails in that order says why. Return as weight_fill().
 */
int model_fill(struct model *model, const struct plan *plan, struct progress *progress,
               struct warnings *warnings, struct reason *why) GD_MUST_CHECK;
