/* module_read.h - the numbers of one linear layer, from the checkpoint into canonical form. */
#pragma once

#include "daemon/weights/modules.h"
#include "daemon/weights/progress.h"
#include "daemon/weights/warnings.h"
#include "gk/gk.h"

/* module_read() - read, check and canonicalise one layer. Holds the tensors as they lie in the file
 * beside the canonical arrays while it runs. Counts what it reads; looks for cancellation every few
 * MiB.
 *
 * The caller gk_canonical_finish()es the result.
 * Return: 0, STATUS_BAD_CHECKPOINT, UNSUPPORTED, CANCELLED, INTERNAL (read error), or -ENOMEM. */
int module_read(const struct module *module, struct progress *progress, struct warnings *warnings,
                struct gk_canonical *ret_canonical, struct reason *why) GD_MUST_CHECK;
