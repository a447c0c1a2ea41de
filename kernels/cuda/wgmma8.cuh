/* wgmma8.cuh - warpgroup mma of 8-bit operands, both in shared memory: d (64 x n) = a (64 x 32) b
 * (32 x n), or += with is_sum. e4m3 is summed in f32, int8 in int32. One function for each type and
 * n. */
#pragma once

#include "kernels/cuda/wgmma.cuh"

/* The descriptor of a K-major tile of 8-bit elements, rows of 128 bytes swizzled in groups of eight
 * (1024 bytes), where groups lie group_bytes apart. 2 is added for each 32 elements along k. */
__device__ __forceinline__ uint64_t wgmma8_descriptor(uint32_t shared, uint32_t group_bytes)
{
    constexpr uint64_t swizzle_128b = 1ull << 62;
    return swizzle_128b | static_cast<uint64_t>(group_bytes >> 4) << 32 |
           wgmma_descriptor_low(shared);
}

/* After a wait: what the compiler knows of these registers is out of date. Without it, it moves
 * additions before the wait. */
template <int n> __device__ __forceinline__ void wgmma_changed(float (&d)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

template <int n> __device__ __forceinline__ void wgmma_changed(int32_t (&d)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        asm volatile("" : "+r"(d[i])::"memory");
    }
}

struct wgmma_e4m3 {
    using sum = float;
};
struct wgmma_s8 {
    using sum = int32_t;
};

template <typename element, int n> struct wgmma8;

template <> struct wgmma8<wgmma_e4m3, 8> {
    static __device__ __forceinline__ void multiply(float (&d)[4], uint64_t a, uint64_t b,
                                                    int is_sum)
    {
        PTX_SM90("{\n"
                 ".reg .pred is_sum;\n"
                 "setp.ne.b32 is_sum, %6, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 "
                 "{%0, %1, %2, %3}, %4, %5, is_sum, 1, 1;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(a), "l"(b), "r"(is_sum));
    }
};

template <> struct wgmma8<wgmma_e4m3, 16> {
    static __device__ __forceinline__ void multiply(float (&d)[8], uint64_t a, uint64_t b,
                                                    int is_sum)
    {
        PTX_SM90("{\n"
                 ".reg .pred is_sum;\n"
                 "setp.ne.b32 is_sum, %10, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, is_sum, 1, 1;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b), "r"(is_sum));
    }
};

template <> struct wgmma8<wgmma_e4m3, 32> {
    static __device__ __forceinline__ void multiply(float (&d)[16], uint64_t a, uint64_t b,
                                                    int is_sum)
    {
        PTX_SM90("{\n"
                 ".reg .pred is_sum;\n"
                 "setp.ne.b32 is_sum, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, "
                 "%17, is_sum, 1, 1;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                 : "l"(a), "l"(b), "r"(is_sum));
    }
};

template <> struct wgmma8<wgmma_e4m3, 64> {
    static __device__ __forceinline__ void multiply(float (&d)[32], uint64_t a, uint64_t b,
                                                    int is_sum)
    {
        PTX_SM90("{\n"
                 ".reg .pred is_sum;\n"
                 "setp.ne.b32 is_sum, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, "
                 "is_sum, 1, 1;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(is_sum));
    }
};

template <> struct wgmma8<wgmma_e4m3, 128> {
    static __device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b,
                                                    int is_sum)
    {
        PTX_SM90(
            "{\n"
            ".reg .pred is_sum;\n"
            "setp.ne.b32 is_sum, %66, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
            "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
            "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
            "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, is_sum, 1, 1;\n"
            "}"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
              "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]),
              "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
              "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
              "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
              "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
              "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
              "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
              "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),
              "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]),
              "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
            : "l"(a), "l"(b), "r"(is_sum));
    }
};

template <> struct wgmma8<wgmma_s8, 8> {
    static __device__ __forceinline__ void multiply(int32_t (&d)[4], uint64_t a, uint64_t b,
                                                    int is_sum)
    {
        PTX_SM90("{\n"
                 ".reg .pred is_sum;\n"
                 "setp.ne.b32 is_sum, %6, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 "
                 "{%0, %1, %2, %3}, %4, %5, is_sum;\n"
                 "}"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "l"(a), "l"(b), "r"(is_sum));
    }
};

template <> struct wgmma8<wgmma_s8, 16> {
    static __device__ __forceinline__ void multiply(int32_t (&d)[8], uint64_t a, uint64_t b,
                                                    int is_sum)
    {
        PTX_SM90("{\n"
                 ".reg .pred is_sum;\n"
                 "setp.ne.b32 is_sum, %10, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, is_sum;\n"
                 "}"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]),
                   "+r"(d[6]), "+r"(d[7])
                 : "l"(a), "l"(b), "r"(is_sum));
    }
};

template <> struct wgmma8<wgmma_s8, 32> {
    static __device__ __forceinline__ void multiply(int32_t (&d)[16], uint64_t a, uint64_t b,
                                                    int is_sum)
    {
        PTX_SM90("{\n"
                 ".reg .pred is_sum;\n"
                 "setp.ne.b32 is_sum, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, "
                 "%17, is_sum;\n"
                 "}"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]),
                   "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]),
                   "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15])
                 : "l"(a), "l"(b), "r"(is_sum));
    }
};

template <> struct wgmma8<wgmma_s8, 64> {
    static __device__ __forceinline__ void multiply(int32_t (&d)[32], uint64_t a, uint64_t b,
                                                    int is_sum)
    {
        PTX_SM90(
            "{\n"
            ".reg .pred is_sum;\n"
            "setp.ne.b32 is_sum, %34, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
            "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, is_sum;\n"
            "}"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
              "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]),
              "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]),
              "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]),
              "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]),
              "+r"(d[31])
            : "l"(a), "l"(b), "r"(is_sum));
    }
};

template <> struct wgmma8<wgmma_s8, 128> {
    static __device__ __forceinline__ void multiply(int32_t (&d)[64], uint64_t a, uint64_t b,
                                                    int is_sum)
    {
        PTX_SM90(
            "{\n"
            ".reg .pred is_sum;\n"
            "setp.ne.b32 is_sum, %66, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
            "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
            "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
            "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, is_sum;\n"
            "}"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
              "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]),
              "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]),
              "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]),
              "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]),
              "+r"(d[31]), "+r"(d[32]), "+r"(d[33]), "+r"(d[34]), "+r"(d[35]), "+r"(d[36]),
              "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]), "+r"(d[41]), "+r"(d[42]),
              "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]), "+r"(d[48]),
              "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]),
              "+r"(d[55]), "+r"(d[56]), "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]),
              "+r"(d[61]), "+r"(d[62]), "+r"(d[63])
            : "l"(a), "l"(b), "r"(is_sum));
    }
};
