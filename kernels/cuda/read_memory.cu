/* read_memory.cu - read device memory once, as fast as it goes: what a kernel that streams a weight
 * is compared with.
 *
 * A grid of a few blocks an SM strides over the memory, each thread with several 16-byte loads in
 * flight that bypass L1. A sum of a certain value is counted, which keeps the loads alive. */
#include "gk/cuda.h"

#include <cuda_runtime.h>

#define THREADS       512u
#define BLOCKS_PER_SM 4u
#define LOADS         8u

static __device__ uint32_t sink;

static __global__ void __launch_bounds__(THREADS) read_memory(const uint4 *memory, uint64_t n)
{
    uint32_t sum = 0;
    uint64_t stride = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += LOADS * stride) {
        uint4 words[LOADS];
#pragma unroll
        for (uint32_t j = 0; j < LOADS; j++) {
            uint64_t at = i + j * stride;
            words[j] = at < n ? __ldcg(memory + at) : uint4{};
        }
#pragma unroll
        for (uint32_t j = 0; j < LOADS; j++) {
            sum += words[j].x ^ words[j].y ^ words[j].z ^ words[j].w;
        }
    }
    if (sum == 1) {
        atomicAdd(&sink, 1u);
    }
}

int gk_cuda_read(const void *memory, uint64_t size_bytes, void *stream)
{
    int device = 0, n_sms = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    }
    if (error != cudaSuccess) {
        return error;
    }
    uint32_t n_blocks = (uint32_t)n_sms * BLOCKS_PER_SM;
    read_memory<<<n_blocks, THREADS, 0, (cudaStream_t)stream>>>((const uint4 *)memory,
                                                                size_bytes / sizeof(uint4));
    return cudaPeekAtLastError();
}
