/* deadlines.h - what has a deadline, earliest first: a binary heap in an array made once. An entry
 * is embedded in its owner and knows its place, so that it can leave from the middle. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"

#define DEADLINES_NOWHERE UINT32_MAX

struct deadline {
    uint64_t at_nsec;
    uint32_t i_heap; /* DEADLINES_NOWHERE when it is in no heap */
};

struct deadlines {
    struct deadline **heap; /* owned array */
    uint32_t n;
    uint32_t n_max;
};

/* deadlines_init() - room for n_max. 0 or -ENOMEM. deadlines_finish() frees it, and leaves zeros.
 */
int deadlines_init(struct deadlines *deadlines, uint32_t n_max) GD_MUST_CHECK;
void deadlines_finish(struct deadlines *deadlines);

/* deadlines_add() - there must be room. deadlines_remove() does nothing for one that is in no heap.
 */
void deadlines_add(struct deadlines *deadlines, struct deadline *deadline);
void deadlines_remove(struct deadlines *deadlines, struct deadline *deadline);

/* deadlines_first() - the earliest; NULL when there is none. */
struct deadline *deadlines_first(const struct deadlines *deadlines);

/* deadlines_find() - the earliest of those until `until_nsec` that may(), which must not change
 * them; NULL when there is none. *ret_later_nsec: the first one after that time, whoever's;
 * UINT64_MAX: none. Linear in those until then. */
struct deadline *deadlines_find(const struct deadlines *deadlines, uint64_t until_nsec,
                                bool (*may)(struct deadline *deadline, const void *context),
                                const void *context, uint64_t *ret_later_nsec);
