/* metrics.h - the figures of the daemon as monitoring reads them: proto/PROTOCOL.md lists them. How
 * many series there are is bounded by devices, formats and STATS_MODELS_MAX, never by what clients
 * do. Main thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/server/core.h"

/* metrics_document() - malloc'd, *ret_n_bytes without the NUL at its end; NULL without memory.
 * is_openmetrics: see openmetrics.h. */
char *metrics_document(const struct core *core, bool is_openmetrics, size_t *ret_n_bytes);
