/* nearest.h - the names that are most like one that does not exist, for its refusal to name. */
#pragma once

#include <stdint.h>

#include "ipc/base/reason.h"
#include "ipc/msg.h"

#define NEAREST_MAX 3u

struct nearest {
    const char *wanted; /* borrowed */
    uint32_t n_offered;
    uint32_t n; /* kept, the most alike first */
    char names[NEAREST_MAX][MSG_NAME_BYTES];
    uint32_t scores[NEAREST_MAX];
};

/* nearest_init() - to something. nearest_offer() - one of the names that exist; of those that are
 * equally alike the first offered stays. nearest_append() - "; there are a, b", "; there are 37,
 * like a, b, c", "; there is none", or as much of it as fits, to what why says. */
void nearest_init(struct nearest *nearest, const char *wanted);
void nearest_offer(struct nearest *nearest, const char *name);
void nearest_append(const struct nearest *nearest, struct reason *why);
