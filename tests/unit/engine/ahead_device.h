/* ahead_device.h - a host device made to look like a GPU that takes launches ahead of their rows:
 * launches take a while, at most two run, and armed ones wait in line, or begin by themselves when
 * all that they expect is there. It ends the program where the contract of device.h is broken.
 * Products are the host's, signals are words in CPU memory.
 *
 * The clients' streams are a part of it: each signal is told to them at once, on the worker's
 * thread, so that nothing depends on when other threads get a CPU. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device.h"

#define AHEAD_RUN_USEC 60u

struct ahead_device {
    struct device_ops ops; /* of the device, in place of its own */
    uint32_t lose_every;   /* of so many fires one comes too late; 0: none does */
    bool is_lost;          /* from now on everything ends so */
    bool is_deaf;          /* what is armed is given up at once */
    void (*on_signal)(const uint32_t *word);
    void (*on_poll)(bool is_free); /* NULL: none; nothing is in flight any more */
    _Atomic uint32_t n_armed, n_fired, n_lost;
    _Atomic uint32_t n_begun; /* by itself, before fire() */
};

/* ahead_device_init() - make that device one, before it has a worker. One at a time. */
void ahead_device_init(struct ahead_device *ahead, struct device *device);

/* ahead_device_waits() - has it an armed launch now? On the worker's thread. */
bool ahead_device_waits(void);
