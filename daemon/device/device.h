/* device.h - the seam between the daemon and the thing that computes: one table of operations, a
 * back end for the host CPU and one for CUDA GPUs. A device is used by one worker thread, except
 * where a line says "any thread". */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/fault.h"
#include "daemon/device/packer.h"
#include "daemon/device/plan_file.h"
#include "gk/digest.h"
#include "gk/gk.h"
#include "ipc/base/check.h"
#include "ipc/base/reason.h"
#include "ipc/shm.h"

struct device;

/* A word in the device's memory that says that a launch is done; see ipc/order.h. */
struct device_signal {
    uint64_t address;
    uint32_t value;
};

/* A row of an armed launch that should come, and its client's word that says that its x is there:
 * `ready`, in the device's memory, has that value. */
struct device_expected {
    const void *x;
    void *y;
    struct device_signal done; /* of the last row of a request; else its address is 0 */
    struct device_signal ready;
};

/* One launch of one batch. Memory belongs to the worker and stays put until the launch is done. */
struct device_launch {
    const struct gk_kernel *kernel;
    struct gk_launch gk;                 /* workspace is filled in by the device */
    const struct device_signal *signals; /* (n_signals), written by the device behind the products,
                                            before poll() tells; 0 on host */
    uint32_t n_signals;
    const struct device_expected *expected; /* (n_expected), see arm(), which copies them */
    uint32_t n_expected;
    uint64_t start_nsec; /* CLOCK_MONOTONIC, set by launch() and fire(); a GPU sets it when the
                            launch is done and counts from the end of the one before it */
    uint64_t end_nsec;   /* set when done */
    bool holds_place;    /* see arm() */
    bool has_cpu_rows;   /* some of x lies in CPU memory: a GPU brings all of x over first */
    int result;          /* set when done: 0, or STATUS_DEVICE_ERROR / STATUS_DEVICE_LOST; of an
                            armed one also -ECANCELED */
};

/* Memory of another process, named by a CUDA IPC handle of its allocation. */
#define DEVICE_IPC_HANDLE_BYTES 64u
struct device_ipc {
    uint8_t handle[DEVICE_IPC_HANDLE_BYTES];
    uint64_t allocation_id; /* the exporter's; differs when an address is allocated anew */
    uint64_t exporter_pid;
    uint64_t offset_bytes; /* of the buffer in the allocation */
    uint64_t size_bytes;
};

/* Which memory a region is: two regions of one space overlap where their bytes, counted from
 * `origin`, do. */
struct device_place {
    uint64_t space[2];
    uint64_t origin;
    bool is_cpu_memory;
};

enum device_access { DEVICE_READ, DEVICE_WRITE };

/* What is timed: one kernel at one problem, over packed weights that are taken in turn, so that
 * they come from memory and not from a cache. */
struct device_trial {
    const struct gk_kernel *kernel;
    struct gk_problem problem; /* x as floats: F32, F16, BF16 */
    const void *const *packed; /* (n_packed), of the problem's desc and layout */
    uint32_t n_packed;
    uint32_t budget_usec; /* about how long all of it may take; at least a few launches are made */
};

struct device_ops {
    enum gk_device_kind kind;
    void (*close)(struct device *device);

    /* Memory for packed weights and client buffers: fd-backed, zeroed, reachable by the device at
     * region.base. Any thread. 0, STATUS_NO_SPACE, STATUS_DEVICE_ERROR, or negative errno. */
    int (*region_new)(struct device *device, const char *name, uint64_t size_bytes,
                      struct region *ret_region, struct reason *why);
    /* Memory of a peer. region_import(): by fd, which is taken over: a sealed memfd, on a GPU also
     * the export of a VMM allocation. region_import_ipc(): CUDA only. Any thread. 0, negative
     * errno, STATUS_INVALID_ARGUMENT or STATUS_UNSUPPORTED. */
    int (*region_import)(struct device *device, int fd, uint64_t size_bytes,
                         struct region *ret_region, struct reason *why);
    int (*region_import_ipc)(struct device *device, const struct device_ipc *ipc,
                             struct region *ret_region, struct reason *why);
    void (*region_free)(struct device *device, struct region *region); /* any thread */
    /* NULL: the file that region.fd is says which memory it is. Any thread. */
    void (*region_place)(struct device *device, const struct region *region,
                         struct device_place *ret_place);

    /* A region's bytes in CPU memory, staged; NULL: region.base is CPU memory. See
     * device_view_begin(). Any thread; views of one device are taken in turn. */
    int (*view_begin)(struct device *device, const struct region *region, enum device_access access,
                      void **ret_bytes, struct reason *why);
    int (*view_end)(struct device *device, const struct region *region, enum device_access access,
                    struct reason *why);

