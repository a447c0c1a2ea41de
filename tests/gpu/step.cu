/* step.cu - see step.h. */
#include "tests/gpu/step.h"

#include <cuda_bf16.h>

#include "client/include/gemmd_device.h"
#include "kernels/cuda/overlap_launch.cuh"
#include "kernels/cuda/ptx.cuh"

#define THREADS   128 /* few: a block that waits leaves room for the product */
#define HOLD_NSEC 20000000000ull
#define NOBODY_WAITS                                                                               \
    gemmd_signal                                                                                   \
    {                                                                                              \
        nullptr, nullptr, nullptr, 0                                                               \
    }

static __device__ __forceinline__ float squash(float v, float other)
{
    v += 0.25f * other;
    return v / (1.0f + fabsf(v));
}

/* Pairs of elements; n and k are even. */
static __device__ __forceinline__ void step(const __nv_bfloat162 *y, uint32_t n, __nv_bfloat162 *x,
                                            uint32_t k)
{
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < k / 2; i += THREADS) {
        float2 v = __bfloat1622float2(y[i % (n / 2)]);
        float2 other = __bfloat1622float2(y[(i + 37) % (n / 2)]);
        x[i] = __floats2bfloat162_rn(squash(v.x, other.y), squash(v.y, other.x));
    }
}

static __global__ void __launch_bounds__(THREADS)
    step_kernel(const __nv_bfloat162 *y, uint32_t n, __nv_bfloat162 *x, uint32_t k)
{
    step(y, n, x, k);
}

/* May have begun before the kernel ahead of it has ended: that one's writes come first. */
static __global__ void __launch_bounds__(THREADS)
    fused_kernel(const __nv_bfloat162 *y, uint32_t n, __nv_bfloat162 *x, uint32_t k,
                 gemmd_signal before, gemmd_signal after)
{
    griddepcontrol_wait();
    if (threadIdx.x == 0 && before.done != nullptr) {
        gemmd_signal_wait(&before);
    }
    __syncthreads();
    griddepcontrol_launch_dependents();
    step(y, n, x, k);
    __syncthreads();
    if (threadIdx.x == 0 && after.ready != nullptr) {
        gemmd_signal_ready(&after);
    }
}

static __device__ uint64_t now_nsec()
{
    uint64_t nsec;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nsec));
    return nsec;
}

static __global__ void hold_kernel(const volatile uint32_t *word)
{
    uint64_t end = now_nsec() + HOLD_NSEC;
    while (*word == 0 && now_nsec() < end) {
    }
}

static __global__ void delay_kernel(uint32_t usec)
{
    uint64_t end = now_nsec() + usec * 1000ull;
    while (now_nsec() < end) {
    }
}

static __global__ void fault_kernel(volatile uint32_t *nowhere)
{
    *nowhere = 1;
}

/* As gemmd_device.h asks for. */
int step_load(void)
{
    cudaError_t r =
        cudaFuncSetAttribute(fused_kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared);
    return r != cudaSuccess
               ? r
               : cudaFuncSetAttribute(step_kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                      cudaSharedmemCarveoutMaxShared);
}

int step_enqueue(const void *y, uint32_t n, void *x, uint32_t k, cudaStream_t stream)
{
    step_kernel<<<1, THREADS, 0, stream>>>(static_cast<const __nv_bfloat162 *>(y), n,
                                           static_cast<__nv_bfloat162 *>(x), k);
    return cudaGetLastError();
}

int step_enqueue_fused(const void *y, uint32_t n, void *x, uint32_t k,
                       const struct gemmd_signal *before, const struct gemmd_signal *after,
                       bool is_early, cudaStream_t stream)
{
    gemmd_signal signals[] = {before != nullptr ? *before : NOBODY_WAITS,
                              after != nullptr ? *after : NOBODY_WAITS};
    void *parameters[] = {&y, &n, &x, &k, &signals[0], &signals[1]};
    return overlap_launch(reinterpret_cast<const void *>(fused_kernel), {1, THREADS, 0}, is_early,
                          parameters, stream);
}

int hold_enqueue(const uint32_t *word, cudaStream_t stream)
{
    hold_kernel<<<1, 1, 0, stream>>>(word);
    return cudaGetLastError();
}

int delay_enqueue(uint32_t usec, cudaStream_t stream)
{
    delay_kernel<<<1, 1, 0, stream>>>(usec);
    return cudaGetLastError();
}

int fault_enqueue(cudaStream_t stream)
{
    fault_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<uint32_t *>(64));
    return cudaGetLastError();
}
