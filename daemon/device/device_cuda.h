/* device_cuda.h - what the files of the CUDA back end share.
 *
 * Floors, lowest first: device_cuda_driver.c (entry points, errors), device_cuda_memory.c (regions,
 * views, scratch), device_cuda_imports.c (peers' memory), device_cuda_digest.c, device_cuda_pack.c,
 * device_cuda_plan.c, device_cuda_launch.c, device_cuda_ahead.c, device_cuda_trial.c,
 * device_cuda.c.
 *
 * The runtime is linked statically; the driver is never linked: what only it offers (VMM, stream
 * memory operations, UUIDs) comes from cudaGetDriverEntryPointByVersion(), so that the daemon
 * starts without one. Every function makes its device current first: threads of the daemon share
 * them. */
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device.h"
#include "gk/cuda.h"
#include "ipc/base/list.h"
#include "ipc/base/num.h"

#define CUDA_ARCH_WITH_OVERLAP 90u /* programmatic dependent launch */

#define CUDA_LAUNCHES_MAX 2u
#define CUDA_FLIGHTS_MAX  4u /* with armed ones */

/* X(type of the driver function, its name) */
#define CUDA_DRIVER_LIST(X)                                                                        \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceGetUuid)                                                                             \
    X(cuGetErrorString)                                                                            \
    X(cuMemAddressFree)                                                                            \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemCreate)                                                                                 \
    X(cuMemExportToShareableHandle)                                                                \
    X(cuMemGetAddressRange)                                                                        \
    X(cuMemGetAllocationGranularity)                                                               \
    X(cuMemGetAllocationPropertiesFromHandle)                                                      \
    X(cuMemImportFromShareableHandle)                                                              \
    X(cuMemMap)                                                                                    \
    X(cuMemRelease)                                                                                \
    X(cuMemSetAccess)                                                                              \
    X(cuMemUnmap)

struct cuda_driver {
#define CUDA_DRIVER_X(name) __typeof__(&name) name;
    CUDA_DRIVER_LIST(CUDA_DRIVER_X)
#undef CUDA_DRIVER_X
};

/* How a region came to be, and so how it goes. */
enum cuda_mapping_kind {
    CUDA_MAPPING_VMM,  /* made here, or imported by fd */
    CUDA_MAPPING_HOST, /* a peer's memfd, page-locked and mapped */
    CUDA_MAPPING_IPC,  /* a part of an allocation in the table of opened ones */
};

struct cuda_allocation; /* device_cuda_imports.c */

struct cuda_mapping {
    enum cuda_mapping_kind kind;
    CUdeviceptr address; /* VMM */
    struct region memfd; /* HOST */
    struct device_place place;
    struct cuda_allocation *allocation; /* IPC; a reference */
};

struct cuda_flight {
    struct device_launch *launch;
    uint32_t ticket; /* what the flag shows when it is done */
    int result;      /* -EAGAIN while nothing is known */

    /* Of an armed one: */
    uint32_t n_rows_max; /* 0: it is none */
    bool is_waiting;     /* not fired: so not one of CUDA_LAUNCHES_MAX */
    int fault;           /* that a test wants it to end with */
};

/* What an armed launch is told through, page-locked; flight i uses the i-th of each. */
struct cuda_ahead {
    _Atomic uint64_t rows[CUDA_FLIGHTS_MAX][GK_CUDA_AHEAD_ROWS_MAX][4]; /* gk_cuda_ahead_row */
    _Atomic uint32_t canceled[CUDA_FLIGHTS_MAX];
};

struct device_cuda {
    struct device base;
    int ordinal;
    const struct cuda_driver *driver;
    _Atomic bool is_lost;

