/* wgmma8.cuh - warpgroup mma of 8-bit operands, b in shared memory, a there or in registers: d (64
 * x n) = a (64 x 32) b (32 x n), or += with is_sum. e4m3 is summed in f32, int8 in int32. One
 * function for each type and n. */
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

/* ---- the instructions, spelled by the preprocessor ---------------------------------------------
 * NAMES_n: the first n operands of an instruction, which are its sums; OPERANDS_n: elements of an
 * array from i on, as such operands of a kind of register. What follows the sums, and so has a
 * number that depends on n: the two descriptors, and whether to add. */

#define NAMES_4  "%0, %1, %2, %3"
#define NAMES_8  NAMES_4 ", %4, %5, %6, %7"
#define NAMES_16 NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32                                                                                   \
    NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64                                                                                   \
    NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
             "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_96                                                                                   \
    NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "  \
             "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_128                                                                                  \
    NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "  \
             "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "      \
             "%123, %124, %125, %126, %127"

#define OPERANDS_4(kind, d, i)   kind(d[i]), kind(d[i + 1]), kind(d[i + 2]), kind(d[i + 3])
#define OPERANDS_8(kind, d, i)   OPERANDS_4(kind, d, i), OPERANDS_4(kind, d, i + 4)
#define OPERANDS_16(kind, d, i)  OPERANDS_8(kind, d, i), OPERANDS_8(kind, d, i + 8)
#define OPERANDS_32(kind, d, i)  OPERANDS_16(kind, d, i), OPERANDS_16(kind, d, i + 16)
#define OPERANDS_64(kind, d, i)  OPERANDS_32(kind, d, i), OPERANDS_32(kind, d, i + 32)
#define OPERANDS_96(kind, d, i)  OPERANDS_64(kind, d, i), OPERANDS_32(kind, d, i + 64)
#define OPERANDS_128(kind, d, i) OPERANDS_64(kind, d, i), OPERANDS_64(kind, d, i + 64)

#define WGMMA8(element_, n_, n_sums, types, kind, a_name, b_name, is_sum_name, signs)              \
    template <> struct wgmma8<element_, n_> {                                                      \
        static __device__ __forceinline__ void multiply(element_::sum (&d)[n_sums], uint64_t a,    \
                                                        uint64_t b, int is_sum)                    \
        {                                                                                          \
            PTX_SM90("{\n"                                                                         \
                     ".reg .pred is_sum;\n"                                                        \
                     "setp.ne.b32 is_sum, " is_sum_name ", 0;\n"                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n_ "k32." types " {" NAMES_##n_sums      \
                     "}, " a_name ", " b_name ", is_sum" signs ";\n"                               \
                     "}"                                                                           \
                     : OPERANDS_##n_sums(kind, d, 0)                                               \
                     : "l"(a), "l"(b), "r"(is_sum));                                               \
        }                                                                                          \
    }

#define WGMMA8_E4M3(n, n_sums, a, b, is_sum)                                                       \
    WGMMA8(wgmma_e4m3, n, n_sums, "f32.e4m3.e4m3", "+f", a, b, is_sum, ", 1, 1")
#define WGMMA8_S8(n, n_sums, a, b, is_sum)                                                         \
    WGMMA8(wgmma_s8, n, n_sums, "s32.s8.s8", "+r", a, b, is_sum, "")

WGMMA8_E4M3(8, 4, "%4", "%5", "%6");
WGMMA8_E4M3(16, 8, "%8", "%9", "%10");
WGMMA8_E4M3(32, 16, "%16", "%17", "%18");
WGMMA8_E4M3(64, 32, "%32", "%33", "%34");
WGMMA8_E4M3(128, 64, "%64", "%65", "%66");
WGMMA8_E4M3(192, 96, "%96", "%97", "%98");
WGMMA8_E4M3(256, 128, "%128", "%129", "%130");
WGMMA8_S8(8, 4, "%4", "%5", "%6");
WGMMA8_S8(16, 8, "%8", "%9", "%10");
WGMMA8_S8(32, 16, "%16", "%17", "%18");
WGMMA8_S8(64, 32, "%32", "%33", "%34");
WGMMA8_S8(128, 64, "%64", "%65", "%66");
WGMMA8_S8(192, 96, "%96", "%97", "%98");
WGMMA8_S8(256, 128, "%128", "%129", "%130");

/* ---- a in registers ----------------------------------------------------------------------------
 * As mma.m16n8k32 has it for each warp's 16 rows: rows g and g + 8 of k 4 t to 4 t + 3, then of k
 * 16 more. They must not change before the wait. */

template <int n> struct wgmma8_registers;

#define WGMMA8_REGISTERS(n_, n_sums, a_names, b_name, is_sum_name)                                 \
    template <> struct wgmma8_registers<n_> {                                                      \
        static __device__ __forceinline__ void                                                     \
        multiply(float (&d)[n_sums], const uint32_t (&a)[4], uint64_t b, int is_sum)               \
        {                                                                                          \
            PTX_SM90("{\n"                                                                         \
                     ".reg .pred is_sum;\n"                                                        \
                     "setp.ne.b32 is_sum, " is_sum_name ", 0;\n"                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n_ "k32.f32.e4m3.e4m3 {" NAMES_##n_sums  \
                     "}, {" a_names "}, " b_name ", is_sum, 1, 1;\n"                               \
                     "}"                                                                           \
                     : OPERANDS_##n_sums("+f", d, 0)                                               \
                     : OPERANDS_4("r", a, 0), "l"(b), "r"(is_sum));                                \
        }                                                                                          \
    }

WGMMA8_REGISTERS(64, 32, "%32, %33, %34, %35", "%36", "%37");
WGMMA8_REGISTERS(128, 64, "%64, %65, %66, %67", "%68", "%69");
