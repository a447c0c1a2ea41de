/* device_host.c - the host CPU as a device: sealed memfds for memory, a pool of threads for
 * launches.
 *
 * A launch runs to its end inside launch(); poll() then gives it back. Scratch memory grows in two
 * steps, so that a loader thread can ask for more while the worker computes: reserve() leaves a
 * larger block in `scratch_next`, and the next launch takes it and frees the old one. */
#include "daemon/device/device.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#include "daemon/device/host_roof.h"
#include "daemon/device/host_run.h"
#include "daemon/device/thread_pool.h"

struct scratch {
    uint64_t size_bytes;
    void *memory; /* 64-byte aligned; lies behind this header */
};

struct device_host {
    struct device base;
    struct thread_pool *pool;
    struct device_launch *finished; /* the one launch that poll() has not given back yet */

    struct scratch *scratch; /* the worker's */
    _Atomic(struct scratch *) scratch_next;
    pthread_mutex_t reserve_mutex;
    uint64_t reserved_bytes; /* guarded by reserve_mutex */

    bool is_lost;
};

static struct device_host *host_of(struct device *device)
{
    return (struct device_host *)device;
}

/* ---- memory ---- */

static int host_region_new(struct device *device, const char *name, uint64_t size_bytes,
                           struct region *ret_region, struct reason *why)
{
    int r = region_create(ret_region, name, size_bytes);
    if (r == -ENOSPC || r == -ENOMEM || r == -EDQUOT) {
        return reason_set(why, STATUS_NO_SPACE, "%s has %llu bytes left, not %llu for %s: %s",
                          device->name, (unsigned long long)region_available_bytes(),
                          (unsigned long long)size_bytes, name, strerror(-r));
    }
    return r;
}

static int host_region_import(struct device *device, int fd, uint64_t size_bytes,
                              struct region *ret_region, struct reason *why)
{
    (void)device;
    return region_import(ret_region, fd, size_bytes, why);
}

static int host_region_import_ipc(struct device *device, const struct device_ipc *ipc,
                                  struct region *ret_region, struct reason *why)
{
    (void)ipc;
    (void)ret_region;
    return reason_set(why, STATUS_UNSUPPORTED, "device %s cannot reach CUDA memory", device->name);
}

static void host_region_free(struct device *device, struct region *region)
{
    (void)device;
    region_finish(region);
}

static struct scratch *scratch_new(uint64_t size_bytes)
{
    uint64_t total_bytes;
    if (!num_add(size_bytes, 64u + 63u, &total_bytes)) {
        return NULL;
    }
    total_bytes &= ~(uint64_t)63u;
    struct scratch *scratch = aligned_alloc(64, total_bytes);
    if (scratch != NULL) {
        scratch->size_bytes = total_bytes - 64u;
        scratch->memory = (uint8_t *)scratch + 64;
    }
    return scratch;
}

/* Rows are read where they are. */
static int host_reserve(struct device *device, uint64_t workspace_bytes, uint64_t x_row_bytes,
                        struct reason *why)
{
    (void)x_row_bytes;
    struct device_host *host = host_of(device);
    int r = 0;
    (void)pthread_mutex_lock(&host->reserve_mutex);
    if (workspace_bytes > host->reserved_bytes) {
        struct scratch *scratch = scratch_new(workspace_bytes);
        if (scratch == NULL) {
            r = reason_set(why, STATUS_NO_SPACE, "%s has no %llu bytes left for scratch memory",
                           device->name, (unsigned long long)workspace_bytes);
        } else {
            host->reserved_bytes = workspace_bytes;
            free(atomic_exchange(&host->scratch_next, scratch));
        }
    }
    (void)pthread_mutex_unlock(&host->reserve_mutex);
    return r;
}

/* The scratch block for a launch that needs that much; NULL when nobody reserved it. */
static void *host_scratch(struct device_host *host, uint64_t workspace_bytes)
{
    if (atomic_load_explicit(&host->scratch_next, memory_order_relaxed) != NULL) {
        free(host->scratch);
        host->scratch = atomic_exchange(&host->scratch_next, NULL);
    }
    if (host->scratch == NULL || host->scratch->size_bytes < workspace_bytes) {
        return NULL;
    }
    return host->scratch->memory;
}

/* ---- launches ---- */

