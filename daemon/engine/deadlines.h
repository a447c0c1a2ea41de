/* deadlines.h - the queued items that have a deadline, earliest first: a binary heap in an array
 * made once. An item knows its place, so that it can leave from the middle. */
#pragma once

#include <stdint.h>

#include "ipc/base/check.h"

#define DEADLINES_NOWHERE UINT32_MAX

struct sched_item;

struct deadlines {
    struct sched_item **heap; /* owned */
    uint32_t n;
    uint32_t n_max;
};

int deadlines_init(struct deadlines *deadlines, uint32_t n_max) GD_MUST_CHECK; /* 0 or -ENOMEM */
void deadlines_finish(struct deadlines *deadlines);

/* deadlines_add() - the item has a deadline and is not in yet; there is room for n_max. */
void deadlines_add(struct deadlines *deadlines, struct sched_item *item);
/* deadlines_remove() - does nothing for an item that has none. */
void deadlines_remove(struct deadlines *deadlines, struct sched_item *item);
/* deadlines_first() - NULL when there is none. */
struct sched_item *deadlines_first(const struct deadlines *deadlines);
