/* host_run.c - see host_run.h. */
#include "daemon/device/host_run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "daemon/device/trial.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/noise.h"
#include "ipc/base/num.h"

/* Below this much work a part is not worth another thread's cache misses; a launch is cut into a
 * few parts per thread, so that one thread that lost its CPU does not hold up the others' halves.
 */
#define PART_USEC_MIN     10.0
#define PARTS_PER_THREAD  4u
#define PREPARE_ELEMS_MIN 65536u /* elements of x that are worth a part of prepare() */

/* ---- one launch ---- */

struct run {
    const struct gk_kernel *kernel;
    const struct gk_launch *launch;
};

static void prepare_part(void *arg, uint32_t i_part, uint32_t n_parts)
{
    const struct run *run = arg;
    run->kernel->prepare(run->launch, i_part, n_parts);
}

static void run_part(void *arg, uint32_t i_part, uint32_t n_parts)
{
    const struct run *run = arg;
    run->kernel->run(run->launch, i_part, n_parts);
}

static uint32_t parts_of_run(const struct run *run, uint32_t n_threads)
{
    double usec = run->kernel->predicted_usec(&run->launch->problem, 1);
    uint32_t n_max = n_threads == 1 ? 1 : n_threads * PARTS_PER_THREAD;
    if (!(usec >= 2 * PART_USEC_MIN)) {
        return 1;
    }
    return (uint32_t)fmin(usec / PART_USEC_MIN, (double)n_max);
}

static uint32_t parts_of_prepare(const struct run *run, uint32_t n_threads)
{
    const struct gk_problem *problem = &run->launch->problem;
    uint64_t n_elems = (uint64_t)problem->m * problem->desc.k;
    return (uint32_t)num_max(num_min(n_elems / PREPARE_ELEMS_MIN, n_threads), 1);
}

void host_run_launch(struct thread_pool *pool, uint32_t n_threads, const struct gk_kernel *kernel,
                     const struct gk_launch *launch)
{
    struct run run = {kernel, launch};
    thread_pool_run(pool, prepare_part, &run, parts_of_prepare(&run, n_threads));
    thread_pool_run(pool, run_part, &run, parts_of_run(&run, n_threads));
}

/* ---- timing ---- */

struct host_trial {
    const struct device_trial *trial;
    struct thread_pool *pool;
    uint32_t n_threads;
    struct trial_rows rows;
    struct gk_launch launch;
};

static int time_launches(void *arg, uint32_t n_launches, double *ret_usec, struct reason *why)
{
    (void)why;
    struct host_trial *host = arg;
    uint64_t start_nsec = clock_now_nsec();
    for (uint32_t i = 0; i < n_launches; i++) {
        host->launch.packed = host->trial->packed[i % host->trial->n_packed];
        host_run_launch(host->pool, host->n_threads, host->trial->kernel, &host->launch);
    }
    *ret_usec = 1e-3 * (double)(clock_now_nsec() - start_nsec);
    return 0;
}

static int time_on_pool(struct host_trial *host, double *ret_usec, struct reason *why)
{
    const struct device_trial *trial = host->trial;
    uint64_t workspace_bytes = trial->kernel->workspace_bytes(&trial->problem);
    struct trial_layout layout = trial_layout(&trial->problem, workspace_bytes);
    CLEAN_FREE uint8_t *memory = aligned_alloc(64, num_align_up(layout.total_bytes, 64));
    if (memory == NULL) {
        return err_raise(-ENOMEM);
    }
    noise_fill(memory + layout.x_offset, trial->problem.x_dtype,
               (uint64_t)trial->problem.m * trial->problem.desc.k);
    trial_launch(&layout, memory, &trial->problem, &host->rows, &host->launch);
    return trial_median(time_launches, host, trial->budget_usec, ret_usec, why);
}

int host_time(struct device *device, const struct device_trial *trial, double *ret_usec,
              struct reason *why)
{
    struct host_trial host = {.trial = trial, .n_threads = device->n_threads};
    int r = thread_pool_new(device->n_threads, &host.pool);
    if (r != 0) {
        return r;
    }
    r = time_on_pool(&host, ret_usec, why);
    (void)thread_pool_free(host.pool);
    return r;
}
