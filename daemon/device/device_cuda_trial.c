/* device_cuda_trial.c - how long a kernel takes, and how fast the memory is read, on a stream apart
 * from the worker's. Events bound a round, so what the CPU does between launches is part of it only
 * where it cannot keep up. */
#include "daemon/device/device_cuda.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/device/trial.h"
#include "gk/cuda.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/noise.h"

#define ROOF_BYTES       (512ull << 20) /* several times what the caches hold */
#define ROOF_BUDGET_USEC 4000u
#define LAUNCH_USEC      1.5 /* of an empty kernel in a graph of many, on an H200 */

struct cuda_trial {
    struct device_cuda *cuda;
    const struct device_trial *trial; /* NULL: the memory is read */
    uint8_t *memory;
    cudaStream_t stream;
    cudaEvent_t start;
    cudaEvent_t end;
    struct trial_rows rows;
    struct gk_launch launch;
};

/* ---- a round ---- */

static cudaError_t enqueue(struct cuda_trial *trial, uint32_t i)
{
    if (trial->trial == NULL) {
        return (cudaError_t)gk_cuda_read(trial->memory, ROOF_BYTES, trial->stream);
    }
    trial->launch.packed = trial->trial->packed[i % trial->trial->n_packed];
    return (cudaError_t)trial->trial->kernel->enqueue(&trial->launch, trial->stream);
}

static int time_launches(void *arg, uint32_t n_launches, double *ret_usec, struct reason *why)
{
    struct cuda_trial *trial = arg;
    float msec = 0;
    cudaError_t error = cudaEventRecord(trial->start, trial->stream);
    for (uint32_t i = 0; error == cudaSuccess && i < n_launches; i++) {
        error = enqueue(trial, i);
    }
    error = error != cudaSuccess ? error : cudaEventRecord(trial->end, trial->stream);
    error = error != cudaSuccess ? error : cudaEventSynchronize(trial->end);
    error = error != cudaSuccess ? error : cudaEventElapsedTime(&msec, trial->start, trial->end);
    *ret_usec = 1e3 * (double)msec;
    return error == cudaSuccess ? 0 : cuda_fail(trial->cuda, error, "timing a kernel", why);
}

/* ---- setting up ---- */

static void trial_finish(struct cuda_trial *trial)
{
    if (trial->stream != NULL) {
        (void)cudaStreamSynchronize(trial->stream);
        (void)cudaStreamDestroy(trial->stream);
    }
    if (trial->start != NULL) {
        (void)cudaEventDestroy(trial->start);
    }
    if (trial->end != NULL) {
        (void)cudaEventDestroy(trial->end);
    }
    (void)cudaFree(trial->memory);
}

static int trial_init(struct cuda_trial *trial, uint64_t memory_bytes, struct reason *why)
{
    cudaError_t error = cudaStreamCreateWithFlags(&trial->stream, cudaStreamNonBlocking);
    error = error != cudaSuccess ? error : cudaEventCreate(&trial->start);
    error = error != cudaSuccess ? error : cudaEventCreate(&trial->end);
    error = error != cudaSuccess ? error : cudaMalloc((void **)&trial->memory, memory_bytes);
    error = error != cudaSuccess /* what nobody wrote is not to be read, even to no purpose */
                ? error
                : cudaMemsetAsync(trial->memory, 0, memory_bytes, trial->stream);
    return error == cudaSuccess ? 0
                                : cuda_fail(trial->cuda, error, "making room for a timing", why);
}

/* On the trial's stream: behind what clears the memory, and ahead of the launches. */
static int fill_x(struct cuda_trial *trial, const struct trial_layout *layout, struct reason *why)
{
    const struct gk_problem *problem = &trial->trial->problem;
    uint64_t x_bytes = problem->m * layout->x_row_bytes;
    CLEAN_FREE void *x = malloc(x_bytes);
    if (x == NULL) {
        return err_raise(-ENOMEM);
    }
    noise_fill(x, problem->x_dtype, (uint64_t)problem->m * problem->desc.k);
    cudaError_t error = cudaMemcpyAsync(trial->memory + layout->x_offset, x, x_bytes,
                                        cudaMemcpyHostToDevice, trial->stream);
    error = error != cudaSuccess ? error : cudaStreamSynchronize(trial->stream);
    return error == cudaSuccess ? 0 : cuda_fail(trial->cuda, error, "copying x", why);
}

static int time_kernel(struct cuda_trial *trial, double *ret_usec, struct reason *why)
{
    const struct gk_problem *problem = &trial->trial->problem;
    uint64_t workspace_bytes = trial->trial->kernel->workspace_bytes(problem);
    struct trial_layout layout = trial_layout(problem, workspace_bytes);
    int r = trial_init(trial, layout.total_bytes, why);
    r = r != 0 ? r : fill_x(trial, &layout, why);
    if (r != 0) {
        return r;
    }
    trial_launch(&layout, trial->memory, problem, &trial->rows, &trial->launch);
    return trial_median(time_launches, trial, trial->trial->budget_usec, ret_usec, why);
}

int cuda_time(struct device *device, const struct device_trial *trial, double *ret_usec,
              struct reason *why)
{
    struct cuda_trial own = {.cuda = cuda_of(device), .trial = trial};
    int r = cuda_enter(own.cuda, why);
    if (r != 0) {
        return r;
    }
    r = time_kernel(&own, ret_usec, why);
    trial_finish(&own);
    return r;
}

/* As weights are: written before they are read. */
static int fill_memory(struct cuda_trial *trial)
{
    cudaError_t error = cudaMemsetAsync(trial->memory, 0x5a, ROOF_BYTES, trial->stream);
    return error == cudaSuccess ? 0 : cuda_fail(trial->cuda, error, "filling memory", NULL);
}

void cuda_measure(struct device_cuda *cuda)
{
    struct cuda_trial own = {.cuda = cuda};
    double usec;
    int r = trial_init(&own, ROOF_BYTES, NULL);
    r = r != 0 ? r : fill_memory(&own);
    r = r != 0 ? r : trial_median(time_launches, &own, ROOF_BUDGET_USEC, &usec, NULL);
    if (r == 0 && usec > 0) {
        cuda->base.read_gbps = (double)ROOF_BYTES / usec * 1e-3;
        cuda->base.launch_usec = LAUNCH_USEC;
    }
    trial_finish(&own);
}
