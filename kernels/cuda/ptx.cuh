/* ptx.cuh - every inline PTX instruction of the house, one function each, named after it. */
#pragma once

#include <stdint.h>

/* Hopper's own instructions: empty for older GPUs, whose kernels do not call them. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PTX_SM90(...) asm volatile(__VA_ARGS__)
#else
#define PTX_SM90(...)
#endif

/* Copy to shared memory behind the thread's back; the bytes are there for this thread after
 * cp_async_wait(). 16 bytes bypass the L1 cache. */
template <int n_bytes> __device__ __forceinline__ void cp_async(uint32_t shared, const void *global)
{
    if constexpr (n_bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global));
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(global),
                     "n"(n_bytes));
    }
}

__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Wait until at most n_pending groups of this thread are in flight. */
template <int n_pending> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(n_pending) : "memory");
}

__device__ __forceinline__ uint4 ld_shared_v4(uint32_t shared)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(shared));
    return v;
}

__device__ __forceinline__ uint2 ld_shared_v2(uint32_t shared)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(shared));
    return v;
}

__device__ __forceinline__ uint32_t ld_shared(uint32_t shared)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared));
    return v;
}

__device__ __forceinline__ uint32_t ld_shared_u16(uint32_t shared)
{
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(shared));
    return v;
}

__device__ __forceinline__ void st_shared_v4(uint32_t shared, const float4 &v)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "f"(v.x), "f"(v.y),
                 "f"(v.z), "f"(v.w)
                 : "memory");
}

__device__ __forceinline__ void st_shared(uint32_t shared, uint32_t v)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared), "r"(v) : "memory");
}

/* Wait for the others of n_threads, whole warps that meet at that barrier; 0 is __syncthreads's. */
__device__ __forceinline__ void bar_sync(int barrier, uint32_t n_threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(n_threads) : "memory");
}

__device__ __forceinline__ void st_shared_v4(uint32_t shared, const uint4 &v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

/* The lane, read anew: what is computed from it is not kept in registers across a loop. */
__device__ __forceinline__ uint32_t lane_id()
{
    uint32_t lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

/* threadIdx.x, likewise. */
__device__ __forceinline__ uint32_t thread_id()
{
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

/* (word & mask) | bits in one instruction. */
template <uint32_t mask, uint32_t bits>
__device__ __forceinline__ uint32_t lop3_and_or(uint32_t word)
{
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "n"(mask), "n"(bits));
    return result;
}

/* (word & mask) | bits, where the bits are a register. */
template <uint32_t mask>
__device__ __forceinline__ uint32_t lop3_and_or(uint32_t word, uint32_t bits)
{
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "n"(mask), "r"(bits));
    return result;
}

/* Bytes of a word as a selector of four nibbles says: 0 to 3 a byte, 8 to 11 the top bit of one,
 * eight times. */
__device__ __forceinline__ uint32_t prmt(uint32_t word, uint32_t selector)
{
    uint32_t result;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(result) : "r"(word), "r"(selector));
    return result;
}

/* Of each byte b: b ^ 0x80 where that of mask is 0xff, ~b where it is 0. */
__device__ __forceinline__ uint32_t lop3_negate(uint32_t word, uint32_t mask)
{
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0x4b;" : "=r"(result) : "r"(word), "r"(mask), "n"(0x80808080u));
    return result;
}

/* Two f32 as a pair of bf16, the first in the lower half; to nearest, ties to even. */
__device__ __forceinline__ uint32_t cvt_rn_bf16x2(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ uint32_t sub_f16x2(uint32_t a, uint32_t b)
{
    uint32_t difference;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
    return difference;
}

__device__ __forceinline__ uint32_t mul_f16x2(uint32_t a, uint32_t b)
{
    uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

/* There is no product before Hopper, but a sum with it: -0 changes none. */
__device__ __forceinline__ uint32_t mul_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
    return product;
}

__device__ __forceinline__ uint32_t sub_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t difference = 0;
    PTX_SM90("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
    return difference;
}

/* d += a b: a is 16 x 16 row-major, b 16 x 8 column-major, d 16 x 8 in f32. */
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4],
                                                 const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Programmatic dependent launch: wait until what the kernel before wrote is visible; let the next
 * kernel start its prologue. No-ops before Hopper, where kernels never overlap. */
__device__ __forceinline__ void griddepcontrol_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void griddepcontrol_launch_dependents()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- Hopper ------------------------------------------------------------------------------------
 * mbarriers, bulk copies and warpgroup mma.
 */

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t n_arrivals)
{
    PTX_SM90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals));
}

/* Make initialised barriers visible to the copy engine. */
__device__ __forceinline__ void fence_mbarrier_init()
{
    PTX_SM90("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier)
{
    PTX_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t n_bytes)
{
    PTX_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(n_bytes)
             : "memory");
}

/* Wait until the phase of that parity is over. */
__device__ __forceinline__ void mbarrier_wait_parity(uint32_t barrier, uint32_t parity)
{
    PTX_SM90("{\n"
             ".reg .pred done;\n"
             "again:\n"
             "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
             "@!done bra again;\n"
             "}" ::"r"(barrier),
             "r"(parity)
             : "memory");
}

/* Both addresses and n_bytes are multiples of 16; the barrier counts the bytes. */
__device__ __forceinline__ void cp_async_bulk(uint32_t shared, const void *global, uint32_t n_bytes,
                                              uint32_t barrier)
{
    PTX_SM90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
             "[%3];" ::"r"(shared),
             "l"(global), "r"(n_bytes), "r"(barrier)
             : "memory");
}

