/* tuning.c - see tuning.h. */
#include "daemon/weights/tuning.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "ipc/base/error.h"

#define NOISE 0.97 /* two measurements of one kernel differ by 1 or 2 % */

int tuning_new(enum dtype dtype, struct tuning **ret_tuning)
{
    struct tuning *tuning = calloc(1, sizeof(*tuning));
    if (!tuning) {
        return err_raise(-ENOMEM);
    }
    atomic_init(&tuning->n_refs, 1);
    tuning->dtype = dtype;
    *ret_tuning = tuning;
    return 0;
}

struct tuning *tuning_ref(struct tuning *tuning)
{
    atomic_fetch_add_explicit(&tuning->n_refs, 1, memory_order_relaxed);
    return tuning;
}

struct tuning *tuning_unref(struct tuning *tuning)
{
    if (tuning && atomic_fetch_sub_explicit(&tuning->n_refs, 1, memory_order_acq_rel) == 1) {
        free(tuning);
    }
    return NULL;
}

uint32_t tuning_rows(uint32_t i_bucket)
{
    static const uint32_t rows[TUNING_BUCKETS] = {1, 2, 4, 8, 16, 32, 64, 128, 512, 1024};
    return rows[i_bucket];
}

uint32_t tuning_bucket_of(uint32_t m, bool is_large)
{
    uint32_t i_bucket = is_large ? TUNING_BATCH_BUCKETS : 0;
    uint32_t i_last = (is_large ? TUNING_BUCKETS : TUNING_BATCH_BUCKETS) - 1;
    while (i_bucket < i_last && tuning_rows(i_bucket) < m) {
        i_bucket++;
    }
    return i_bucket;
}

static double usec_in(const struct tuning_bucket *bucket, const struct gk_kernel *kernel)
{
    for (uint32_t i = 0; i < bucket->n_times; i++) {
        if (bucket->times[i].kernel == kernel) {
            return bucket->times[i].usec;
        }
    }
    return 0;
}

void tuning_add(struct tuning *tuning, uint32_t i_bucket, const struct gk_kernel *kernel,
                double usec)
{
    struct tuning_bucket *bucket = &tuning->buckets[i_bucket];
    GD_ASSERT(i_bucket < TUNING_BUCKETS && bucket->n_times < GK_KERNELS_MAX);
    if (!bucket->chosen || usec < NOISE * usec_in(bucket, bucket->chosen)) {
        bucket->chosen = kernel;
    }
    bucket->times[bucket->n_times++] = (struct tuning_time){kernel, usec};
}

const struct gk_kernel *tuning_choice(const struct tuning *tuning, const struct gk_problem *problem)
{
    if (!tuning || problem->x_dtype != tuning->dtype || problem->y_dtype != tuning->dtype) {
        return NULL;
    }
    bool is_large = gk_rows_max(problem) > GK_BATCH_ROWS_MAX;
    const struct gk_kernel *chosen = tuning->buckets[tuning_bucket_of(problem->m, is_large)].chosen;
    return chosen && chosen->can_implement(problem, NULL) == 0 ? chosen : NULL;
}

double tuning_usec(const struct tuning *tuning, const struct gk_kernel *kernel, uint32_t m)
{
    uint32_t i_bucket = tuning_bucket_of(m, m > GK_BATCH_ROWS_MAX);
    return tuning && tuning_rows(i_bucket) == m ? usec_in(&tuning->buckets[i_bucket], kernel) : 0;
}
