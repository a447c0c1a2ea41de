/* wgmma_tile.cuh - warpgroup mma for large tiles: d (64 x n, f32) = a (64 x 16) b (16 x n), plus d
 * where it is to be added to. a: in registers, or in shared memory as b is; b: as in wgmma.cuh. */
#pragma once

#include "kernels/cuda/wgmma.cuh"

#define WGMMA_D32(i) WGMMA_D8(i), WGMMA_D8((i) + 8), WGMMA_D8((i) + 16), WGMMA_D8((i) + 24)
#define WGMMA_D8(i)                                                                                \
    "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]),            \
        "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])

#define WGMMA_32                                                                                   \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

#define WGMMA_64                                                                                   \
    WGMMA_32 ", "                                                                                  \
             "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "    \
             "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define WGMMA_96                                                                                   \
    WGMMA_64 ", "                                                                                  \
             "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "    \
             "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

#define WGMMA_128                                                                                  \
    WGMMA_96 ", "                                                                                  \
             "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "    \
             "%110, %111, "                                                                        \
             "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "      \
             "%125, %126, %127"

/* A wgmma of n columns: d, then a, the descriptor of b, and whether to add, which are the operands
 * behind the registers of d. */
#define WGMMA_ASM(type, n, d, a, b, is_added)                                                      \
    "{\n.reg .pred add;\n"                                                                         \
    "setp.ne.b32 add, " is_added ", 0;\n"                                                          \
    "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" d "}, {" a "}, " b         \
    ", add, 1, 1, 0;\n}"
/* The same with the descriptors of a and b. */
#define WGMMA_ASM_SHARED(type, n, d, a, b, is_added)                                               \
    "{\n.reg .pred add;\n"                                                                         \
    "setp.ne.b32 add, " is_added ", 0;\n"                                                          \
    "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" d "}, " a ", " b           \
    ", add, 1, 1, 0, 0;\n}"
#define WGMMA_IN_SHARED "l"(a), "l"(b), "r"((int)is_added)
#define WGMMA_IN        "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)is_added)

template <typename element, int n> struct wgmma_tile;

#define WGMMA_TILE(element, type)                                                                  \
    template <> struct wgmma_tile<element, 64> {                                                   \
        static __device__ __forceinline__ void multiply(float (&d)[32], const uint32_t (&a)[4],    \
                                                        uint64_t b, bool is_added)                 \
        {                                                                                          \
            PTX_SM90(WGMMA_ASM(type, "64", WGMMA_32, "%32, %33, %34, %35", "%36", "%37")           \
                     : WGMMA_D32(0)                                                                \
                     : WGMMA_IN);                                                                  \
        }                                                                                          \
        static __device__ __forceinline__ void multiply(float (&d)[32], uint64_t a, uint64_t b,    \
                                                        bool is_added)                             \
        {                                                                                          \
            PTX_SM90(WGMMA_ASM_SHARED(type, "64", WGMMA_32, "%32", "%33", "%34")                   \
                     : WGMMA_D32(0)                                                                \
                     : WGMMA_IN_SHARED);                                                           \
        }                                                                                          \
    };                                                                                             \
    template <> struct wgmma_tile<element, 128> {                                                  \
        static __device__ __forceinline__ void multiply(float (&d)[64], const uint32_t (&a)[4],    \
                                                        uint64_t b, bool is_added)                 \
        {                                                                                          \
            PTX_SM90(WGMMA_ASM(type, "128", WGMMA_64, "%64, %65, %66, %67", "%68", "%69")          \
                     : WGMMA_D32(0), WGMMA_D32(32)                                                 \
                     : WGMMA_IN);                                                                  \
        }                                                                                          \
        static __device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b,    \
                                                        bool is_added)                             \
        {                                                                                          \
            PTX_SM90(WGMMA_ASM_SHARED(type, "128", WGMMA_64, "%64", "%65", "%66")                  \
                     : WGMMA_D32(0), WGMMA_D32(32)                                                 \
                     : WGMMA_IN_SHARED);                                                           \
        }                                                                                          \
    };                                                                                             \
    template <> struct wgmma_tile<element, 192> {                                                  \
        static __device__ __forceinline__ void multiply(float (&d)[96], const uint32_t (&a)[4],    \
                                                        uint64_t b, bool is_added)                 \
        {                                                                                          \
            PTX_SM90(WGMMA_ASM(type, "192", WGMMA_96, "%96, %97, %98, %99", "%100", "%101")        \
                     : WGMMA_D32(0), WGMMA_D32(32), WGMMA_D32(64)                                  \
                     : WGMMA_IN);                                                                  \
        }                                                                                          \
    };                                                                                             \
    template <> struct wgmma_tile<element, 256> {                                                  \
        static __device__ __forceinline__ void multiply(float (&d)[128], const uint32_t (&a)[4],   \
                                                        uint64_t b, bool is_added)                 \
        {                                                                                          \
            PTX_SM90(WGMMA_ASM(type, "256", WGMMA_128, "%128, %129, %130, %131", "%132", "%133")   \
                     : WGMMA_D32(0), WGMMA_D32(32), WGMMA_D32(64), WGMMA_D32(96)                   \
                     : WGMMA_IN);                                                                  \
        }                                                                                          \
        static __device__ __forceinline__ void multiply(float (&d)[128], uint64_t a, uint64_t b,   \
                                                        bool is_added)                             \
        {                                                                                          \
            PTX_SM90(WGMMA_ASM_SHARED(type, "256", WGMMA_128, "%128", "%129", "%130")              \
                     : WGMMA_D32(0), WGMMA_D32(32), WGMMA_D32(64), WGMMA_D32(96)                   \
                     : WGMMA_IN_SHARED);                                                           \
        }                                                                                          \
    };

WGMMA_TILE(wgmma_bf16, "bf16")
WGMMA_TILE(wgmma_f16, "f16")

/* Between waiting for a product and reading it: the compiler moves no reading across. */
template <int n> __device__ __forceinline__ void wgmma_hold(float (&d)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

#undef WGMMA_TILE
#undef WGMMA_IN
#undef WGMMA_ASM
#undef WGMMA_ASM_SHARED
#undef WGMMA_IN_SHARED
#undef WGMMA_128
#undef WGMMA_96
#undef WGMMA_64
#undef WGMMA_32
#undef WGMMA_D32
#undef WGMMA_D8