    /* Memory; any thread. */
    cudaStream_t copy_stream; /* clears, views, launches apart: everything that is waited for */
    pthread_mutex_t view_mutex;
    void *staging; /* page-locked, guarded by view_mutex */
    uint64_t staging_bytes;
    pthread_mutex_t scratch_mutex;
    CUdeviceptr scratch; /* reserved addresses; grows in place, so launches in flight keep theirs */
    _Atomic uint64_t scratch_bytes;
    pthread_mutex_t packers_mutex;
    struct packer *idle_packers; /* guarded by packers_mutex: page-locking takes long */
    pthread_mutex_t imports_mutex;
    struct list allocations; /* opened ones of other processes; guarded by imports_mutex */

    /* Launches; the worker's. */
    cudaStream_t stream;
    _Atomic uint32_t *flag; /* page-locked: the ticket of the last launch that is done */
    CUdeviceptr flag_address;
    void *flag_memory; /* where both of them are */
    uint32_t last_ticket;
    struct cuda_flight flights[CUDA_FLIGHTS_MAX]; /* in order from i_first */
    uint32_t i_first;
    uint32_t n_flights;
    bool has_waiting;             /* one of them */
    struct cuda_ahead *ahead;     /* NULL: no launch can be armed */
    CUdeviceptr ahead_address;    /* of the same, for the device */
    struct gk_ahead *ahead_taken; /* (CUDA_FLIGHTS_MAX), on the device: what gates took over */
    uint32_t n_polls;             /* since the device was last asked for an error */
    uint64_t last_end_nsec;
};

/* cuda_of() - the back end's own struct. */
static inline struct device_cuda *cuda_of(struct device *device)
{
    return (struct device_cuda *)device;
}

/* ---- device_cuda_driver.c ---- */

/* cuda_driver_find() - the driver's entry points, looked up once; NULL, with a reason, where the
 * driver is missing or too old for one of them. */
const struct cuda_driver *cuda_driver_find(struct reason *why);

/* cuda_enter() - make the device current on this thread. 0 or a status. */
int cuda_enter(struct device_cuda *cuda, struct reason *why) GD_MUST_CHECK;

/* cuda_fail() - a runtime error as a status with its sentence, "<what>: <the runtime's text>":
 * NO_SPACE, DEVICE_ERROR where only that call failed, DEVICE_LOST (kept in is_lost) where the
 * device will never answer again. cuda_fail_driver() - the same for a driver error. */
int cuda_fail(struct device_cuda *cuda, cudaError_t error, const char *what, struct reason *why);
int cuda_fail_driver(struct device_cuda *cuda, CUresult error, const char *what,
                     struct reason *why);

/* ---- device_cuda_memory.c ---- */

/* cuda_region_new(), cuda_region_place(), cuda_view_begin(), cuda_view_end(), cuda_reserve() - see
 * device.h. */
int cuda_region_new(struct device *device, const char *name, uint64_t size_bytes,
                    struct region *ret_region, struct reason *why);
void cuda_region_place(struct device *device, const struct region *region,
                       struct device_place *ret_place);
int cuda_view_begin(struct device *device, const struct region *region, enum device_access access,
                    void **ret_bytes, struct reason *why);
int cuda_view_end(struct device *device, const struct region *region, enum device_access access,
                  struct reason *why);
int cuda_reserve(struct device *device, uint64_t workspace_bytes, uint64_t x_row_bytes,
                 struct reason *why);

/* cuda_staged_stride() - bytes between rows of x that are brought over; they lie behind the
 * workspace, at cuda_staged_offset(). */
static inline uint64_t cuda_staged_stride(uint64_t x_row_bytes)
{
    return num_align_up(x_row_bytes, 16);
}

static inline uint64_t cuda_staged_offset(uint64_t workspace_bytes)
{
    return num_align_up(workspace_bytes, 256);
}

/* cuda_memory_init() - streams, granularity, addresses of the scratch. cuda_memory_finish() - safe
 * on what init left half done. */
int cuda_memory_init(struct device_cuda *cuda, struct reason *why) GD_MUST_CHECK;
void cuda_memory_finish(struct device_cuda *cuda);

