/* device_cuda_ahead.c - launches that are queued before their rows are known.
 *
 * Three kernels are appended to the stream: a gate, which waits for a table in page-locked memory,
 * the product, and what writes the signals and the ticket (gk/cuda.h). Telling them their rows is
 * then a few stores of the CPU's. Beside other processes' kernels a launch waits long for the GPU's
 * front end, and one that is already there does not.
 *
 * Nobody can be told twice or not at all: the words of a table go from unwritten to written once
 * for each gate, the gate alone decides whether it saw them in time, and poll() hears what it
 * decided from the kernel behind the product. Each flight has a table of its own, and nothing of
 * the flight before is in the stream any more when that is used again. */
#include "daemon/device/device_cuda.h"

#include <assert.h>
#include <errno.h>

#include "ipc/base/clock.h"

#define GATE_ROWS 16u /* a gate's tables are multiples of it */

static uint32_t gate_rows(const struct cuda_flight *flight)
{
    return (uint32_t)num_align_up(flight->n_rows_max, GATE_ROWS);
}

/* ---- tables ---- */

static void write_word(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

/* Before there is a gate. */
static void clear_table(struct device_cuda *cuda, const struct cuda_flight *flight)
{
    uint64_t i = (uint64_t)(flight - cuda->flights);
    for (uint32_t i_row = 0; i_row < gate_rows(flight); i_row++) {
        for (uint32_t i_word = 0; i_word < 4; i_word++) {
            write_word(&cuda->ahead->rows[i][i_row][i_word], 0);
        }
    }
    atomic_store(&cuda->ahead->canceled[i], flight->ticket - 1);
}

/* All of it, whatever has no row as such; launch: NULL: nobody comes. */
static void write_table(struct device_cuda *cuda, const struct cuda_flight *flight,
                        const struct device_launch *launch)
{
    uint64_t i = (uint64_t)(flight - cuda->flights);
    uint32_t m = launch != NULL ? launch->gk.problem.m : 0;
    uint32_t n_signals = launch != NULL ? launch->n_signals : 0;
    for (uint32_t i_row = 0; i_row < gate_rows(flight); i_row++) {
        uint64_t words[4] = {0};
        if (i_row < m) {
            words[0] = (uintptr_t)launch->gk.x_rows[i_row];
            words[1] = (uintptr_t)launch->gk.y_rows[i_row];
        }
        if (i_row < n_signals) {
            words[2] = launch->signals[i_row].address;
            words[3] = (uint64_t)launch->signals[i_row].value << 1;
        }
        for (uint32_t i_word = 0; i_word < 4; i_word++) {
            write_word(&cuda->ahead->rows[i][i_row][i_word], words[i_word] | GK_CUDA_AHEAD_WRITTEN);
        }
    }
}

/* ---- arming ---- */

/* What should come, as the CPU would write it into the table. */
static void expect_rows(const struct device_launch *launch, struct gk_cuda_gate_args *gate)
{
    gate->n_expected = launch->n_expected <= GK_CUDA_EXPECTED_MAX ? launch->n_expected : 0;
    for (uint32_t i = 0; i < gate->n_expected; i++) {
        const struct device_expected *expected = &launch->expected[i];
        gate->expected[i] = (struct gk_cuda_expected){
            .row = {(uintptr_t)expected->x | GK_CUDA_AHEAD_WRITTEN,
                    (uintptr_t)expected->y | GK_CUDA_AHEAD_WRITTEN,
                    expected->done.address | GK_CUDA_AHEAD_WRITTEN,
                    (uint64_t)expected->done.value << 1 | GK_CUDA_AHEAD_WRITTEN},
            .ready = expected->ready.address,
            .value = expected->ready.value,
        };
    }
}

static int enqueue(struct device_cuda *cuda, const struct cuda_flight *flight, uint32_t limit_usec)
{
    uint64_t i = (uint64_t)(flight - cuda->flights);
    struct gk_ahead *taken = &cuda->ahead_taken[i];
    uintptr_t base = (uintptr_t)cuda->ahead_address;
    uintptr_t table = base + (uintptr_t)&cuda->ahead->rows[i] - (uintptr_t)cuda->ahead;
    uintptr_t canceled = base + (uintptr_t)&cuda->ahead->canceled[i] - (uintptr_t)cuda->ahead;
    const struct gk_cuda_signal done = {cuda->flag_address, flight->ticket};
    struct gk_cuda_gate_args gate = {
        .table = (const struct gk_cuda_ahead_row *)table,
        .ahead = taken,
        .n_rows = gate_rows(flight),
        .limit_usec = limit_usec,
        .holds_place = flight->launch->holds_place,
    };
    expect_rows(flight->launch, &gate);
    cudaError_t error = (cudaError_t)gk_cuda_gate(&gate, cuda->stream);
    int r = error == cudaSuccess ? cuda_enqueue_kernel(cuda, flight->launch, taken)
                                 : cuda_fail(cuda, error, "a gate", NULL);
    if (r != 0) {
        return r;
    }
    error =
        (cudaError_t)gk_cuda_signal_ahead(taken, gate_rows(flight), &done, canceled, cuda->stream);
    return error == cudaSuccess ? 0 : cuda_fail(cuda, error, "a launch's end", NULL);
}

static bool can_wait(struct device_cuda *cuda, const struct device_launch *launch)
{
    const struct gk_problem *problem = &launch->gk.problem;
    return cuda->ahead != NULL && launch->kernel->rows_ahead_max != NULL &&
           cuda_enter(cuda, NULL) == 0 && problem->m <= launch->kernel->rows_ahead_max(problem);
}

int cuda_arm(struct device *device, struct device_launch *launch, uint32_t limit_usec)
{
    struct device_cuda *cuda = cuda_of(device);
    if (!can_wait(cuda, launch)) {
        return -ENOTSUP; /* answers, not faults */
    }
    struct cuda_flight *flight = cuda->has_waiting ? NULL : cuda_flight_begin(cuda, launch);
    if (flight == NULL) {
        return -EAGAIN;
    }
    flight->is_waiting = cuda->has_waiting = true;
    flight->n_rows_max = launch->gk.problem.m;
    launch->start_nsec = clock_now_nsec();
    clear_table(cuda, flight);
    int r = enqueue(cuda, flight, limit_usec);
    if (r != 0) {
        write_table(cuda, flight, NULL);                           /* to a gate that may wait */
        flight->result = r == STATUS_DEVICE_LOST ? r : -ECANCELED; /* to be launched as ever */
    }
    return 0;
}

/* ---- telling ---- */

static struct cuda_flight *flight_of(struct device_cuda *cuda, const struct device_launch *launch)
{
    uint32_t i = cuda->i_first;
    for (uint32_t n = 0; n < cuda->n_flights; n++, i = (i + 1) % CUDA_FLIGHTS_MAX) {
        if (cuda->flights[i].launch == launch) {
            return &cuda->flights[i];
        }
    }
    return NULL;
}

void cuda_fire(struct device *device, struct device_launch *launch)
{
    struct device_cuda *cuda = cuda_of(device);
    struct cuda_flight *flight = flight_of(cuda, launch);
    GD_ASSERT(flight != NULL && flight->n_rows_max > 0 && flight->is_waiting);
    GD_ASSERT(launch->gk.problem.m <= flight->n_rows_max);
    GD_ASSERT(launch->n_signals <= launch->gk.problem.m && !launch->has_cpu_rows);
    launch->start_nsec = clock_now_nsec();
    flight->is_waiting = cuda->has_waiting = false;
    if (flight->result != -EAGAIN) {
        return; /* it was not queued */
    }
    flight->fault = cuda_next_fault(cuda);
    write_table(cuda, flight, flight->fault == 0 ? launch : NULL);
}

void cuda_disarm(struct device *device, struct device_launch *launch)
{
    struct device_cuda *cuda = cuda_of(device);
    struct cuda_flight *flight = flight_of(cuda, launch);
    GD_ASSERT(flight != NULL && flight->n_rows_max > 0);
    write_table(cuda, flight, NULL);
}

/* ---- setting up ---- */

int cuda_ahead_init(struct device_cuda *cuda, struct reason *why)
{
    static_assert(sizeof(cuda->ahead->rows[0][0]) == sizeof(struct gk_cuda_ahead_row),
                  "the words of a row");
    void *memory, *address;
    if (cuda->base.cuda_arch < CUDA_ARCH_WITH_OVERLAP) {
        return 0;
    }
    cudaError_t error = (cudaError_t)gk_cuda_ahead_load();
    error = error != cudaSuccess ? error
                                 : cudaHostAlloc(&memory, sizeof(*cuda->ahead),
                                                 cudaHostAllocMapped | cudaHostAllocPortable);
    if (error != cudaSuccess) {
        return cuda_fail(cuda, error, "page-locking the tables of launches", why);
    }
    cuda->ahead = memory;
    error = cudaHostGetDevicePointer(&address, memory, 0);
    cuda->ahead_address = (CUdeviceptr)(uintptr_t)address;
    error = error != cudaSuccess ? error
                                 : cudaMalloc((void **)&cuda->ahead_taken,
                                              CUDA_FLIGHTS_MAX * sizeof(*cuda->ahead_taken));
    return error == cudaSuccess ? 0 : cuda_fail(cuda, error, "the tables of launches", why);
}

void cuda_ahead_finish(struct device_cuda *cuda)
{
    (void)cudaFree(cuda->ahead_taken);
    (void)cudaFreeHost(cuda->ahead);
}
