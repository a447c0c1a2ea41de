/* tuner.c - see tuner.h.
 *
 * Weights of a model that are alike share one measurement, and are measured in turn, so that what
 * is timed streams from memory as it does in a model's pass. Bounded: each kernel gets about
 * BUDGET_USEC for each number of rows, or a dozen launches where these take longer, and one that is
 * far off by its own prediction gets none. */
#include "daemon/weights/tuner.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/tuning.h"
#include "daemon/weights/tuning_file.h"
#include "ipc/base/error.h"
#include "ipc/base/log.h"
#include "ipc/base/num.h"

#define BUDGET_USEC 8000u
#define ALIKE_MAX   64u
#define HOPELESS    4.0 /* times the best prediction */

struct tuner {
    char file_path[MSG_PATH_BYTES];
    bool is_host_too;
    bool is_changed; /* the table, since it was written */
    struct tuning_table table;
};

/* Weights that are alike: one is measured for all. */
struct alike {
    char key[TUNING_KEY_BYTES];
    const struct weight *first;
    const void *packed[ALIKE_MAX];
    uint32_t n_packed;
};

int tuner_new(const char *file_path, bool is_host_too, struct tuner **ret_tuner)
{
    struct tuner *tuner = calloc(1, sizeof(*tuner));
    if (!tuner) {
        return err_raise(-ENOMEM);
    }
    struct reason why = REASON_NULL;
    tuner->is_host_too = is_host_too;
    (void)snprintf(tuner->file_path, sizeof(tuner->file_path), "%s", file_path);
    int r = file_path[0] != '\0' ? tuning_file_read(&tuner->table, file_path, &why) : 0;
    if (r > 0) {
        log_write(LOG_LEVEL_WARNING, "tuner", "%s", why.text);
    } else if (r < 0) {
        (void)tuner_free(tuner);
        return r;
    }
    *ret_tuner = tuner;
    return 0;
}

struct tuner *tuner_free(struct tuner *tuner)
{
    if (tuner) {
        tuning_table_finish(&tuner->table);
        free(tuner);
    }
    return NULL;
}

/* ---- weights that are alike ---- */

/* What a measurement depends on: device, driver and build, format, layout, shape, types. */
static void key_of(const struct weight *weight, char ret_key[TUNING_KEY_BYTES])
{
    char device_key[DEVICE_KEY_BYTES];
    device_weight_key(weight->device, &weight->desc, weight->layout, device_key);
    (void)snprintf(ret_key, TUNING_KEY_BYTES, "%s; %s", device_key, dtype_name(weight->act_dtype));
}

static void find_alike(const struct model *model, const struct weight *weight,
                       struct alike *ret_alike)
{
    *ret_alike = (struct alike){.first = weight};
    key_of(weight, ret_alike->key);
    for (uint32_t i = 0; i < model->n_weights && ret_alike->n_packed < ALIKE_MAX; i++) {
        char key[TUNING_KEY_BYTES];
        key_of(model->weights[i], key);
        if (strcmp(key, ret_alike->key) == 0) {
            ret_alike->packed[ret_alike->n_packed++] = model->weights[i]->packed.base;
        }
    }
}

/* ---- measuring ---- */

static struct gk_problem problem_of(const struct weight *weight, uint32_t i_bucket)
{
    struct gk_problem problem = weight_problem(weight);
    problem.m = tuning_rows(i_bucket);
    problem.is_prefill = i_bucket >= TUNING_BATCH_BUCKETS;
    return problem;
}

/* 0 with *ret_usec 0 where the kernel cannot be timed: the others still can. */
static int measure(struct tuner *tuner, const struct alike *alike, const struct gk_kernel *kernel,
                   const struct gk_problem *problem, double *ret_usec)
{
    struct reason why = REASON_NULL;
    struct tuning_line line = {.m = problem->m};
    struct device_trial trial = {.kernel = kernel,
                                 .problem = *problem,
                                 .packed = alike->packed,
                                 .n_packed = alike->n_packed,
                                 .budget_usec = BUDGET_USEC};
    *ret_usec = 0;
    int r = device_time(alike->first->device, &trial, &line.usec, &why);
    if (r != 0) {
        log_write(LOG_LEVEL_WARNING, "tuner", "%s at %u rows cannot be timed: %s", kernel->name,
                  problem->m, r < 0 ? strerror(-r) : why.text);
        return 0;
    }
    (void)snprintf(line.key, sizeof(line.key), "%s", alike->key);
    (void)snprintf(line.kernel, sizeof(line.kernel), "%s", kernel->name);
    *ret_usec = line.usec;
    tuner->is_changed = true;
    return tuning_table_put(&tuner->table, &line);
}

