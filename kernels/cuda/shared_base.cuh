/* shared_base.cuh - the shared memory that a launch asks for. */
#pragma once

#include <stdint.h>

namespace {

/* Its address in PTX: at 1 KiB, as tiles that are swizzled by 128 bytes want it. */
__device__ __forceinline__ uint32_t shared_base()
{
    extern __shared__ __align__(1024) uint8_t shared[];
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

} // namespace
