/* status.h - the status document for people. */
#pragma once

#include <jansson.h>
#include <stdio.h>

/* status_print() - tables of devices, models, jobs and sessions. document: a JSON object as
 * proto/PROTOCOL.md describes it; keys it lacks print as 0 or "-". */
void status_print(const json_t *document, FILE *out);
