/* model_fill.c - see model_fill.h. Each thread takes the next item; after a failure no more are
 * begun. */
#include "daemon/weights/model_fill.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "daemon/weights/weight_fill.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define THREADS_MAX 8u

/* What became of an item. */
struct outcome {
    int result;
    struct reason why;
    struct warnings warnings;
};

struct filling {
    struct model *model;
    const struct plan *plan;
    struct progress *progress;
    struct outcome *outcomes; /* (plan->n) */
    _Atomic uint32_t i_next;
    _Atomic bool has_failed;
};

static void fill_items(struct filling *filling, struct packer *packer)
{
    uint32_t i;
    while (!atomic_load(&filling->has_failed) &&
           (i = atomic_fetch_add(&filling->i_next, 1)) < filling->plan->n) {
        struct outcome *outcome = &filling->outcomes[i];
        outcome->result = weight_fill(filling->model->weights[i], &filling->plan->items[i], packer,
                                      filling->progress, &outcome->warnings, &outcome->why);
        if (outcome->result != 0) {
            atomic_store(&filling->has_failed, true);
        }
    }
}

/* The first load page-locks memory for it. */
static int new_packer(struct filling *filling, struct packer **ret_packer)
{
    uint64_t start_nsec = clock_now_nsec();
    struct device *device = filling->model->device;
    int r = device->ops->packing->packer_new(device, ret_packer, NULL);
    (void)progress_spend(filling->progress, MSG_LOAD_PREPARE, start_nsec);
    return r;
}

/* A thread that finds no packer leaves the work to the others; the first one has one, or NULL. */
static void *run_thread(void *data)
{
    struct filling *filling = data;
    const struct packer_ops *packing = filling->model->device->ops->packing;
    struct packer *packer;
    if (new_packer(filling, &packer) == 0) {
        fill_items(filling, packer);
        packing->packer_free(packer);
    }
    return NULL;
}

/* This thread goes first, with or without a packer, and so everything is done in any case. */
static void fill_shared(struct filling *filling)
{
    const struct packer_ops *packing = filling->model->device->ops->packing;
    uint32_t n_threads = (uint32_t)num_min(THREADS_MAX, filling->plan->n);
    pthread_t threads[THREADS_MAX];
    uint32_t n_started = 0;
    struct packer *packer = NULL;
    while (n_started + 1 < n_threads &&
           pthread_create(&threads[n_started], NULL, run_thread, filling) == 0) {
        n_started++;
    }
    if (new_packer(filling, &packer) != 0) {
        packer = NULL;
    }
    fill_items(filling, packer);
    packing->packer_free(packer);
    for (uint32_t i = 0; i < n_started; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

static int collect(struct filling *filling, struct warnings *warnings, struct reason *why)
{
    int r = 0;
    for (uint32_t i = 0; i < filling->plan->n; i++) {
        struct outcome *outcome = &filling->outcomes[i];
        warnings_take(warnings, &outcome->warnings);
        if (r == 0 && outcome->result != 0) {
            r = outcome->result;
            if (r > 0) {
                (void)reason_set(why, r, "%s", outcome->why.text);
            }
        }
    }
    return r;
}

int model_fill(struct model *model, const struct plan *plan, struct progress *progress,
               struct warnings *warnings, struct reason *why)
{
    CLEAN_FREE struct outcome *outcomes = calloc(plan->n + 1, sizeof(*outcomes));
    if (!outcomes) {
        return err_raise(-ENOMEM);
    }
    struct filling filling = {
        .model = model, .plan = plan, .progress = progress, .outcomes = outcomes};
    if (model->device->ops->packing) {
        fill_shared(&filling);
    } else {
        fill_items(&filling, NULL);
    }
    return collect(&filling, warnings, why);
}
