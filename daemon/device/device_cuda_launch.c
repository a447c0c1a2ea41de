/* device_cuda_launch.c - launches on one stream, and how their end is seen.
 *
 * Behind each launch one warp writes its ticket into a word of page-locked memory, and the words
 * of clients whose streams wait (gk_cuda_signal_words()). Looking at the ticket costs a cache hit,
 * where cudaEventQuery() is a call into the driver; only the worker's own loop looks, so nothing
 * blocks. A launch that faults never writes its ticket: every so many looks in vain the stream is
 * asked for its error. At most two launches are in flight, so that the GPU finds the next one
 * queued when it ends one, and what arrives meanwhile still shares the one after.
 *
 * Where some rows of x are CPU memory, a small kernel first brings all of x over. Read in place, a
 * row crosses the bus once for every thread block: one row of 8 KiB against 4096 columns took 52 us
 * so on an H200, 19 brought over, 13 from its own memory. y is written in place: each element
 * crosses once anyway. */
#include "daemon/device/device_cuda.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "gk/cuda.h"
#include "ipc/base/clock.h"
#include "ipc/base/error.h"
#include "ipc/base/num.h"

#define POLLS_PER_QUERY 4096u

/* ---- starting ---- */

/* Up to as many rows as a table has, to `target`, a stride apart. */
static cudaError_t stage_table(struct device_cuda *cuda, const void *const *rows, uint32_t n_rows,
                               uint64_t row_bytes, uint8_t *target,
                               const void *ret_rows[GK_BATCH_ROWS_MAX])
{
    uint64_t stride_bytes = cuda_staged_stride(row_bytes);
    for (uint32_t i = 0; i < n_rows; i++) {
        ret_rows[i] = target + i * stride_bytes;
    }
    return (cudaError_t)gk_cuda_stage_rows(rows, n_rows, row_bytes, target, stride_bytes,
                                           cuda->stream);
}

/* The rows of prefill that are in no table, which they go through some at a time. */
static cudaError_t stage_prefill(struct device_cuda *cuda, const struct gk_launch *gk,
                                 uint64_t row_bytes, uint8_t *target)
{
    uint64_t stride_bytes = cuda_staged_stride(row_bytes);
    const void *rows[GK_BATCH_ROWS_MAX];
    const void *staged[GK_BATCH_ROWS_MAX];
    uint32_t n_rows;
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; error == cudaSuccess && i < gk->problem.m; i += n_rows) {
        n_rows = (uint32_t)num_min(gk->problem.m - i, GK_BATCH_ROWS_MAX);
        for (uint32_t j = 0; j < n_rows; j++) {
            rows[j] = (const uint8_t *)gk->prefill.x + (i + j) * gk->prefill.x_stride_bytes;
        }
        error = stage_table(cuda, rows, n_rows, row_bytes, target + i * stride_bytes, staged);
    }
    return error;
}

/* The launch's x, brought over to the scratch memory behind the workspace. gk->x_rows, with room in
 * ret_rows, and gk->prefill then tell of its copy. */
static cudaError_t stage_x(struct device_cuda *cuda, struct gk_launch *gk, uint64_t offset,
                           const void *ret_rows[GK_BATCH_ROWS_MAX])
{
    uint64_t row_bytes = (uint64_t)gk->problem.desc.k * dtype_bytes(gk->problem.x_dtype);
    uint8_t *target = (uint8_t *)(uintptr_t)cuda->scratch + offset;
    cudaError_t error =
        gk->problem.m > GK_BATCH_ROWS_MAX
            ? stage_prefill(cuda, gk, row_bytes, target)
            : stage_table(cuda, gk->x_rows, gk->problem.m, row_bytes, target, ret_rows);
    gk->x_rows = ret_rows;
    gk->prefill.x = target;
    gk->prefill.x_stride_bytes = cuda_staged_stride(row_bytes);
    return error;
}

static uint64_t scratch_needed(const struct device_launch *launch, uint64_t workspace_bytes)
{
    const struct gk_problem *problem = &launch->gk.problem;
    uint64_t row_bytes = (uint64_t)problem->desc.k * dtype_bytes(problem->x_dtype);
    uint64_t staged_bytes = launch->has_cpu_rows ? problem->m * cuda_staged_stride(row_bytes) : 0;
    return cuda_staged_offset(workspace_bytes) + staged_bytes;
}

