/* fake_device.h - a device for tests of the store and the loader: counts its regions, can run out
 * of memory when it is told to, and can make a loader wait at a gate. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device.h"

struct fake_device {
    struct device base;
    _Atomic int64_t n_regions;       /* alive */
    _Atomic int64_t n_regions_left;  /* region_new() fails when this many more have been made */
    _Atomic uint64_t reserved_bytes; /* the largest reserve() */
    _Atomic uint32_t n_timed;        /* kernels, by device_time(), which says 10 us of each or: */
    double (*usec_of)(const struct device_trial *trial); /* NULL: 10 */
    _Atomic bool is_untimeable; /* device_time() is refused for want of space */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_gate_closed; /* guarded by mutex, as is the next */
    uint32_t n_waiting;
};

/* fake_device_init() - open gate, endless memory. _finish() - every region must be gone. */
void fake_device_init(struct fake_device *fake);
void fake_device_finish(struct fake_device *fake);

/* A closed gate keeps region_new() from returning. await_waiter() returns once somebody is there.
 */
void fake_device_set_gate(struct fake_device *fake, bool is_closed);
void fake_device_await_waiter(struct fake_device *fake);
