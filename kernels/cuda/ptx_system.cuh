/* ptx_system.cuh - as ptx.cuh: the instructions by which a kernel talks with other processors. */
#pragma once

#include <stdint.h>

/* Two words as they are now in memory, each whole by itself. */
__device__ __forceinline__ ulonglong2 ld_relaxed_sys_v2(const void *words)
{
    ulonglong2 v;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(v.x), "=l"(v.y)
                 : "l"(words)
                 : "memory");
    return v;
}

__device__ __forceinline__ uint32_t ld_relaxed_sys(uint64_t address)
{
    uint32_t word;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    return word;
}

__device__ __forceinline__ void st_relaxed_sys(uint64_t address, uint32_t value)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/* Cheaper than __threadfence_system(), which is a fence of one order for all. */
__device__ __forceinline__ void fence_acq_rel_sys()
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

__device__ __forceinline__ void st_release_sys(uint64_t address, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ uint64_t globaltimer()
{
    uint64_t nsec;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nsec));
    return nsec;
}
