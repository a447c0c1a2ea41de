/* deadlines.c - see deadlines.h. */
#include "daemon/engine/deadlines.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "ipc/base/error.h"

int deadlines_init(struct deadlines *deadlines, uint32_t n_max)
{
    deadlines->heap = calloc(n_max, sizeof(struct deadline *));
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

static bool is_earlier(const struct deadline *a, const struct deadline *b)
{
    return a->at_nsec < b->at_nsec;
}

static void put(struct deadlines *deadlines, uint32_t i, struct deadline *deadline)
{
    deadlines->heap[i] = deadline;
    deadline->i_heap = i;
}

/* Put the deadline at place i or above it. */
static void sift_up(struct deadlines *deadlines, uint32_t i, struct deadline *deadline)
{
    while (i > 0 && is_earlier(deadline, deadlines->heap[(i - 1) / 2])) {
        put(deadlines, i, deadlines->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(deadlines, i, deadline);
}

/* Put the deadline at place i or below it. */
static void sift_down(struct deadlines *deadlines, uint32_t i, struct deadline *deadline)
{
    while (2 * i + 1 < deadlines->n) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < deadlines->n &&
            is_earlier(deadlines->heap[child + 1], deadlines->heap[child])) {
            child++;
        }
        if (!is_earlier(deadlines->heap[child], deadline)) {
            break;
        }
        put(deadlines, i, deadlines->heap[child]);
        i = child;
    }
    put(deadlines, i, deadline);
}

void deadlines_add(struct deadlines *deadlines, struct deadline *deadline)
{
    GD_ASSERT(deadlines->n < deadlines->n_max);
    sift_up(deadlines, deadlines->n++, deadline);
}

void deadlines_remove(struct deadlines *deadlines, struct deadline *deadline)
{
    uint32_t i = deadline->i_heap;
    if (i == DEADLINES_NOWHERE) {
        return;
    }
    deadline->i_heap = DEADLINES_NOWHERE;
    struct deadline *last = deadlines->heap[--deadlines->n];
    if (last == deadline) {
        return;
    }
    if (i > 0 && is_earlier(last, deadlines->heap[(i - 1) / 2])) {
        sift_up(deadlines, i, last);
    } else {
        sift_down(deadlines, i, last);
    }
}

struct deadline *deadlines_first(const struct deadlines *deadlines)
{
    return deadlines->n == 0 ? NULL : deadlines->heap[0];
}
