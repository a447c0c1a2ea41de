/* step.cu - see step.h. */
#include "tests/gpu/step.h"

#include <cuda_bf16.h>

#include "client/include/gemmd_device.h"

#define THREADS   512
#define HOLD_NSEC 20000000000ull
#define NOBODY_WAITS                                                                               \
    gemmd_signal                                                                                   \
    {                                                                                              \
        nullptr, nullptr, nullptr, 0                                                               \
    }

static __device__ void step(const __nv_bfloat16 *y, uint32_t n, __nv_bfloat16 *x, uint32_t k)
{
    for (uint32_t i = threadIdx.x; i < k; i += blockDim.x) {
        float v = __bfloat162float(y[i % n]) + 0.25f * __bfloat162float(y[(i * 7 + 3) % n]);
        x[i] = __float2bfloat16(v / (1.0f + fabsf(v)));
    }
}

static __global__ void step_kernel(const __nv_bfloat16 *y, uint32_t n, __nv_bfloat16 *x, uint32_t k)
{
    step(y, n, x, k);
}

static __global__ void fused_kernel(const __nv_bfloat16 *y, uint32_t n, __nv_bfloat16 *x,
                                    uint32_t k, gemmd_signal before, gemmd_signal after)
{
    if (threadIdx.x == 0 && before.done != nullptr) {
        gemmd_signal_wait(&before);
    }
    __syncthreads();
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

int step_enqueue(const void *y, uint32_t n, void *x, uint32_t k, cudaStream_t stream)
{
    step_kernel<<<1, THREADS, 0, stream>>>(static_cast<const __nv_bfloat16 *>(y), n,
                                           static_cast<__nv_bfloat16 *>(x), k);
    return cudaGetLastError();
}

int step_enqueue_fused(const void *y, uint32_t n, void *x, uint32_t k,
                       const struct gemmd_signal *before, const struct gemmd_signal *after,
                       cudaStream_t stream)
{
    fused_kernel<<<1, THREADS, 0, stream>>>(
        static_cast<const __nv_bfloat16 *>(y), n, static_cast<__nv_bfloat16 *>(x), k,
        before != nullptr ? *before : NOBODY_WAITS, after != nullptr ? *after : NOBODY_WAITS);
    return cudaGetLastError();
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