    /* Packing on the device; NULL: it has none. */
    const struct packer_ops *packing;
    /* NULL: by the CPU, from region.base. See device_digest(). Any thread. */
    int (*digest)(struct device *device, const struct region *const *regions, uint32_t n,
                  struct gk_digest *ret_digests, struct reason *why);

    /* Make sure that launches needing that much scratch, with rows of x of at most that size, will
     * find it. Any thread, off the submit path. */
    int (*reserve)(struct device *device, uint64_t workspace_bytes, uint64_t x_row_bytes,
                   struct reason *why);

    /* Let kernels that may serve a weight find out how; see gk_kernel.plan(). NULL: none needs to.
     * Any thread, off the submit path. */
    int (*plan)(struct device *device, const struct gk_problem *problem, const void *packed,
                struct reason *why);

    /* Start a launch. The host device runs it to its end before it returns; a GPU returns at once.
     * -EAGAIN when launches_max are in flight. */
    int (*launch)(struct device *device, struct device_launch *launch);
    /* Launches that are queued before their rows are known. NULL: the device has none.
     *
     * arm(): kernel, gk.packed and gk.problem are set, its m being the most rows that there will
     * be; the launch then waits on the device, without work. fire(): its rows are known now, in
     * CPU memory none: gk.problem.m (1 to what arm() was told), the tables of x and y, no
     * x_scale_rows, and as many signals as rows at most; all of that is copied before it returns.
     * disarm(): there will be none. After arm() the one or the other is called once, or, when
     * poll() gave the launch back before, neither. Neither calls the driver.
     *
     * With `expected`, rows that are all there should be, the device begins by itself when the x of
     * all of them is there; fire(), for the same rows, and disarm() may then be too late, and the
     * result tells: after disarm() 0 where it had begun, and such a launch has run for no time. All
     * that is expected is the device's from arm() until then. More rows than the device can look
     * at, and those of clients that do not write `ready`, wait for fire() alone.
     *
     * poll() gives armed launches back in order with the others: result 0, the products are there
     * and the signals written; -ECANCELED, nothing was read, written or signalled: it was disarmed,
     * or the device gave it up, which it does by itself limit_usec after its turn has come, even
     * where fire() was called a moment too late; such a launch can be started anew.
     * What the launch takes is counted from fire() on.
     *
     * While it waits it takes next to nothing of the device, and starts when it is told its rows;
     * with holds_place it is in its place by then, which spares it a few microseconds and leaves
     * the kernels of other processes hardly any registers and shared memory meanwhile.
     *
     * Beside launches_max launches there may be one more that is armed, or was disarmed and has not
     * been given back; once fired it is one of them. So an armed launch keeps no other from being
     * started; that one comes behind it, though, and unless it is to wait too it is disarmed first.
     *
     * arm(): 0; -EAGAIN: there is such a one; -ENOTSUP: that kernel, or this device, cannot wait
     * with that problem. The device failing is for poll() to tell. */
    int (*arm)(struct device *device, struct device_launch *launch, uint32_t limit_usec);
    void (*fire)(struct device *device, struct device_launch *launch);
    void (*disarm)(struct device *device, struct device_launch *launch);

    /* The next finished launch, in launch order, or NULL. Never blocks. */
    struct device_launch *(*poll)(struct device *device);
    /* Run a launch to its end apart from the worker's; its rows are CPU memory, dense, and
     * bring no scales. NULL: as
     * host kernels are run. See device_run_alone(). Any thread. */
    int (*run_alone)(struct device *device, const struct gk_kernel *kernel,
                     struct gk_launch *launch, struct reason *why);
    /* See device_time(). */
    int (*time)(struct device *device, const struct device_trial *trial, double *ret_usec,
                struct reason *why);
};

struct device {
    const struct device_ops *ops;
    uint32_t index;
    char name[64]; /* "host", "cuda:0" */
    char uuid[64]; /* "GPU-..." as the driver prints it; "" on host */
    uint8_t uuid_bytes[16];
    char description[192]; /* "AMD EPYC, 2 threads" */
    uint32_t n_threads;
    uint32_t cuda_arch; /* gk_problem.cuda_arch */
    uint32_t n_sms;     /* gk_problem.n_sms */
    uint32_t launches_max;
    bool has_mps;          /* a GPU whose MPS server this process is a client of */
    uint64_t region_align; /* regions are whole multiples of it */
    double read_gbps;      /* 1e9 bytes a second that its memory can be read with; 0: not known */
    double launch_usec;    /* what the shortest launch of a chain takes */
    struct plan_file
        *plan_file;     /* borrowed, set before the first weight; NULL: plans are not kept */
    struct fault fault; /* for tests */
};

/* device_auto_check() - before "auto" means the host: 0, or STATUS_PERMISSION if GPUs are there and
 * hidden from this process. */
int device_auto_check(struct reason *why) GD_MUST_CHECK;

/* device_floor_usec() - what a product takes at least that has to read so many bytes: a launch, and
 * reading them once. 0: not known. Any thread. */