int cuda_enqueue_kernel(struct device_cuda *cuda, const struct device_launch *launch,
                        const struct gk_ahead *ahead)
{
    const void *staged[GK_BATCH_ROWS_MAX];
    struct gk_launch gk = launch->gk;
    cudaError_t error = cudaSuccess;
    uint64_t workspace_bytes = launch->kernel->workspace_bytes(&gk.problem);
    if (scratch_needed(launch, workspace_bytes) >
        atomic_load_explicit(&cuda->scratch_bytes, memory_order_acquire)) {
        return STATUS_DEVICE_ERROR; /* nobody reserved it */
    }
    gk.workspace = (void *)(uintptr_t)cuda->scratch;
    gk.ahead = ahead;
    if (launch->has_cpu_rows) {
        error = stage_x(cuda, &gk, cuda_staged_offset(workspace_bytes), staged);
    }
    if (error == cudaSuccess) {
        error = (cudaError_t)launch->kernel->enqueue(&gk, cuda->stream);
    }
    return error == cudaSuccess ? 0 : cuda_fail(cuda, error, launch->kernel->name, NULL);
}

/* Append the launch, the clients' signals and its ticket to the stream. 0 or a status. */
static int enqueue(struct device_cuda *cuda, const struct device_launch *launch, uint32_t ticket)
{
    static_assert(GK_BATCH_ROWS_MAX < GK_CUDA_SIGNALS_MAX, "a signal a row, and the ticket");
    struct gk_cuda_signal signals[GK_CUDA_SIGNALS_MAX];
    int r = cuda_enqueue_kernel(cuda, launch, NULL);
    if (r != 0) {
        return r;
    }
    for (uint32_t i = 0; i < launch->n_signals; i++) {
        signals[i] = (struct gk_cuda_signal){launch->signals[i].address, launch->signals[i].value};
    }
    signals[launch->n_signals] = (struct gk_cuda_signal){cuda->flag_address, ticket};
    cudaError_t error = (cudaError_t)gk_cuda_signal_words(
        signals, launch->n_signals + 1, cuda->base.cuda_arch >= CUDA_ARCH_WITH_OVERLAP,
        cuda->stream);
    return error == cudaSuccess ? 0 : cuda_fail(cuda, error, "a launch's end", NULL);
}

int cuda_next_fault(struct device_cuda *cuda)
{
    int fault = fault_next(&cuda->base.fault);
    if (fault == STATUS_DEVICE_LOST) {
        atomic_store(&cuda->is_lost, true);
    }
    bool is_lost = atomic_load_explicit(&cuda->is_lost, memory_order_relaxed);
    return is_lost ? STATUS_DEVICE_LOST : fault;
}

static int start(struct device_cuda *cuda, const struct device_launch *launch, uint32_t ticket)
{
    int r = cuda_next_fault(cuda);
    r = r != 0 ? r : cuda_enter(cuda, NULL);
    r = r != 0 ? r : enqueue(cuda, launch, ticket);
    return r == STATUS_NO_SPACE ? STATUS_DEVICE_ERROR : r;
}

struct cuda_flight *cuda_flight_begin(struct device_cuda *cuda, struct device_launch *launch)
{
    if (cuda->n_flights == CUDA_FLIGHTS_MAX) {
        return NULL;
    }
    uint32_t i = (cuda->i_first + cuda->n_flights++) % CUDA_FLIGHTS_MAX;
    cuda->flights[i] =
        (struct cuda_flight){.launch = launch, .ticket = ++cuda->last_ticket, .result = -EAGAIN};
    return &cuda->flights[i];
}

int cuda_launch(struct device *device, struct device_launch *launch)
{
    struct device_cuda *cuda = cuda_of(device);
    uint32_t n_started = cuda->n_flights - cuda->has_waiting;
    struct cuda_flight *flight =
        n_started < CUDA_LAUNCHES_MAX ? cuda_flight_begin(cuda, launch) : NULL;
    if (flight == NULL) {
        return -EAGAIN; /* an answer, not a fault */
    }
    launch->start_nsec = clock_now_nsec();
    int r = start(cuda, launch, flight->ticket);
    flight->result = r == 0 ? -EAGAIN : r;
    return 0;
}