/* cuda_map_handle() - map a VMM handle (taken over) of whole size_bytes for reading and writing: a
 * region without fd. cuda_unmap() - undo that. */
int cuda_map_handle(struct device_cuda *cuda, CUmemGenericAllocationHandle handle,
                    uint64_t size_bytes, struct region *ret_region,
                    struct reason *why) GD_MUST_CHECK;
void cuda_unmap(struct device_cuda *cuda, CUdeviceptr address, uint64_t size_bytes);

/* ---- device_cuda_imports.c ---- */

/* cuda_region_import(), cuda_region_import_ipc() - see device.h. */
int cuda_region_import(struct device *device, int fd, uint64_t size_bytes,
                       struct region *ret_region, struct reason *why);
int cuda_region_import_ipc(struct device *device, const struct device_ipc *ipc,
                           struct region *ret_region, struct reason *why);

/* cuda_region_free() - of every kind. */
void cuda_region_free(struct device *device, struct region *region);

/* ---- device_cuda_pack.c ---- */

extern const struct packer_ops cuda_packing;

/* cuda_packers_finish() - frees those that are kept; all are given back by then. */
void cuda_packers_finish(struct device_cuda *cuda);

/* ---- device_cuda_digest.c ---- */

/* cuda_digest() - see device.h. */
int cuda_digest(struct device *device, const struct region *const *regions, uint32_t n,
                struct gk_digest *ret_digests, struct reason *why);

/* ---- device_cuda_plan.c ---- */

/* cuda_plan() - see device.h. */
int cuda_plan(struct device *device, const struct gk_problem *problem, const void *packed,
              struct reason *why);

/* ---- device_cuda_launch.c ---- */

/* cuda_launch(), cuda_poll(), cuda_run_alone() - see device.h. */
int cuda_launch(struct device *device, struct device_launch *launch);
struct device_launch *cuda_poll(struct device *device);
int cuda_run_alone(struct device *device, const struct gk_kernel *kernel, struct gk_launch *launch,
                   struct reason *why);

/* cuda_flight_begin() - the next flight, with its ticket; NULL: too many. cuda_next_fault() - what
 * a test wants the launch that is about to start to end with, or that the device is lost; 0:
 * neither. cuda_enqueue_kernel() - append the product alone to the stream; ahead: see gk_launch, or
 * NULL. 0 or a status, as a launch ends with. */
struct cuda_flight *cuda_flight_begin(struct device_cuda *cuda, struct device_launch *launch);
int cuda_next_fault(struct device_cuda *cuda);
int cuda_enqueue_kernel(struct device_cuda *cuda, const struct device_launch *launch,
                        const struct gk_ahead *ahead);

/* cuda_launch_init() - the flag, and every kernel's code. cuda_launch_finish() - waits for what is
 * in flight; safe on what init left half done. */
int cuda_launch_init(struct device_cuda *cuda, struct reason *why) GD_MUST_CHECK;
void cuda_launch_finish(struct device_cuda *cuda);

/* ---- device_cuda_ahead.c ---- */

/* cuda_arm(), cuda_fire(), cuda_disarm() - see device.h. */
int cuda_arm(struct device *device, struct device_launch *launch, uint32_t limit_usec);
void cuda_fire(struct device *device, struct device_launch *launch);
void cuda_disarm(struct device *device, struct device_launch *launch);

/* cuda_ahead_init() - on devices that can. cuda_ahead_finish() - nothing is in flight; safe on what
 * init left half done. */
int cuda_ahead_init(struct device_cuda *cuda, struct reason *why) GD_MUST_CHECK;
void cuda_ahead_finish(struct device_cuda *cuda);

/* ---- device_cuda_trial.c ---- */

/* cuda_time() - see device_time(). cuda_measure() - fill in read_gbps; 0 stays where there is no
 * room for the measurement. */
int cuda_time(struct device *device, const struct device_trial *trial, double *ret_usec,
              struct reason *why);
void cuda_measure(struct device_cuda *cuda);