double device_floor_usec(const struct device *device, uint64_t n_bytes);

/* device_auto_name() - what "auto" stands for: device `i` of the machine's usable GPUs, or "host"
 * if it has none. false when there is no device i. */
bool device_auto_name(uint32_t i, char *name, uint32_t size_bytes);

/* device_is_spec() - is it written as devices are: auto, host, cuda:N or GPU-UUID? Looks for none.
 */
bool device_is_spec(const char *spec);

/* device_open() - spec: "host", "cuda:N", a GPU's UUID, or "auto" (the first of
 * device_auto_name()). n_threads, of the host device, 0: one per CPU this process may run on.
 * On host measures read_gbps, which takes about 0.1 s. 0, negative errno, or STATUS_UNSUPPORTED /
 * NOT_FOUND / INVALID_ARGUMENT (GEMMD_FAULT). */
int device_open(const char *spec, uint32_t index, uint32_t n_threads, struct device **ret_device,
                struct reason *why) GD_MUST_CHECK;
struct device *device_close(struct device *device); /* NULL in, NULL out */

/* device_is_named() - is that its name or its UUID? */
bool device_is_named(const struct device *device, const char *name);

/* device_identity() - what names it in every process: a GPU's UUID, "host". */
const char *device_identity(const struct device *device);

/* device_view_begin() - CPU memory with the region's bytes (READ), or to be filled with all of them
 * (WRITE): the region itself where the CPU reaches it. Every one that succeeds is followed by
 * device_view_end() on the same thread, which puts what was written into the region. Any thread. */
int device_view_begin(struct device *device, const struct region *region, enum device_access access,
                      void **ret_bytes, struct reason *why) GD_MUST_CHECK;
int device_view_end(struct device *device, const struct region *region, enum device_access access,
                    struct reason *why) GD_MUST_CHECK;

/* device_digest() - the digests (n) of whole regions (n), computed where they are: on a GPU by a
 * kernel, on host by as many threads as the device has. 0, negative errno, or STATUS_DEVICE_ERROR /
 * DEVICE_LOST. Any thread. */
int device_digest(struct device *device, const struct region *const *regions, uint32_t n,
                  struct gk_digest *ret_digests, struct reason *why) GD_MUST_CHECK;

/* device_run_alone() - see device_ops.run_alone; launch->workspace is filled in. 0, negative errno,
 * or a status. */
int device_run_alone(struct device *device, const struct gk_kernel *kernel,
                     struct gk_launch *launch, struct reason *why) GD_MUST_CHECK;

/* device_weight_key() - what a measurement or a plan for weights of that format and shape depends
 * on, without tabs: the device and its driver, the build, format, layout, shape. */
#define DEVICE_KEY_BYTES 448u
void device_weight_key(const struct device *device, const struct gk_desc *desc,
                       const struct gk_layout *layout, char ret_key[DEVICE_KEY_BYTES]);

/* device_plan() - before the first launch of a weight: `problem` is its at one row, and its packed
 * form is in place. What kernels are eligible may change with it. Plans are looked up in
 * device->plan_file and put there; one of no use is logged. 0 or a status of the device. */
int device_plan(struct device *device, const struct gk_problem *problem, const void *packed,
                struct reason *why) GD_MUST_CHECK;

/* device_time() - microseconds a launch, launches back to back, the median of a few rounds; x is
 * pseudo-random. Apart from the worker's launches, which share the device meanwhile and make it
 * slower. Any thread. 0, negative errno, NO_SPACE, or a status of the device. */
int device_time(struct device *device, const struct device_trial *trial, double *ret_usec,
                struct reason *why) GD_MUST_CHECK;

/* device_place_of() - which memory a region is. 0 or negative errno. Any thread. */
int device_place_of(struct device *device, const struct region *region,
                    struct device_place *ret_place) GD_MUST_CHECK;

/* device_host.c: the host back end. device_host_measure() - fill in read_gbps. Before the first
 * launch. */
int device_host_open(uint32_t index, uint32_t n_threads, struct device **ret_device,
                     struct reason *why) GD_MUST_CHECK;
void device_host_measure(struct device *device);

/* device_cuda.c, or device_cuda_none.c in a build without CUDA. device_cuda_name() - of the i-th
 * usable GPU; false when there are fewer, or no driver. device_cuda_open() - by "cuda:N" or UUID.
 * device_cuda_is_built() - is it the first of the two? */
bool device_cuda_is_built(void);
bool device_cuda_name(uint32_t i, char *name, uint32_t size_bytes);
/* device_cuda_hidden() - 0, or STATUS_PERMISSION naming the node for want of which this process
 * sees no GPU although the driver is loaded. */
int device_cuda_hidden(struct reason *why) GD_MUST_CHECK;
int device_cuda_open(const char *spec, uint32_t index, struct device **ret_device,
                     struct reason *why) GD_MUST_CHECK;
