/* div_up.cuh - how many of a size cover something, the last perhaps not whole. */
#pragma once

#include <stdint.h>

namespace {

__host__ __device__ constexpr uint32_t div_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

} // namespace
