/* signal.cu - words that say that the launch before is done.
 *
 * One warp, which on Hopper is in its place while the product still runs and goes on the moment
 * that it has ended. A write by the stream (cuStreamWriteValue32) does the same from the GPU's
 * front end, and takes 2 us more on an H200. */
#include "gk/cuda.h"

#include <cuda_runtime.h>

#include "kernels/cuda/overlap_launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/ptx_system.cuh"

#define THREADS 32u

struct signals {
    struct gk_cuda_signal words[GK_CUDA_SIGNALS_MAX];
    uint32_t n;
};

static __global__ void __launch_bounds__(THREADS) signal_words(const __grid_constant__ signals all)
{
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    uint32_t i_last = all.n - 1;
    for (uint32_t i = threadIdx.x; i < i_last; i += THREADS) {
        st_release_sys(all.words[i].address, all.words[i].value);
    }
    __syncwarp();
    if (threadIdx.x == 0) {
        st_release_sys(all.words[i_last].address, all.words[i_last].value);
    }
}

int gk_cuda_signal_words(const struct gk_cuda_signal *words, uint32_t n, bool may_overlap,
                         void *stream)
{
    struct signals all;
    for (uint32_t i = 0; i < n; i++) {
        all.words[i] = words[i];
    }
    all.n = n;
    void *parameters[] = {&all};
    return overlap_launch((const void *)signal_words, {1, THREADS, 0}, may_overlap, parameters,
                          stream);
}

int gk_cuda_signal_load(void)
{
    return cudaFuncSetAttribute(signal_words, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
}
