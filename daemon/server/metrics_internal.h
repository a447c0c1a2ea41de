/* metrics_internal.h - the parts of the figures that have files of their own. Main thread. */
#pragma once

#include "daemon/server/core.h"
#include "daemon/server/openmetrics.h"

/* metrics_process() - what every process has: start, CPU time, memory, descriptors. */
void metrics_process(struct openmetrics *om, const struct core *core);

/* metrics_devices() - devices and their workers. */
void metrics_devices(struct openmetrics *om, const struct core *core);
