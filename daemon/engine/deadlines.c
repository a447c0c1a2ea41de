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

struct search {
    const struct deadlines *deadlines;
    uint64_t until_nsec;
    bool (*may)(struct deadline *deadline, const void *context);
    const void *context;
    struct deadline *found;
    uint64_t later_nsec;
};

/* What is at place i of the heap, and below it: nothing there is earlier. As deep as the heap is.
 */
static void look_below(struct search *search, uint32_t i)
{
    if (i >= search->deadlines->n) {
        return;
    }
    struct deadline *deadline = search->deadlines->heap[i];
    if (deadline->at_nsec > search->until_nsec) {
        search->later_nsec =
            deadline->at_nsec < search->later_nsec ? deadline->at_nsec : search->later_nsec;
        return;
    }
    bool is_better = search->found == NULL || is_earlier(deadline, search->found);
    if (is_better && search->may(deadline, search->context)) {
        search->found = deadline;
    }
    look_below(search, 2 * i + 1);
    look_below(search, 2 * i + 2);
}

struct deadline *deadlines_find(const struct deadlines *deadlines, uint64_t until_nsec,
                                bool (*may)(struct deadline *deadline, const void *context),
                                const void *context, uint64_t *ret_later_nsec)
{
    struct search search = {deadlines, until_nsec, may, context, NULL, UINT64_MAX};
    look_below(&search, 0);
    *ret_later_nsec = search.later_nsec;
    return search.found;
}
