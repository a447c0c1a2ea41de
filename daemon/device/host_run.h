/* host_run.h - a launch on a pool of threads, and how long one takes. */
#pragma once

#include <stdint.h>

#include "daemon/device/device.h"
#include "daemon/device/thread_pool.h"

/* host_run_launch() - both steps of a launch, cut into as many parts as are worth a thread of the
 * n_threads that the pool has; launch->workspace is set. One thread at a time a pool. */
void host_run_launch(struct thread_pool *pool, uint32_t n_threads, const struct gk_kernel *kernel,
                     const struct gk_launch *launch);

/* host_time() - see device_time(): on a pool of its own, as large as the device's. */
int host_time(struct device *device, const struct device_trial *trial, double *ret_usec,
              struct reason *why);
