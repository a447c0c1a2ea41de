/* module_read.h - the numbers of one linear layer, from the checkpoint into canonical form. */
#pragma once

#include "daemon/device/device.h"
#include "daemon/weights/modules.h"
#include "daemon/weights/progress.h"
#include "daemon/weights/warnings.h"
#include "gk/gk.h"

/* module_code_order() - how the codes of its weight lie. */
enum gk_code_order module_code_order(const struct module *module);

/* module_read_rest() - as module_read(), without codes: neither read nor in the result. Scales and
 * zero points are checked, codes are not. */
int module_read_rest(const struct module *module, struct progress *progress,
                     struct warnings *warnings, struct gk_canonical *ret_canonical,
                     struct reason *why) GD_MUST_CHECK;

/* module_send_codes() - the weight's tensor as it lies, to that offset of what a packer has begun.
 * Return as module_read(), and as the packer's operations. */
int module_send_codes(const struct module *module, struct device *device, struct packer *packer,
                      uint64_t offset, struct progress *progress, struct reason *why) GD_MUST_CHECK;

/* module_read() - read, check and canonicalise one layer. Holds the tensors as they lie in the file
 * beside the canonical arrays while it runs. Counts what it reads; looks for cancellation every few
 * MiB.
 *
 * The caller gk_canonical_finish()es the result.
 * Return: 0, STATUS_BAD_CHECKPOINT, UNSUPPORTED, CANCELLED, INTERNAL (read error), or -ENOMEM. */
int module_read(const struct module *module, struct progress *progress, struct warnings *warnings,
                struct gk_canonical *ret_canonical, struct reason *why) GD_MUST_CHECK;
