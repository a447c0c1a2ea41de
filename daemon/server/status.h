/* status.h - the status document: one JSON object; proto/PROTOCOL.md has its schema. */
#pragma once

#include "daemon/server/core.h"
#include "daemon/server/session_table.h"

/* status_document() - a malloc'd, NUL-terminated document; NULL without memory. Main thread. */
char *status_document(const struct core *core, const struct session_table *table);
