/* tuner.h - measure the kernels that may serve a model's weights, on its device, and let each
 * weight have the fastest. Candidates give the same bits (gk_candidates()), so products do not
 * change. Threads: one; weights take the result as one atomic pointer while they serve. */
#pragma once

#include "daemon/weights/model.h"
#include "daemon/weights/progress.h"
#include "ipc/base/check.h"

struct tuner;

/* tuner_new() - file_path: where measurements are kept (tuning_file.h), "" for nowhere;
 * is_host_too: measure on the host device as well, whose static order is right on the CPUs it was
 * made on. A file that cannot be read is logged, and measured again. 0 or -ENOMEM. */
int tuner_new(const char *file_path, bool is_host_too, struct tuner **ret_tuner) GD_MUST_CHECK;
struct tuner *tuner_free(struct tuner *tuner); /* NULL in, NULL out */

/* tuner_run() - every weight of a published model that has no tuning gets one, with a log line;
 * what the file knows is not measured. A kernel that cannot be timed is logged and not chosen.
 * 0, STATUS_CANCELLED (by progress; what is done stays), or -ENOMEM. */
int tuner_run(struct tuner *tuner, const struct model *model, struct progress *progress,
              struct reason *why) GD_MUST_CHECK;
