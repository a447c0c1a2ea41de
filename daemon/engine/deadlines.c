/* deadlines.c - see deadlines.h. */
#include "daemon/engine/deadlines.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "ipc/base/error.h"

#include "daemon/engine/sched_item.h"

int deadlines_init(struct deadlines *deadlines, uint32_t n_max)
{
    deadlines->heap = calloc(n_max, sizeof(struct sched_item *));
    if (deadlines->heap == NULL) {
        return err_raise(-ENOMEM);
    }
    deadlines->n = 0;
    deadlines->n_max = n_max;
    return 0;
}

void deadlines_finish(struct deadlines *deadlines)
{
    free(deadlines->heap);
    *deadlines = (struct deadlines){0};
}

static bool is_earlier(const struct sched_item *a, const struct sched_item *b)
{
    return a->deadline_nsec < b->deadline_nsec;
}

static void put(struct deadlines *deadlines, uint32_t i, struct sched_item *item)
{
    deadlines->heap[i] = item;
    item->i_deadline = i;
}

/* Put the item at place i or above it. */
static void sift_up(struct deadlines *deadlines, uint32_t i, struct sched_item *item)
{
    while (i > 0 && is_earlier(item, deadlines->heap[(i - 1) / 2])) {
        put(deadlines, i, deadlines->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(deadlines, i, item);
}

/* Put the item at place i or below it. */
static void sift_down(struct deadlines *deadlines, uint32_t i, struct sched_item *item)
{
    while (2 * i + 1 < deadlines->n) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < deadlines->n &&
            is_earlier(deadlines->heap[child + 1], deadlines->heap[child])) {
            child++;
        }
        if (!is_earlier(deadlines->heap[child], item)) {
            break;
        }
        put(deadlines, i, deadlines->heap[child]);
        i = child;
    }
    put(deadlines, i, item);
}

void deadlines_add(struct deadlines *deadlines, struct sched_item *item)
{
    GD_ASSERT(deadlines->n < deadlines->n_max);
    sift_up(deadlines, deadlines->n++, item);
}

void deadlines_remove(struct deadlines *deadlines, struct sched_item *item)
{
    uint32_t i = item->i_deadline;
    if (i == DEADLINES_NOWHERE) {
        return;
    }
    item->i_deadline = DEADLINES_NOWHERE;
    struct sched_item *last = deadlines->heap[--deadlines->n];
    if (last == item) {
        return;
    }
    if (i > 0 && is_earlier(last, deadlines->heap[(i - 1) / 2])) {
        sift_up(deadlines, i, last);
    } else {
        sift_down(deadlines, i, last);
    }
}

struct sched_item *deadlines_first(const struct deadlines *deadlines)
{
    return deadlines->n == 0 ? NULL : deadlines->heap[0];
}