/* The same of bytes that are read once: the L2 cache gives them up before others. */
__device__ __forceinline__ void cp_async_bulk_evict_first(uint32_t shared, const void *global,
                                                          uint32_t n_bytes, uint32_t barrier)
{
    PTX_SM90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
             "[%0], [%1], %2, [%3], %4;" ::"r"(shared),
             "l"(global), "r"(n_bytes), "r"(barrier), "l"(0x12f0000000000000ull)
             : "memory");
}

/* What this thread wrote to shared memory, for the tensor cores and the copy engine to see. */
__device__ __forceinline__ void fence_proxy_async()
{
    PTX_SM90("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Before the first of a run of wgmma that reads registers written by other instructions. */
__device__ __forceinline__ void wgmma_fence()
{
    PTX_SM90("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    PTX_SM90("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int n_pending> __device__ __forceinline__ void wgmma_wait()
{
    PTX_SM90("wgmma.wait_group.sync.aligned %0;" ::"n"(n_pending) : "memory");
}

/* ---- clusters ----
 * Addresses of shared memory are those of this CTA; the same place in another one is named by that
 * CTA's rank. */

__device__ __forceinline__ uint32_t cluster_ctarank()
{
    uint32_t rank = 0;
    PTX_SM90("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* The two halves of cluster_sync(); the first orders nothing, since that costs a fence of the whole
 * GPU, for which copies under way are waited for. */
__device__ __forceinline__ void cluster_arrive_relaxed()
{
    PTX_SM90("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait()
{
    PTX_SM90("barrier.cluster.wait.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_sync()
{
    PTX_SM90("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* Arrive at that barrier of the CTA of that rank. Orders what this thread did before in its own CTA
 * only, which is enough to say that something was read: to be seen in the other one, too, costs a
 * fence of the whole GPU. */
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier, uint32_t rank)
{
    PTX_SM90("{\n"
             ".reg .b32 remote;\n"
             "mapa.shared::cluster.u32 remote, %0, %1;\n"
             "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
             "}" ::"r"(barrier),
             "r"(rank)
             : "memory");
}

/* As cp_async_bulk(), to the same place of every CTA in mask; each one's barrier counts the bytes.
 */
__device__ __forceinline__ void cp_async_bulk_multicast(uint32_t shared, const void *global,
                                                        uint32_t n_bytes, uint32_t barrier,
                                                        uint16_t mask)
{
    PTX_SM90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
             "[%0], [%1], %2, [%3], %4;" ::"r"(shared),
             "l"(global), "r"(n_bytes), "r"(barrier), "h"(mask)
             : "memory");
}

/* A tile by its map, from column x and row y on, to the same place of every CTA in mask; each
 * one's barrier counts the bytes. */
__device__ __forceinline__ void cp_async_bulk_tensor_multicast(uint32_t shared, const void *map,
                                                               uint32_t x, uint32_t y,
                                                               uint32_t barrier, uint16_t mask)
{
    PTX_SM90("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
             ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
             "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
             : "memory");
}

/* ---- warpgroups ---- */

template <int n_registers> __device__ __forceinline__ void setmaxnreg_inc()
{
    PTX_SM90("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n_registers));
}

template <int n_registers> __device__ __forceinline__ void setmaxnreg_dec()
{
    PTX_SM90("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n_registers));
}

/* Be counted by those who wait there by bar_sync(), without waiting. */
__device__ __forceinline__ void bar_arrive(int barrier, uint32_t n_threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(n_threads) : "memory");
}

/* Wait as by bar_sync(), and hear whether any of them says so. */
__device__ __forceinline__ bool bar_red_or(int barrier, uint32_t n_threads, bool says_so)
{
    uint32_t any;
    asm volatile("{\n"
                 ".reg .pred in, out;\n"
                 "setp.ne.b32 in, %3, 0;\n"
                 "bar.red.or.pred out, %1, %2, in;\n"
                 "selp.b32 %0, 1, 0, out;\n"
                 "}"
                 : "=r"(any)
                 : "r"(barrier), "r"(n_threads), "r"((uint32_t)says_so)
                 : "memory");
    return any != 0;
}

/* Four 8 x 8 matrices of 16-bit elements, each transposed: a lane's register i is of matrix i as in
 * an mma fragment, its address that of row lane % 8 of matrix lane / 8. */
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t shared, const uint32_t (&v)[4])
{
    PTX_SM90("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
             "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
             : "memory");
}

/* The same, not transposed. */
__device__ __forceinline__ void stmatrix_x4(uint32_t shared, const uint32_t (&v)[4])
{
    PTX_SM90("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
             "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
             : "memory");
}

/* An 8 x 8 matrix of 16-bit elements, transposed, as lanes have one of an mma fragment. */
__device__ __forceinline__ uint32_t movmatrix_trans(uint32_t v)
{
    uint32_t transposed;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(v));
    return transposed;
}

/* Four 8 x 8 matrices of 16-bit elements, as stmatrix_x4() writes them. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t shared, uint32_t (&v)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(shared)
                 : "memory");
}
