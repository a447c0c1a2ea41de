/* bench.h - time every kernel of a device over a made-up weight, for a list of numbers of rows: how
 * time grows with m, and what each kernel is good for. Nothing of it is seen by the store, and the
 * measurements of served weights (tuner.h) neither use it nor are changed by it. */
#pragma once

#include "daemon/device/device.h"
#include "daemon/weights/progress.h"
#include "daemon/weights/warnings.h"
#include "ipc/base/check.h"
#include "ipc/msg.h"

#define BENCH_ROWS_MAX        8192u
#define BENCH_ELEMS_MAX       (1ull << 31) /* n k of the weight */
#define BENCH_BUDGET_USEC_MAX 1000000u

/* bench_check() - can that be measured at all? 0; STATUS_INVALID_ARGUMENT for numbers out of range,
 * none at all, a kernel in `off` that no build has; STATUS_UNSUPPORTED for an unknown format, one
 * without a layout or a kernel on that device, or other activations than F16 and BF16. */
int bench_check(const struct device *device, const struct msg_bench *bench,
                struct reason *why) GD_MUST_CHECK;

/* bench_run() - what bench_check() has passed. Every kernel that can_implement() the problem and is
 * not disabled, in the configuration or by `off`, at every m, smallest first. One that took more
 * than 16 times as long as the fastest is not measured at larger m. More rows than a launch takes
 * go in several launches, each as large as may be: their times are added. A kernel that finds no
 * room for its rows is a warning. *ret_result is for msg_bench_result_free(). Progress counts
 * measurements. The memory is given back in every case. Device: any thread; as slow as what the
 * worker does meanwhile makes it. 0; STATUS_NO_SPACE, STATUS_CANCELLED, another status of the
 * device; or negative errno. */
int bench_run(struct device *device, const struct msg_bench *bench, struct progress *progress,
              struct warnings *warnings, struct msg_bench_result **ret_result,
              struct reason *why) GD_MUST_CHECK;
