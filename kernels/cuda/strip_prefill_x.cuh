/* strip_prefill_x.cuh - x for the copy engine: its columns permuted, its rows 16-byte aligned. */
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/strip_prefill_args.h"

namespace {

constexpr uint32_t n_copy_threads = 256;
constexpr uint32_t n_copy_elems = 8; /* a thread */

__host__ __device__ inline uint64_t copied_stride_bytes(uint32_t k)
{
    return (k + n_copy_elems - 1) / n_copy_elems * n_copy_elems * static_cast<uint64_t>(2);
}

/* A row a blockIdx.y. */
__global__ void __launch_bounds__(n_copy_threads)
    copy_x(const __grid_constant__ strip_prefill_args args, uint8_t *copy)
{
    uint32_t first = (blockIdx.x * n_copy_threads + threadIdx.x) * n_copy_elems;
    uint32_t k = args.base.k;
    if (first >= k) {
        return;
    }
    const uint16_t *row = reinterpret_cast<const uint16_t *>(static_cast<const uint8_t *>(args.x) +
                                                             blockIdx.y * args.x_stride_bytes);
    uint32_t pairs[n_copy_elems / 2] = {};
#pragma unroll
    for (uint32_t i = 0; i < n_copy_elems; i++) {
        if (first + i < k) {
            uint32_t from = args.base.perm != nullptr ? args.base.perm[first + i] : first + i;
            pairs[i / 2] |= static_cast<uint32_t>(row[from]) << 16 * (i % 2);
        }
    }
    uint4 *to = reinterpret_cast<uint4 *>(copy + blockIdx.y * copied_stride_bytes(k) + first * 2);
    *to = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

/* From here on args->x is the copy. */
cudaError_t enqueue_copy_x(strip_prefill_args *args, void *workspace, void *stream)
{
    uint32_t n_block_elems = n_copy_threads * n_copy_elems;
    dim3 grid((args->base.k + n_block_elems - 1) / n_block_elems, args->m);
    copy_x<<<grid, n_copy_threads, 0, static_cast<cudaStream_t>(stream)>>>(
        *args, static_cast<uint8_t *>(workspace));
    args->x = workspace;
    args->x_stride_bytes = copied_stride_bytes(args->base.k);
    return cudaPeekAtLastError();
}

} // namespace
