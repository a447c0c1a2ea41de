/* ahead.cu - launches that are in the stream before their rows are known: what waits for these.
 *
 * A gate, one small block, looks at a table in page-locked memory until the CPU has filled it in,
 * and takes it over into the GPU's memory, where the product behind it (gk_launch.ahead) and the
 * signals behind that find it. It may know rows before that should come, and looks at the words of
 * their clients as well: when all are ready no CPU is in the way. Every word of the table says for
 * itself that it is written: so one look, which takes a trip over the bus, brings the rows and the
 * news of them at once, and no word has to be seen before or after another. Only the gate decides
 * whether somebody came, and what it decided is told with the end of the launch: a CPU that is too
 * late learns that it was.
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
#define LOOKS_A_TRIP     8u /* at the words of those who are expected, for one at the table */

/* Is the x of the row there that is this thread's to look at? */
static __device__ bool has_come(const gk_cuda_gate_args &gate)
{
    if (threadIdx.x >= gate.n_expected) {
        return true;
    }
    const gk_cuda_expected &expected = gate.expected[threadIdx.x];
    return ld_relaxed_sys(expected.ready) == expected.value;
}

/* This thread's half a row, as a table would have it. */
static __device__ ulonglong2 expected_half(const gk_cuda_gate_args &gate)
{
    uint32_t i_row = threadIdx.x / HALVES_A_ROW;
    if (i_row >= gate.n_expected) {
        return make_ulonglong2(GK_CUDA_AHEAD_WRITTEN, GK_CUDA_AHEAD_WRITTEN);
    }
    const gk_cuda_ahead_row &row = gate.expected[i_row].row;
    return threadIdx.x % HALVES_A_ROW == 0 ? make_ulonglong2(row.x, row.y)
                                           : make_ulonglong2(row.signal, row.value);
}

/* Have all come? Several looks at words of the GPU's own memory, which take half of what one over
 * the bus does. */
static __device__ bool look_for_expected(const gk_cuda_gate_args &gate)
{
    for (uint32_t i = 0; gate.n_expected > 0 && i < LOOKS_A_TRIP; i++) {
        if (__syncthreads_and(has_come(gate))) {
            return true;
        }
    }
    return false;
}

/* This thread's half a row, once all are written or have come; else, at the end of the time,
 * *ret_is_told is false. The last look is behind the end of the time: only what was not there then
 * is too late. */
static __device__ ulonglong2 wait_for_rows(const gk_cuda_gate_args &gate, bool *ret_is_told)
{
    const ulonglong2 *half = (const ulonglong2 *)gate.table + threadIdx.x;
    uint64_t limit_nsec = gate.limit_usec * 1000ull;
    uint64_t start_nsec = globaltimer();
    for (;;) {
        bool is_over = globaltimer() - start_nsec > limit_nsec;
        if (look_for_expected(gate)) {
            *ret_is_told = true;
            return expected_half(gate);
        }
        ulonglong2 words = ld_relaxed_sys_v2(half);
        *ret_is_told = __syncthreads_and((words.x & words.y & GK_CUDA_AHEAD_WRITTEN) != 0) != 0;
        if (*ret_is_told || __syncthreads_or(is_over)) {
            return words;
        }
    }
}

/* A thread has half a row: the addresses of x and y, or the word behind the product. */
static __global__ void __launch_bounds__(GATE_THREADS_MAX)
    open_gate(const __grid_constant__ gk_cuda_gate_args gate)
{
    bool is_told;
    if (gate.holds_place) {
        griddepcontrol_launch_dependents();
    }
    griddepcontrol_wait();
    ulonglong2 words = wait_for_rows(gate, &is_told);
    fence_acq_rel_sys(); /* what was seen of x by who said so, the product sees */
    if (!gate.holds_place) {
        griddepcontrol_launch_dependents();
    }
    words.x = is_told ? words.x & ~GK_CUDA_AHEAD_WRITTEN : 0;
    words.y = is_told ? words.y & ~GK_CUDA_AHEAD_WRITTEN : 0;
    ((ulonglong2 *)gate.ahead->rows)[threadIdx.x] = words;
    bool is_row = threadIdx.x % HALVES_A_ROW == 0 && words.y != 0;
    uint32_t m = (uint32_t)__syncthreads_count(is_row);
    if (threadIdx.x == 0) {
        gate.ahead->m = m;
    }
}

struct end_args {
    const struct gk_ahead *ahead;
    uint32_t n_rows;
    struct gk_cuda_signal done;
    uint64_t canceled;
};

/* A thread a row, and then one for the launch itself: whoever sees its word sees all of them. */
static __global__ void __launch_bounds__(GK_CUDA_AHEAD_ROWS_MAX)
    signal_ahead(const __grid_constant__ end_args end)
{
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const ulonglong2 *signal = (const ulonglong2 *)&end.ahead->rows[threadIdx.x].signal;
    ulonglong2 words = threadIdx.x < end.n_rows ? __ldcg(signal) : make_ulonglong2(0, 0);
    uint32_t m = __ldcg(&end.ahead->m);
    fence_acq_rel_sys(); /* who sees the word sees the product */
    if (words.x != 0) {
        st_relaxed_sys(words.x, (uint32_t)(words.y >> 1));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        if (m == 0) {
            st_release_sys(end.canceled, end.done.value);
        }
        st_release_sys(end.done.address, end.done.value);
    }
}

static int enqueue(const void *function, uint32_t n_threads, void *args, void *stream)
{
    return overlap_launch(function, {1, n_threads, 0}, true, &args, stream);
}

int gk_cuda_gate(const struct gk_cuda_gate_args *gate, void *stream)
{
    struct gk_cuda_gate_args args = *gate;
    return enqueue((const void *)open_gate, HALVES_A_ROW * gate->n_rows, &args, stream);
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
