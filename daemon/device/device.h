/* device.h - the seam between the daemon and the thing that computes. Host now; CUDA is a second
 * file with the same table. A device is used by one worker thread, except where a line says "any
 * thread". */
#pragma once

#include <stdint.h>

#include "gk/gk.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"
#include "ipc/shm.h"

struct device;

/* One launch of one batch. Memory belongs to the worker and stays put until the launch is done. */
struct device_launch {
    const struct gk_kernel *kernel;
    struct gk_launch gk; /* workspace is filled in by the device */
    uint64_t start_nsec; /* set by launch(), CLOCK_MONOTONIC */
    uint64_t end_nsec;   /* set when done */
    int result;          /* set when done: 0, or STATUS_DEVICE_ERROR / STATUS_DEVICE_LOST */
};

struct device_ops {
    enum gk_device_kind kind;
    void (*close)(struct device *device);

    /* Memory for packed weights and client buffers: fd-backed, CPU-reachable on host. Any thread.
     * 0, or STATUS_NO_SPACE, or negative errno. */
    int (*region_new)(struct device *device, const char *name, uint64_t size_bytes,
                      struct region *ret_region, struct reason *why);
    int (*region_import)(struct device *device, int fd, uint64_t size_bytes,
                         struct region *ret_region, struct reason *why);
    void (*region_free)(struct device *device, struct region *region);

    /* Make sure that launches needing that much scratch will find it. Any thread, off the submit
     * path. */
    int (*reserve)(struct device *device, uint64_t workspace_bytes, struct reason *why);

    /* Start a launch. The host device runs it to its end before it returns; a GPU returns at once.
     * -EAGAIN when launches_max are in flight. */
    int (*launch)(struct device *device, struct device_launch *launch);
    /* The next finished launch, in launch order, or NULL. */
    struct device_launch *(*poll)(struct device *device);
};

struct device {
    const struct device_ops *ops;
    uint32_t index;
    char name[64];         /* "host", later "cuda:0" */
    char description[128]; /* "AMD EPYC, 2 threads" */
    uint32_t n_threads;
    uint32_t cuda_arch; /* gk_problem.cuda_arch */
    uint32_t launches_max;
    double read_gbps; /* 1e9 bytes a second that its memory can be read with; 0: not known */
};

/* device_open() - spec: "host" or "auto" (host, as long as no GPU back end is built in). n_threads
 * 0: one per CPU this process may run on. Measures read_gbps, which takes about 0.1 s. 0, negative
 * errno, or STATUS_UNSUPPORTED / NOT_FOUND. */
int device_open(const char *spec, uint32_t index, uint32_t n_threads, struct device **ret_device,
                struct reason *why) GD_MUST_CHECK;
struct device *device_close(struct device *device); /* NULL in, NULL out */

/* device_host.c: the host back end. STATUS_INVALID_ARGUMENT: GEMMD_FAULT makes no sense.
 * device_host_measure() - fill in read_gbps. Before the first launch. */
int device_host_open(uint32_t index, uint32_t n_threads, struct device **ret_device,
                     struct reason *why) GD_MUST_CHECK;
void device_host_measure(struct device *device);

/* device_host_inject() - for tests: the n-th launch from now on (1: the next) is not run and ends
 * with that status, STATUS_DEVICE_ERROR or STATUS_DEVICE_LOST; the latter stays, as it does with a
 * real device. GEMMD_FAULT=error:N or lost:N in the environment does the same from the start of the
 * daemon. Any thread. 0 or -EINVAL. */
int device_host_inject(struct device *device, int status, uint32_t n_launches) GD_MUST_CHECK;
