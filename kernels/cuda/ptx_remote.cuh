/* ptx_remote.cuh - barriers and words of other CTAs of a cluster by the address that they have from
 * here. */
#pragma once

#include "kernels/cuda/ptx.cuh"

/* Where a barrier of this CTA lies in the CTA of that rank. */
__device__ __forceinline__ uint32_t mbarrier_of_rank(uint32_t barrier, uint32_t rank)
{
    uint32_t remote = 0;
    PTX_SM90("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(barrier), "r"(rank));
    return remote;
}

/* A word of the CTA of that rank. */
__device__ __forceinline__ uint32_t ld_shared_of_rank(uint32_t shared, uint32_t rank)
{
    uint32_t v = 0;
    PTX_SM90("{\n"
             ".reg .b32 remote;\n"
             "mapa.shared::cluster.u32 remote, %1, %2;\n"
             "ld.shared::cluster.u32 %0, [remote];\n"
             "}"
             : "=r"(v)
             : "r"(shared), "r"(rank)
             : "memory");
    return v;
}

/* As mbarrier_arrive_cluster(), of an address that is used often. */
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t remote)
{
    PTX_SM90("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}
