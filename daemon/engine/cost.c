/* cost.c - see cost.h. A mean of about the last eight launches follows a GPU whose clock changes; a
 * launch that took many times the mean, because something outside held it up, counts as four times
 * the mean. */
#include "daemon/engine/cost.h"

#define WEIGHT_OF_NEW 0.125f
#define OUTLIER       4.0f

static uint32_t bucket_of(uint32_t n_rows)
{
    uint32_t bucket = 0;
    while (bucket < COST_BUCKETS - 1 && (1u << bucket) < n_rows) {
        bucket++;
    }
    return bucket;
}

void cost_learn(struct cost *cost, uint32_t n_rows, uint64_t run_nsec)
{
    float *mean = &cost->nsec[bucket_of(n_rows)];
    float sample = (float)(run_nsec > 0 ? run_nsec : 1);
    if (*mean == 0) {
        *mean = sample;
        return;
    }
    sample = sample < OUTLIER * *mean ? sample : OUTLIER * *mean;
    *mean += WEIGHT_OF_NEW * (sample - *mean);
}

uint64_t cost_nsec(const struct cost *cost, uint32_t n_rows)
{
    uint32_t wanted = bucket_of(n_rows);
    for (uint32_t i = wanted + 1; i-- > 0;) {
        if (cost->nsec[i] > 0) {
            return (uint64_t)cost->nsec[i];
        }
    }
    for (uint32_t i = wanted + 1; i < COST_BUCKETS; i++) {
        if (cost->nsec[i] > 0) {
            return (uint64_t)cost->nsec[i];
        }
    }
    return 0;
}
