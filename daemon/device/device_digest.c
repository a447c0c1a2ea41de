/* device_digest.c - digests of regions that the CPU reads: as many threads as the device has, each
 * taking the next few MiB of whatever region is next. Threads of its own, since those of the device
 * belong to the worker. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "daemon/device/device.h"
#include "ipc/base/num.h"

#define UNIT_BYTES  (4u << 20)
#define THREADS_MAX 256u

struct digest_job {
    const struct region *const *regions;
    uint32_t n;
    _Atomic uint64_t i_unit; /* the next, counted over all regions */
    pthread_mutex_t lock;
    struct gk_digest *digests; /* guarded by lock */
};

static void digest_unit(struct digest_job *job, uint32_t i_region, uint64_t i_unit)
{
    const struct region *region = job->regions[i_region];
    uint64_t begin = i_unit * UNIT_BYTES;
    uint64_t n_bytes = num_min(region->size_bytes - begin, UNIT_BYTES);
    struct gk_digest part = {0, 0};
    gk_digest_add(&part, (const uint8_t *)region->base + begin, begin / sizeof(uint64_t),
                  n_bytes / sizeof(uint64_t));
    (void)pthread_mutex_lock(&job->lock);
    gk_digest_join(&job->digests[i_region], &part);
    (void)pthread_mutex_unlock(&job->lock);
}

/* A thread's units only count up, so it walks along the regions once. */
static void *digest_units(void *arg)
{
    struct digest_job *job = arg;
    uint64_t first = 0; /* the number of the first unit of i_region */
    uint64_t i = atomic_fetch_add(&job->i_unit, 1);
    for (uint32_t i_region = 0; i_region < job->n;) {
        uint64_t n_units = num_div_up(job->regions[i_region]->size_bytes, UNIT_BYTES);
        if (i >= first + n_units) {
            first += n_units;
            i_region++;
            continue;
        }
        digest_unit(job, i_region, i - first);
        i = atomic_fetch_add(&job->i_unit, 1);
    }
    return NULL;
}

/* A thread that cannot be had is one helper less. */
static void digest_on_threads(struct digest_job *job, uint32_t n_threads)
{
    pthread_t helpers[THREADS_MAX];
    uint32_t n_helpers = 0;
    while (n_helpers + 1 < n_threads &&
           pthread_create(&helpers[n_helpers], NULL, digest_units, job) == 0) {
        n_helpers++;
    }
    (void)digest_units(job);
    for (uint32_t i = 0; i < n_helpers; i++) {
        (void)pthread_join(helpers[i], NULL);
    }
}

int device_digest(struct device *device, const struct region *const *regions, uint32_t n,
                  struct gk_digest *ret_digests, struct reason *why)
{
    if (device->ops->digest != NULL) {
        return device->ops->digest(device, regions, n, ret_digests, why);
    }
    struct digest_job job = {
        .regions = regions, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER, .digests = ret_digests};
    memset(ret_digests, 0, n * sizeof(*ret_digests));
    digest_on_threads(&job, (uint32_t)num_min(device->n_threads, THREADS_MAX));
    return 0;
}
