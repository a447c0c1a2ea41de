/* narrow.cuh - pairs of f32 as 16-bit elements, rounded as any_values.cuh's store() rounds: to
 * nearest, ties to even, every NaN the canonical one of its type. low is the lower half. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace {

__device__ __forceinline__ uint32_t narrow_pair(float low, float high, __nv_bfloat16)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t nans = __hneu2_mask(pair, pair);
    return (*reinterpret_cast<uint32_t *>(&pair) & ~nans) | (nans & 0x7fc07fc0u);
}

__device__ __forceinline__ uint32_t narrow_pair(float low, float high, __half)
{
    __half2 pair = __floats2half2_rn(low, high);
    uint32_t nans = __hneu2_mask(pair, pair);
    return (*reinterpret_cast<uint32_t *>(&pair) & ~nans) | (nans & 0x7e007e00u);
}

} // namespace