static int host_compute(struct device_host *host, struct device_launch *launch)
{
    int fault = fault_next(&host->base.fault);
    host->is_lost |= fault == STATUS_DEVICE_LOST;
    if (fault != 0 || host->is_lost) {
        return host->is_lost ? STATUS_DEVICE_LOST : fault;
    }
    uint64_t workspace_bytes = launch->kernel->workspace_bytes(&launch->gk.problem);
    launch->gk.workspace = workspace_bytes == 0 ? NULL : host_scratch(host, workspace_bytes);
    if (workspace_bytes != 0 && launch->gk.workspace == NULL) {
        return STATUS_DEVICE_ERROR;
    }
    host_run_launch(host->pool, host->base.n_threads, launch->kernel, &launch->gk);
    return 0;
}

static int host_launch(struct device *device, struct device_launch *launch)
{
    struct device_host *host = host_of(device);
    if (host->finished != NULL) {
        return -EAGAIN;
    }
    launch->start_nsec = clock_now_nsec();
    launch->result = host_compute(host, launch);
    launch->end_nsec = clock_now_nsec();
    host->finished = launch;
    return 0;
}

static struct device_launch *host_poll(struct device *device)
{
    return steal_ptr(&host_of(device)->finished);
}

/* ---- opening ---- */

static void host_close(struct device *device)
{
    struct device_host *host = host_of(device);
    (void)thread_pool_free(host->pool);
    free(host->scratch);
    free(atomic_load(&host->scratch_next));
    (void)pthread_mutex_destroy(&host->reserve_mutex);
    free(host);
}

static const struct device_ops host_ops = {
    .kind = GK_DEVICE_HOST,
    .close = host_close,
    .region_new = host_region_new,
    .region_import = host_region_import,
    .region_import_ipc = host_region_import_ipc,
    .region_free = host_region_free,
    .reserve = host_reserve,
    .launch = host_launch,
    .poll = host_poll,
    .time = host_time,
};

static uint32_t usable_cpus(void)
{
    cpu_set_t cpus;
    long n = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus)
                                                            : sysconf(_SC_NPROCESSORS_ONLN);
    return (uint32_t)num_max(1, num_min(n > 0 ? (uint64_t)n : 1, THREAD_POOL_THREADS_MAX));
}

/* The processor's own name for itself, for people; "CPU" where /proc does not tell. */
static void cpu_model(char *text, size_t size_bytes)
{
    (void)snprintf(text, size_bytes, "CPU");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (file == NULL) {
        return;
    }
    char line[256];
    while (fgets(line, sizeof(line), file) != NULL) {
        char *value = strchr(line, ':');
        if (value != NULL && strncmp(line, "model name", 10) == 0) {
            value[strcspn(value, "\n")] = '\0';
            (void)snprintf(text, size_bytes, "%s", value + 1 + strspn(value + 1, " "));
            break;
        }
    }
    (void)fclose(file);
}

int device_host_open(uint32_t index, uint32_t n_threads, struct device **ret_device,
                     struct reason *why)
{
    if (n_threads > THREAD_POOL_THREADS_MAX) {
        return reason_set(why, STATUS_UNSUPPORTED, "%u threads are over the limit of %u", n_threads,
                          THREAD_POOL_THREADS_MAX);
    }
    struct device_host *host = calloc(1, sizeof(*host));
    if (host == NULL) {
        return err_raise(-ENOMEM);
    }
    host->base = (struct device){.ops = &host_ops, .index = index, .launches_max = 1};
    host->base.region_align = (uint64_t)sysconf(_SC_PAGESIZE);
    host->base.n_threads = n_threads == 0 ? usable_cpus() : n_threads;
    (void)pthread_mutex_init(&host->reserve_mutex, NULL);
    (void)snprintf(host->base.name, sizeof(host->base.name), "host");
    char model[96];
    cpu_model(model, sizeof(model));
    (void)snprintf(host->base.description, sizeof(host->base.description), "%s, %u thread%s", model,
                   host->base.n_threads, host->base.n_threads == 1 ? "" : "s");
    int r = thread_pool_new(host->base.n_threads, &host->pool);
    if (r == 0) {
        r = fault_from_environment(&host->base.fault, why);
    }
    if (r != 0) {
        host_close(&host->base);
        return r;
    }
    *ret_device = &host->base;
    return 0;
}

void device_host_measure(struct device *device)
{
    struct device_host *host = host_of(device);
    device->read_gbps = host_roof_gbps(host->pool, device->n_threads, region_available_bytes());
}
