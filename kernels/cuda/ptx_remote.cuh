/* ptx_remote.cuh - barriers of other CTAs of a cluster by the address that they have from here, for
 * those who arrive there often. */
#pragma once

#include "kernels/cuda/ptx.cuh"

/* Where a barrier of this CTA lies in the CTA of that rank. */
__device__ __forceinline__ uint32_t mbarrier_of_rank(uint32_t barrier, uint32_t rank)
{
    uint32_t remote = 0;
    PTX_SM90("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(barrier), "r"(rank));
    return remote;
}

/* As mbarrier_arrive_cluster(). */
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t remote)
{
    PTX_SM90("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}
