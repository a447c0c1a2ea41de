/* tuning.h - how long each kernel takes for weights of one shape and format on one device, by
 * number of rows, and which of them is chosen for that. Filled by one thread, then shared,
 * read-only and counted, by every weight that is alike. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gk/gk.h"
#include "ipc/base/check.h"

#define TUNING_BATCH_BUCKETS 7u  /* of batches: 1, 2, 4, 8, 16, 32 and 64 rows */
#define TUNING_BUCKETS       10u /* and of prefill in larger launches: 128, 512 and 1024 */

struct tuning_time {
    const struct gk_kernel *kernel;
    double usec; /* a launch, one after the other */
};

struct tuning_bucket {
    struct tuning_time times[GK_KERNELS_MAX]; /* most preferred first */
    uint32_t n_times;
    const struct gk_kernel *chosen; /* NULL: nothing was measured */
};

struct tuning {
    _Atomic uint32_t n_refs;
    enum dtype dtype; /* of x and y when it was measured */
    struct tuning_bucket buckets[TUNING_BUCKETS];
};

/* tuning_new() - n_refs 1, nothing measured. 0 or -ENOMEM. tuning_unref() - NULL in, NULL out. */
int tuning_new(enum dtype dtype, struct tuning **ret_tuning) GD_MUST_CHECK;
struct tuning *tuning_ref(struct tuning *tuning);
struct tuning *tuning_unref(struct tuning *tuning);

/* tuning_rows() - the rows that bucket i stands for, and the most that fall into it.
 * tuning_bucket_of() - the bucket of m rows, of a batch or of prefill in launches that may be
 * larger; more than the last of a kind has fall into that. */
uint32_t tuning_rows(uint32_t i_bucket);
uint32_t tuning_bucket_of(uint32_t m, bool is_large);

/* tuning_add() - a measurement; kernels of a bucket come in the order of preference. A later one is
 * chosen only where it is faster by more than the noise of two measurements. */
void tuning_add(struct tuning *tuning, uint32_t i_bucket, const struct gk_kernel *kernel,
                double usec);

/* tuning_choice() - the kernel for that problem; NULL (also for no tuning) where nothing was
 * measured for its types, or where what was chosen cannot do just this one. */
const struct gk_kernel *tuning_choice(const struct tuning *tuning,
                                      const struct gk_problem *problem);
/* tuning_usec() - what was measured for m rows, which must be those of a bucket, more than
 * GK_BATCH_ROWS_MAX being prefill; 0: nothing. */
double tuning_usec(const struct tuning *tuning, const struct gk_kernel *kernel, uint32_t m);
