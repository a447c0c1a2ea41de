/* wgmma_first.cuh - warpgroup mma that starts a chain: d (64 x n, f32) = a (64 x 16) b (16 x n), in
 * bf16, a in registers and b in shared memory, as in wgmma.cuh. Others may go on adding to d. */
#pragma once

#include "kernels/cuda/wgmma_tile.cuh"

template <int n> struct wgmma_first;

template <> struct wgmma_first<32> {
    static __device__ __forceinline__ void multiply(float (&d)[16], const uint32_t (&a)[4],
                                                    uint64_t b)
    {
        PTX_SM90("{\n.reg .pred add;\n"
                 "setp.ne.b32 add, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, "
                 "%17, %18, %19}, %20, add, 1, 1, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};

template <> struct wgmma_first<48> {
    static __device__ __forceinline__ void multiply(float (&d)[24], const uint32_t (&a)[4],
                                                    uint64_t b)
    {
        PTX_SM90("{\n.reg .pred add;\n"
                 "setp.ne.b32 add, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                 "%18, %19, %20, %21, %22, %23}, {%24, %25, %26, %27}, %28, add, 1, 1, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};

template <> struct wgmma_first<64> {
    static __device__ __forceinline__ void multiply(float (&d)[32], const uint32_t (&a)[4],
                                                    uint64_t b)
    {
        wgmma_tile<wgmma_bf16, 64>::multiply(d, a, b, false);
    }
};