/* ---- ending ---- */

/* Tickets count up and wrap. */
static bool is_reached(const struct device_cuda *cuda, uint32_t ticket)
{
    return (int32_t)(atomic_load_explicit(cuda->flag, memory_order_acquire) - ticket) >= 0;
}

/* Ask the stream whether it still lives. */
static void query(struct device_cuda *cuda)
{
    cudaError_t error = cudaSetDevice(cuda->ordinal);
    error = error != cudaSuccess ? error : cudaStreamQuery(cuda->stream);
    if (error != cudaSuccess && error != cudaErrorNotReady) {
        (void)cuda_fail(cuda, error, "a launch", NULL);
    }
}

/* What a flight that is over came to: the table of an armed one may have been left empty. */
static int result_at_end(const struct device_cuda *cuda, const struct cuda_flight *flight)
{
    if (flight->n_rows_max == 0) {
        return 0;
    }
    uint32_t canceled =
        atomic_load_explicit(&cuda->ahead->canceled[flight - cuda->flights], memory_order_relaxed);
    bool is_canceled = canceled == flight->ticket;
    return flight->fault != 0 ? flight->fault : is_canceled ? -ECANCELED : 0;
}

/* What became of a flight; -EAGAIN: nothing yet. */
static int result_of(struct device_cuda *cuda, const struct cuda_flight *flight)
{
    if (flight->result != -EAGAIN) {
        return flight->result;
    }
    if (is_reached(cuda, flight->ticket)) {
        return result_at_end(cuda, flight);
    }
    if (++cuda->n_polls % POLLS_PER_QUERY == 0) {
        query(cuda);
    }
    bool is_lost = atomic_load_explicit(&cuda->is_lost, memory_order_relaxed);
    return is_lost ? STATUS_DEVICE_LOST : -EAGAIN;
}

struct device_launch *cuda_poll(struct device *device)
{
    struct device_cuda *cuda = cuda_of(device);
    if (cuda->n_flights == 0) {
        return NULL;
    }
    const struct cuda_flight *flight = &cuda->flights[cuda->i_first];
    int result = result_of(cuda, flight);
    if (result == -EAGAIN) {
        return NULL;
    }
    struct device_launch *launch = flight->launch;
    cuda->i_first = (cuda->i_first + 1) % CUDA_FLIGHTS_MAX;
    cuda->n_flights--;
    cuda->has_waiting = cuda->has_waiting && !flight->is_waiting;
    launch->result = result;
    launch->end_nsec = clock_now_nsec();
    launch->start_nsec = num_max(launch->start_nsec, cuda->last_end_nsec);
    if (flight->is_waiting) {
        launch->start_nsec = launch->end_nsec; /* when it began nobody saw */
    }
    if (result != -ECANCELED) {
        cuda->last_end_nsec = launch->end_nsec;
    }
    return launch;
}

/* ---- apart from the worker ---- */

/* One block of device memory: x, y and workspace of a launch whose rows are CPU memory. */
struct alone {
    uint8_t *memory;
    uint64_t x_row_bytes;
    uint64_t y_row_bytes;
    uint64_t x_offset;
    uint64_t y_offset;
    const void *x_rows[GK_BATCH_ROWS_MAX];
    void *y_rows[GK_BATCH_ROWS_MAX];
};

static cudaError_t place_rows(struct alone *alone, const struct gk_kernel *kernel,
                              const struct gk_problem *problem)
{
    alone->x_row_bytes = (uint64_t)problem->desc.k * dtype_bytes(problem->x_dtype);
    alone->y_row_bytes = (uint64_t)problem->desc.n * dtype_bytes(problem->y_dtype);
    alone->x_offset = num_align_up(kernel->workspace_bytes(problem), 256);
    alone->y_offset = num_align_up(alone->x_offset + problem->m * alone->x_row_bytes, 256);
    uint64_t total_bytes = alone->y_offset + problem->m * alone->y_row_bytes;
    cudaError_t error = cudaMalloc((void **)&alone->memory, total_bytes);
    for (uint32_t i = 0; error == cudaSuccess && i < problem->m; i++) {
        alone->x_rows[i] = alone->memory + alone->x_offset + i * alone->x_row_bytes;
        alone->y_rows[i] = alone->memory + alone->y_offset + i * alone->y_row_bytes;
    }
    return error;
}