static double best_prediction(const struct gk_problem *problem,
                              const struct gk_kernel *const *kernels, uint32_t n_kernels,
                              uint32_t n_threads)
{
    double best = (double)INFINITY;
    for (uint32_t i = 0; i < n_kernels; i++) {
        best = fmin(best, kernels[i]->predicted_usec(problem, n_threads));
    }
    return best;
}

static int fill_bucket(struct tuner *tuner, const struct alike *alike, uint32_t i_bucket,
                       struct tuning *tuning)
{
    const struct gk_problem problem = problem_of(alike->first, i_bucket);
    uint32_t n_threads = alike->first->device->n_threads;
    const struct gk_kernel *kernels[GK_KERNELS_MAX];
    uint32_t n_kernels = gk_candidates(&problem, kernels);
    double best = best_prediction(&problem, kernels, n_kernels, n_threads);
    if (problem.m > gk_rows_max(&problem)) {
        return 0; /* prefill goes in launches as of a batch */
    }
    for (uint32_t i = 0; i < n_kernels; i++) {
        double usec = tuning_table_get(&tuner->table, alike->key, problem.m, kernels[i]->name);
        if (usec == 0 && kernels[i]->predicted_usec(&problem, n_threads) < HOPELESS * best) {
            int r = measure(tuner, alike, kernels[i], &problem, &usec);
            if (r != 0) {
                return r;
            }
        }
        if (usec > 0) {
            tuning_add(tuning, i_bucket, kernels[i], usec);
        }
    }
    return 0;
}

static int tune_alike(struct tuner *tuner, const struct alike *alike, struct progress *progress,
                      struct tuning **ret_tuning, struct reason *why)
{
    struct tuning *tuning;
    int r = tuning_new(alike->first->act_dtype, &tuning);
    for (uint32_t i = 0; r == 0 && i < TUNING_BUCKETS; i++) {
        r = progress_check(progress, why);
        r = r != 0 ? r : fill_bucket(tuner, alike, i, tuning);
    }
    if (r != 0) {
        tuning_unref(tuning);
        return r;
    }
    *ret_tuning = tuning;
    return 0;
}

/* ---- a model ---- */

static void log_choice(const struct weight *first, uint32_t n_alike, const struct tuning *tuning)
{
    char text[256] = "";
    for (uint32_t i = 0; i < TUNING_BUCKETS; i++) {
        const struct gk_kernel *chosen = tuning->buckets[i].chosen;
        const struct gk_kernel *next =
            i + 1 < TUNING_BUCKETS ? tuning->buckets[i + 1].chosen : NULL;
        size_t used = strlen(text);
        if (chosen && chosen != next) {
            (void)snprintf(text + used, sizeof(text) - used, "%s%s to %u rows (%.1f us)",
                           used == 0 ? "" : ", ", chosen->name, tuning_rows(i),
                           tuning_usec(tuning, chosen, tuning_rows(i)));
        }
    }
    char others[32] = "";
    if (n_alike > 1) {
        (void)snprintf(others, sizeof(others), " and %u like it", n_alike - 1);
    }
    log_write(LOG_LEVEL_INFO, "tuner", "'%s'%s (%u x %u): %s", first->name, others, first->desc.n,
              first->desc.k, text);
}

/* All weights that are alike; whoever has a tuning already keeps it. */
static void hand_out(const struct model *model, const struct alike *alike, struct tuning *tuning)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->n_weights; i++) {
        struct weight *weight = model->weights[i];
        char key[TUNING_KEY_BYTES];
        key_of(weight, key);
        if (strcmp(key, alike->key) == 0 && !atomic_load(&weight->tuning)) {
            atomic_store(&weight->tuning, tuning_ref(tuning));
            n++;
        }
    }
    log_choice(alike->first, n, tuning);
}

static void keep(struct tuner *tuner)
{
    struct reason why = REASON_NULL;
    if (!tuner->is_changed || tuner->file_path[0] == '\0') {
        return;
    }
    tuner->is_changed = false;
    int r = tuning_file_write(&tuner->table, tuner->file_path, &why);
    if (r != 0) {
        log_write(LOG_LEVEL_WARNING, "tuner", "%s", r < 0 ? strerror(-r) : why.text);
    }
}

int tuner_run(struct tuner *tuner, const struct model *model, struct progress *progress,
              struct reason *why)
{
    int r = 0;
    if (model->device->ops->kind == GK_DEVICE_HOST && !tuner->is_host_too) {
        return 0;
    }
    for (uint32_t i = 0; r == 0 && i < model->n_weights; i++) {
        struct alike alike;
        struct tuning *tuning;
        if (atomic_load(&model->weights[i]->tuning)) {
            continue;
        }
        find_alike(model, model->weights[i], &alike);
        r = tune_alike(tuner, &alike, progress, &tuning, why);
        if (r == 0) {
            hand_out(model, &alike, tuning);
            tuning_unref(tuning);
        }
    }
    keep(tuner);
    return r;
}
