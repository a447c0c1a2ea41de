/* ptx_gpu.cuh - instructions by which CTAs hand values over through the GPU's memory, beside those
 * of ptx.cuh. */
#pragma once

#include <stdint.h>

__device__ __forceinline__ void st_release_gpu(uint32_t *address, uint32_t value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ uint32_t ld_acquire_gpu(const uint32_t *address)
{
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

/* Past the L1 cache, and only if so. */
__device__ __forceinline__ void ld_global_cg_v4_if(bool is_loaded, const float4 *from, float &a,
                                                   float &b, float &c, float &d)
{
    asm volatile("{\n.reg .pred loaded;\n"
                 "setp.ne.b32 loaded, %5, 0;\n"
                 "@loaded ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
                 : "l"(from), "r"((int)is_loaded)
                 : "memory");
}

/* The compiler no longer knows what a value comes of, and works out anew what it had worked out of
 * it before, instead of keeping that in registers. */
__device__ __forceinline__ void forget_origin(uint32_t &value)
{
    asm volatile("" : "+r"(value));
}
