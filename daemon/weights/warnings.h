/* warnings.h - a bounded list of sentences about a checkpoint that is odd and still served. The
 * last place is kept for "and N more". Owned by one thread. */
#pragma once

#include <stdint.h>

#include "ipc/base/check.h"

struct warnings {
    char **items; /* owned, MSG_WARNINGS_MAX places once the first is added */
    uint32_t n;
    uint64_t n_dropped;
};

#define WARNINGS_NULL ((struct warnings){0})

/* warnings_add() - best effort: a warning that finds no memory or no place is counted as dropped.
 * Control bytes are replaced by '?'. `warnings` may be NULL. */
void warnings_add(struct warnings *warnings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* warnings_take() - move another list's sentences behind these; `to` may be NULL. */
void warnings_take(struct warnings *to, struct warnings *from);

/* warnings_copy() - a malloc'd copy of the sentences for a reply. 0 or -ENOMEM. */
int warnings_copy(char *const *items, uint32_t n, char ***ret_items) GD_MUST_CHECK;

/* warnings_list_free() - frees n sentences and their array; NULL in, NULL out. */
char **warnings_list_free(char **items, uint32_t n);

void warnings_finish(struct warnings *warnings);
