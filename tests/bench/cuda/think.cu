/* think.cu - see think.h. */
#include "tests/bench/cuda/think.h"

#include "client/include/gemmd_device.h"
#include "kernels/cuda/overlap_launch.cuh"
#include "kernels/cuda/ptx.cuh"

static __device__ uint64_t now_nsec()
{
    uint64_t nsec;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nsec));
    return nsec;
}

/* A stamp is written last: what a client says to others must not wait for it. */
static __device__ void think(const gemmd_signal *before, const gemmd_signal *after, uint32_t nsec,
                             think_stamp *stamp, bool is_last)
{
    if (before->ready != nullptr) {
        gemmd_signal_wait(before);
    }
    if (is_last) {
        griddepcontrol_launch_dependents();
    }
    uint64_t begin = now_nsec();
    uint64_t end = begin;
    while (end - begin < nsec) {
        end = now_nsec();
    }
    if (after->ready != nullptr) {
        gemmd_signal_ready(after);
    }
    *stamp = {begin, end};
}

static __global__ void __launch_bounds__(32) think_kernel(const __grid_constant__ thoughts all)
{
    griddepcontrol_wait();
    for (uint32_t i = 0; i < all.n; i++) {
        think(i == 0 ? &all.before : &all.after[i - 1], &all.after[i], all.nsec, &all.stamps[i],
              i + 1 == all.n);
    }
}

/* As gemmd_device.h asks for. */
int think_load(void)
{
    return cudaFuncSetAttribute(think_kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
}

int think_enqueue(const struct thoughts *all, cudaStream_t stream)
{
    thoughts copy = *all;
    void *parameters[] = {&copy};
    return overlap_launch(reinterpret_cast<const void *>(think_kernel), {1, 1, 0}, all->is_early,
                          parameters, stream);
}
