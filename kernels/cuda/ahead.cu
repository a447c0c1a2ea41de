/* ahead.cu - launches that are in the stream before their rows are known: what waits for these.
 *
 * A gate, one small block, looks at a table in page-locked memory until the CPU has filled it in,
 * and takes it over into the GPU's memory, where the product behind it (gk_launch.ahead) and the
 * signals behind that find it. Every word of the table says for itself that it is written: so one
 * look, which takes a trip over the bus, brings the rows and the news of them at once, and no word
 * has to be seen before or after another. Only the gate decides whether somebody came, and what it
 * decided is told with the end of the launch: a CPU that is too late learns that it was.
 *
 * The product starts when the gate opens, so that meanwhile no multiprocessor has to hold its
 * registers and shared memory, which the kernels of other processes need; or before, to hold its
 * place, with its first weights there: on an H200 beside 15 busy processes that spares it 2 to 3 us
 * of 30, and a kernel of theirs that does not fit beside it waits as long as the gate. */
#include "gk/cuda.h"

#include <cuda_runtime.h>

#include "kernels/cuda/overlap_launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/ptx_system.cuh"

#define WARP             32u
#define HALVES_A_ROW     2u
#define GATE_THREADS_MAX (HALVES_A_ROW * GK_CUDA_AHEAD_ROWS_MAX)

struct gate_args {
    const struct gk_cuda_ahead_row *table;
    struct gk_ahead *ahead;
    uint64_t limit_nsec;
    bool holds_place;
};

/* This thread's half a row, once all are written; else, at the end of the time, *ret_is_told is
 * false. The last look is behind the end of the time: only what was not there then is too late. */
static __device__ ulonglong2 wait_for_rows(const gate_args &args, bool *ret_is_told)
{
    const ulonglong2 *half = (const ulonglong2 *)args.table + threadIdx.x;
    uint64_t start_nsec = globaltimer();
    for (;;) {
        bool is_over = globaltimer() - start_nsec > args.limit_nsec;
        ulonglong2 words = ld_relaxed_sys_v2(half);
        *ret_is_told = __syncthreads_and((words.x & words.y & GK_CUDA_AHEAD_WRITTEN) != 0) != 0;
        if (*ret_is_told || __syncthreads_or(is_over)) {
            return words;
        }
    }
}

/* A thread has half a row: the addresses of x and y, or the word behind the product. */
static __global__ void __launch_bounds__(GATE_THREADS_MAX)
    open_gate(const __grid_constant__ gate_args args)
{
    bool is_told;
    if (args.holds_place) {
        griddepcontrol_launch_dependents();
    }
    griddepcontrol_wait();
    ulonglong2 words = wait_for_rows(args, &is_told);
    __threadfence_system(); /* what the CPU saw of x before it wrote the table, the product sees */
    if (!args.holds_place) {
        griddepcontrol_launch_dependents();
    }
    words.x = is_told ? words.x & ~GK_CUDA_AHEAD_WRITTEN : 0;
    words.y = is_told ? words.y & ~GK_CUDA_AHEAD_WRITTEN : 0;
    ((ulonglong2 *)args.ahead->rows)[threadIdx.x] = words;
    bool is_row = threadIdx.x % HALVES_A_ROW == 0 && words.y != 0;
    uint32_t m = (uint32_t)__syncthreads_count(is_row);
    if (threadIdx.x == 0) {
        args.ahead->m = m;
    }
}

struct end_args {
    const struct gk_ahead *ahead;
    uint32_t n_rows;
    struct gk_cuda_signal done;
    uint64_t canceled;
};

static __device__ uint64_t ahead_word(const uint64_t &word)
{
    return __ldcg((const unsigned long long *)&word);
}

/* A thread a row, and then one for the launch itself: whoever sees its word sees all of them. */
static __global__ void __launch_bounds__(GK_CUDA_AHEAD_ROWS_MAX)
    signal_ahead(const __grid_constant__ end_args end)
{
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    if (threadIdx.x < end.n_rows) {
        const struct gk_cuda_ahead_row &row = end.ahead->rows[threadIdx.x];
        uint64_t signal = ahead_word(row.signal);
        if (signal != 0) {
            st_release_sys(signal, (uint32_t)(ahead_word(row.value) >> 1));
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        if (__ldcg(&end.ahead->m) == 0) {
            st_release_sys(end.canceled, end.done.value);
        }
        st_release_sys(end.done.address, end.done.value);
    }
}

static int enqueue(const void *function, uint32_t n_threads, void *args, void *stream)
{
    return overlap_launch(function, {1, n_threads, 0}, true, &args, stream);
}

int gk_cuda_gate(const struct gk_cuda_ahead_row *table, uint32_t n_rows, struct gk_ahead *ahead,
                 uint32_t limit_usec, bool holds_place, void *stream)
{
    struct gate_args args = {table, ahead, limit_usec * 1000ull, holds_place};
    return enqueue((const void *)open_gate, HALVES_A_ROW * n_rows, &args, stream);
}

int gk_cuda_signal_ahead(const struct gk_ahead *ahead, uint32_t n_rows,
                         const struct gk_cuda_signal *done, uint64_t canceled, void *stream)
{
    struct end_args args = {ahead, n_rows, *done, canceled};
    return enqueue((const void *)signal_ahead, (n_rows + WARP - 1) / WARP * WARP, &args, stream);
}

int gk_cuda_ahead_load(void)
{
    int r = cudaFuncSetAttribute(open_gate, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
    return r != cudaSuccess
               ? r
               : cudaFuncSetAttribute(signal_ahead, cudaFuncAttributePreferredSharedMemoryCarveout,
                                      cudaSharedmemCarveoutMaxShared);
}
