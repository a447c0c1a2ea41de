/* ring_place.cuh - a place in a ring of stages, and the parity of its phase. */
#pragma once

#include <stdint.h>

namespace {

template <uint32_t n> struct ring_place {
    uint32_t i = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void step()
    {
        if (++i == n) {
            i = 0;
            parity ^= 1;
        }
    }

    __device__ __forceinline__ uint32_t before() const
    {
        return i == 0 ? n - 1 : i - 1;
    }
};

} // namespace
