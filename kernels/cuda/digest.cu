/* digest.cu - the digest of gk/digest.h at the speed of memory. Every thread mixes pairs of words,
 * several loads in flight, then warps add up by shuffles and one atomic each: sums and exclusive
 * ors come out the same in any order. */
#include "gk/cuda.h"

#include <cuda_runtime.h>

#include "kernels/digest_mix.h"

#define THREADS    256u
#define LOADS      4u /* of 16 bytes, in flight a thread */
#define BLOCKS_MAX 2048u

static __device__ void count_in(ulonglong2 pair, uint64_t i_pair, uint64_t &sum, uint64_t &parity)
{
    uint64_t key = (2 * i_pair + 1) * DIGEST_STEP;
    uint64_t first = digest_mix(pair.x, key);
    uint64_t second = digest_mix(pair.y, key + DIGEST_STEP);
    sum += first + second;
    parity ^= first ^ second;
}

static __global__ void __launch_bounds__(THREADS)
    digest_kernel(const ulonglong2 *pairs, uint64_t n_pairs, struct gk_digest *digest)
{
    uint64_t sum = 0;
    uint64_t parity = 0;
    uint64_t stride = (uint64_t)gridDim.x * THREADS;
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    for (; i + (LOADS - 1) * stride < n_pairs; i += LOADS * stride) {
        ulonglong2 pair[LOADS];
#pragma unroll
        for (uint32_t j = 0; j < LOADS; j++) {
            pair[j] = __ldcs(&pairs[i + j * stride]);
        }
#pragma unroll
        for (uint32_t j = 0; j < LOADS; j++) {
            count_in(pair[j], i + j * stride, sum, parity);
        }
    }
    for (; i < n_pairs; i += stride) {
        count_in(pairs[i], i, sum, parity);
    }
    for (uint32_t offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
        parity ^= __shfl_down_sync(0xffffffffu, parity, offset);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd((unsigned long long *)&digest->sum, (unsigned long long)sum);
        atomicXor((unsigned long long *)&digest->parity, (unsigned long long)parity);
    }
}

int gk_cuda_digest_load(void)
{
    cudaFuncAttributes attributes;
    return (int)cudaFuncGetAttributes(&attributes, digest_kernel);
}

int gk_cuda_digest(const void *words, uint64_t n_words, struct gk_digest *digest, void *stream)
{
    uint64_t n_blocks = (n_words / 2 + THREADS * LOADS - 1) / (THREADS * LOADS);
    uint32_t blocks = n_blocks < BLOCKS_MAX ? (uint32_t)n_blocks : BLOCKS_MAX;
    digest_kernel<<<blocks, THREADS, 0, (cudaStream_t)stream>>>((const ulonglong2 *)words,
                                                                n_words / 2, digest);
    return (int)cudaGetLastError();
}