static cudaError_t run_placed(struct device_cuda *cuda, const struct gk_kernel *kernel,
                              const struct gk_launch *launch, const struct alone *alone)
{
    struct gk_launch placed = *launch;
    placed.x_rows = alone->x_rows;
    placed.y_rows = alone->y_rows;
    placed.workspace = alone->memory;
    cudaError_t error = cudaSuccess;
    for (uint32_t i = 0; error == cudaSuccess && i < launch->problem.m; i++) {
        error = cudaMemcpyAsync(alone->memory + alone->x_offset + i * alone->x_row_bytes,
                                launch->x_rows[i], alone->x_row_bytes, cudaMemcpyHostToDevice,
                                cuda->copy_stream);
    }
    if (error == cudaSuccess) {
        error = (cudaError_t)kernel->enqueue(&placed, cuda->copy_stream);
    }
    for (uint32_t i = 0; error == cudaSuccess && i < launch->problem.m; i++) {
        error = cudaMemcpyAsync(launch->y_rows[i], alone->y_rows[i], alone->y_row_bytes,
                                cudaMemcpyDeviceToHost, cuda->copy_stream);
    }
    return error == cudaSuccess ? cudaStreamSynchronize(cuda->copy_stream) : error;
}

int cuda_run_alone(struct device *device, const struct gk_kernel *kernel, struct gk_launch *launch,
                   struct reason *why)
{
    struct device_cuda *cuda = cuda_of(device);
    int r = cuda_enter(cuda, why);
    if (r != 0) {
        return r;
    }
    struct alone alone = {.memory = NULL};
    cudaError_t error = place_rows(&alone, kernel, &launch->problem);
    if (error == cudaSuccess) {
        error = run_placed(cuda, kernel, launch, &alone);
    }
    (void)cudaFree(alone.memory);
    return error == cudaSuccess ? 0 : cuda_fail(cuda, error, kernel->name, why);
}

/* ---- setting up ---- */

static int make_flag(struct device_cuda *cuda, struct reason *why)
{
    void *address;
    cudaError_t error = cudaHostAlloc(&cuda->flag_memory, sizeof(*cuda->flag),
                                      cudaHostAllocMapped | cudaHostAllocPortable);
    if (error != cudaSuccess) {
        return cuda_fail(cuda, error, "page-locking a flag", why);
    }
    cuda->flag = cuda->flag_memory;
    atomic_init(cuda->flag, 0);
    error = cudaHostGetDevicePointer(&address, cuda->flag_memory, 0);
    cuda->flag_address = (CUdeviceptr)(uintptr_t)address;
    return error == cudaSuccess ? 0 : cuda_fail(cuda, error, "mapping a flag", why);
}

/* A kernel that this device cannot run says so by its own can_implement(); the others must load. */
static int load_kernels(struct device_cuda *cuda, struct reason *why)
{
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_CUDA, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        cudaError_t error = (cudaError_t)kernels[i]->load();
        if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
            (void)cudaGetLastError();
            continue;
        }
        if (error != cudaSuccess) {
            return cuda_fail(cuda, error, kernels[i]->name, why);
        }
    }
    return 0;
}

int cuda_launch_init(struct device_cuda *cuda, struct reason *why)
{
    cudaError_t error = cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        return cuda_fail(cuda, error, "making a stream", why);
    }
    error = (cudaError_t)gk_cuda_stage_load();
    error = error != cudaSuccess ? error : (cudaError_t)gk_cuda_signal_load();
    error = error != cudaSuccess ? error : (cudaError_t)gk_cuda_digest_load();
    error = error != cudaSuccess ? error : (cudaError_t)gk_cuda_pack_load();
    if (error != cudaSuccess) {
        return cuda_fail(cuda, error, "loading code", why);
    }
    int r = make_flag(cuda, why);
    return r != 0 ? r : load_kernels(cuda, why);
}

void cuda_launch_finish(struct device_cuda *cuda)
{
    if (cuda->stream != NULL) {
        (void)cudaStreamSynchronize(cuda->stream);
        (void)cudaStreamDestroy(cuda->stream);
    }
    (void)cudaFreeHost(cuda->flag_memory);
}
