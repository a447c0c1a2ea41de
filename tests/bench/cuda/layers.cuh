/* layers.cuh - what the benches of CUDA kernels share: the layers that are measured, numbers that
 * look random, and the end of the program at an error of CUDA. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t r_ = (cudaError_t)(call);                                                      \
        if (r_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(r_));            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Of models of 8 and 70 billion parameters. */
struct layer {
    uint32_t n, k;
    const char *name;
};

static const layer layers[] = {{28672, 8192, "gate"},    {8192, 28672, "down"},
                               {10240, 8192, "qkv"},     {8192, 8192, "8192"},
                               {28672, 4096, "gate_up"}, {4096, 4096, "4096"}};

__device__ __host__ static inline uint32_t hash(uint32_t v)
{
    v ^= v >> 16;
    v *= 0x7feb352du;
    v ^= v >> 15;
    v *= 0x846ca68bu;
    return v ^ v >> 16;
}
