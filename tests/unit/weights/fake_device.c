/* Regions are plain memory, without an fd: what the store and the loader do does not depend on it.
 */
#include "tests/unit/weights/fake_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/num.h"

static struct fake_device *fake_of(struct device *device)
{
    return (struct fake_device *)device;
}

static void pass_gate(struct fake_device *fake)
{
    pthread_mutex_lock(&fake->mutex);
    fake->n_waiting++;
    pthread_cond_broadcast(&fake->changed);
    while (fake->is_gate_closed) {
        pthread_cond_wait(&fake->changed, &fake->mutex);
    }
    fake->n_waiting--;
    pthread_mutex_unlock(&fake->mutex);
}

static int fake_region_new(struct device *device, const char *name, uint64_t size_bytes,
                           struct region *ret_region, struct reason *why)
{
    struct fake_device *fake = fake_of(device);
    pass_gate(fake);
    if (atomic_fetch_sub(&fake->n_regions_left, 1) <= 0) {
        return reason_set(why, STATUS_NO_SPACE, "no room for %s", name);
    }
    uint64_t rounded_bytes = num_align_up(size_bytes, 64);
    void *base = aligned_alloc(64, rounded_bytes);
    GD_ASSERT(base);
    memset(base, 0, rounded_bytes);
    atomic_fetch_add(&fake->n_regions, 1);
    *ret_region = (struct region){.fd = -1, .base = base, .size_bytes = rounded_bytes};
    return 0;
}

static void fake_region_free(struct device *device, struct region *region)
{
    free(region->base);
    *region = REGION_NULL;
    atomic_fetch_sub(&fake_of(device)->n_regions, 1);
}

static int fake_reserve(struct device *device, uint64_t workspace_bytes, uint64_t x_row_bytes,
                        struct reason *why)
{
    (void)x_row_bytes;
    (void)why;
    struct fake_device *fake = fake_of(device);
    uint64_t largest = num_max(atomic_load(&fake->reserved_bytes), workspace_bytes);
    atomic_store(&fake->reserved_bytes, largest);
    return 0;
}

static int fake_time(struct device *device, const struct device_trial *trial, double *ret_usec,
                     struct reason *why)
{
    struct fake_device *fake = fake_of(device);
    GD_ASSERT(trial->n_packed > 0 && trial->kernel->can_implement(&trial->problem, NULL) == 0);
    if (atomic_load(&fake->is_untimeable)) {
        return reason_set(why, STATUS_NO_SPACE, "no room for a trial");
    }
    atomic_fetch_add(&fake->n_timed, 1);
    *ret_usec = fake->usec_of ? fake->usec_of(trial) : 10;
    return 0;
}

void fake_device_init(struct fake_device *fake)
{
    static const struct device_ops ops = {
        .kind = GK_DEVICE_HOST,
        .region_new = fake_region_new,
        .region_free = fake_region_free,
        .reserve = fake_reserve,
        .time = fake_time,
    };
    *fake = (struct fake_device){.base = {.ops = &ops, .index = 3}};
    (void)snprintf(fake->base.name, sizeof(fake->base.name), "fake");
    atomic_init(&fake->n_regions_left, INT64_MAX);
    (void)pthread_mutex_init(&fake->mutex, NULL);
    (void)pthread_cond_init(&fake->changed, NULL);
}

void fake_device_finish(struct fake_device *fake)
{
    GD_ASSERT(atomic_load(&fake->n_regions) == 0);
    (void)pthread_cond_destroy(&fake->changed);
    (void)pthread_mutex_destroy(&fake->mutex);
}

void fake_device_set_gate(struct fake_device *fake, bool is_closed)
{
    pthread_mutex_lock(&fake->mutex);
    fake->is_gate_closed = is_closed;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->mutex);
}

void fake_device_await_waiter(struct fake_device *fake)
{
    pthread_mutex_lock(&fake->mutex);
    while (fake->n_waiting == 0) {
        pthread_cond_wait(&fake->changed, &fake->mutex);
    }
    pthread_mutex_unlock(&fake->mutex);
}
