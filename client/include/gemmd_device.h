/* gemmd_device.h - for a client's own kernels: say that x is ready, wait for y. See
 * gemmd_submit_on_stream() in gemmd.h, which gives the signal.
 *
 *     __global__ void step(struct gemmd_signal before, struct gemmd_signal after, ...)
 *     {
 *         if (threadIdx.x == 0) {
 *             gemmd_signal_wait(&before);    // y of the product before this kernel is there
 *         }
 *         __syncthreads();
 *         ... reads y, writes x ...
 *         __syncthreads();
 *         if (threadIdx.x == 0) {
 *             gemmd_signal_ready(&after);    // x of the product behind it is written
 *         }
 *     }
 *
 * Of a kernel of several blocks, each that reads y waits, and the last one that has written x says
 * ready (count them with an atomic of your own).
 *
 * A block that waits keeps its place on the GPU, so it must leave room for the product: few blocks
 * (a grid that fills the GPU and waits for ever waits for itself) of few threads (128 of 32
 * registers fit beside a product's block), and
 *
 *     cudaFuncSetAttribute(step, cudaFuncAttributePreferredSharedMemoryCarveout,
 *                          cudaSharedmemCarveoutMaxShared);
 *
 * since a multiprocessor that is split otherwise between cache and shared memory takes no block of
 * a product until it is empty.
 *
 * The GPU starts kernels one after the other, those of all processes: on an H200 a product waits
 * 0.7 us for each client that starts one about then. A kernel that takes several turns (wait, work,
 * say ready, wait for the next) spares all clients that. So does one that is in its place in time:
 * on compute capability 9.0 and up launch each with programmatic stream serialization, let it call
 * cudaGridDependencySynchronize() first, and cudaTriggerProgrammaticLaunchCompletion() once y is
 * there; client/examples/early.cu does. Sixteen processes that think 20 us take 46 us a step so
 * instead of 50 to 52. Sooner is worse: then two kernels of each client wait, and a product's block
 * finds no room. */
#ifndef GEMMD_DEVICE_H
#define GEMMD_DEVICE_H

#include "gemmd.h"

#ifdef __CUDACC__

/* gemmd_signal_ready() - one thread, when everything that x is made of was written by this thread,
 * by threads that it has met at a barrier, or by kernels before this one. */
static __device__ __forceinline__ void gemmd_signal_ready(const struct gemmd_signal *signal)
{
    /* Two words, for a launch that waits on the GPU and for the daemon's CPU. */
    const unsigned quick_words = 1u << 18;
    asm volatile("fence.acq_rel.sys;\n\t"
                 "st.relaxed.sys.global.u32 [%0], %2;\n\t"
                 "st.relaxed.sys.global.u32 [%1], %2;" ::"l"(signal->done + quick_words),
                 "l"(signal->ready), "r"(signal->value)
                 : "memory");
}

/* gemmd_signal_wait() - returns when y is there, or never will be: gemmd_stream_status() tells.
 * What this thread reads afterwards, and those that it then meets at a barrier, is y as it was
 * written. */
static __device__ __forceinline__ void gemmd_signal_wait(const struct gemmd_signal *signal)
{
    /* `ended` lies across the bus and is for requests that have no product: a rare look. */
    const unsigned looks_per_ended = 256;
    unsigned word;
    for (unsigned n = 1;; n++) {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                     : "=r"(word)
                     : "l"(n % looks_per_ended ? signal->done : signal->ended)
                     : "memory");
        if ((int)(word - signal->value) >= 0) { /* words count up and wrap */
            return;
        }
    }
}

#endif

#endif
