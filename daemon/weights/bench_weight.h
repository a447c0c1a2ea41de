/* bench_weight.h - a made-up weight on a device: pseudo-random, packed as a loaded one would be,
 * and as many copies of it as no cache holds. Apart from the store. */
#pragma once

#include <stdint.h>

#include "daemon/device/device.h"
#include "daemon/weights/progress.h"
#include "gk/gk.h"
#include "ipc/base/check.h"

#define BENCH_COPIES_MAX 64u

struct bench_weight {
    struct device *device;
    struct region regions[BENCH_COPIES_MAX];
    const void *packed[BENCH_COPIES_MAX]; /* their bases */
    uint32_t n_copies;
};

#define BENCH_WEIGHT_NULL ((struct bench_weight){.device = NULL})

/* bench_weight_init() - the layout fits the desc and is of the device's kind. 0; STATUS_NO_SPACE
 * when the machine or the device lacks memory, asked before any is used; STATUS_CANCELLED; another
 * status of the device; or negative errno. bench_weight_finish() - gives all of it back; of
 * BENCH_WEIGHT_NULL too. */
int bench_weight_init(struct bench_weight *weight, struct device *device,
                      const struct gk_desc *desc, const struct gk_layout *layout,
                      struct progress *progress, struct reason *why) GD_MUST_CHECK;
void bench_weight_finish(struct bench_weight *weight);

/* bench_weight_fill() - a canonical that was allocated for its desc: codes over all of their range
 * but for NaN and values of great size, scales around 0.01, a random act-order. The same every
 * time. */
void bench_weight_fill(struct gk_canonical *canonical);
