/* adopt.h - take over the weights that an earlier process had kept.
 *
 * Each manifest found is read, its regions are imported and their digests compared, all on the
 * device, and the model is published. What is not whole, was changed, or was packed by a build that
 * packs otherwise is let go of, with one line in the log, and listed for loading from its
 * checkpoint; so is what three processes in a row have died of adopting. Of two generations of a
 * model, left by a death in the middle of a reload, the later one counts. A checkpoint that has
 * changed since does not matter here: the model serves as it was, and is listed for reloading. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/weights/keep.h"
#include "daemon/weights/loader.h"
#include "daemon/weights/store.h"
#include "ipc/base/check.h"

struct adoption {
    uint32_t n_models;
    uint32_t n_refused; /* models that were kept and could not be adopted */
    uint32_t n_weights;
    uint64_t n_bytes;
    double seconds;        /* all of it */
    double digest_seconds; /* of these, reading the bytes over */
    struct loader_request
        *jobs; /* owned: a LOAD for what was lost, a RELOAD for what has changed */
    uint32_t n_jobs;
};

#define ADOPTION_NULL ((struct adoption){0})

/* adopt_kept() - everything keep->found has; what it cannot use is dropped. Start-up, before
 * anything is loaded. has_chosen_devices: somebody named them, so that what was kept on others is
 * not wanted any more; otherwise a GPU that is missing is one that does not answer now. Return: 0,
 * -ENOMEM, STATUS_EXISTS while another process serves what was kept, STATUS_DEVICE_ERROR for
 * such a GPU, or STATUS_UNSUPPORTED for a weight whose kernels are all disabled: what is kept then
 * stays so. */
int adopt_kept(struct keep *keep, struct store *store, struct device *const *devices,
               uint32_t n_devices, bool has_chosen_devices, struct adoption *ret_adoption,
               struct reason *why) GD_MUST_CHECK;
void adoption_finish(struct adoption *adoption);
