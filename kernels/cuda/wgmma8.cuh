/* wgmma8.cuh - warpgroup mma of 8-bit operands, b in shared memory, a there or in registers: d (64
 * x n) = a (64 x 32) b (32 x n), or += with is_sum. e4m3 is summed in f32, int8 in int32. One
 * function for each type and n. */
#pragma once

#include "kernels/cuda/wgmma.cuh"
#include "kernels/cuda/wgmma_operands.cuh"

/* The descriptor of a K-major tile of 8-bit elements, rows of 128 bytes swizzled in groups of eight
 * (1024 bytes), where groups lie group_bytes apart. 2 is added for each 32 elements along k. */
__device__ __forceinline__ uint64_t wgmma8_descriptor(uint32_t shared, uint32_t group_bytes)
{
    constexpr uint64_t swizzle_128b = 1ull << 62;
    return swizzle_128b | static_cast<uint64_t>(group_bytes >> 4) << 32 |
           wgmma_descriptor_low(shared);
}

struct wgmma_e4m3 {
    using sum = float;
};
struct wgmma_s8 {
    using sum = int32_t;
};

template <typename element, int n> struct wgmma8;

/* Behind the sums come a, b and whether to add. */
#define WGMMA8(element_, n_, n_sums, types, kind, a_name, b_name, is_sum_name, signs)              \
    template <> struct wgmma8<element_, n_> {                                                      \
        static __device__ __forceinline__ void multiply(element_::sum (&d)[n_sums], uint64_t a,    \
                                                        uint64_t b, int is_sum)                    \
        {                                                                                          \
            PTX_SM90("{\n"                                                                         \
                     ".reg .pred is_sum;\n"                                                        \
                     "setp.ne.b32 is_sum, " is_sum_name ", 0;\n"                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #n_ "k32." types                          \
                     " {" WGMMA_NAMES_##n_sums "}, " a_name ", " b_name ", is_sum" signs ";\n"     \
                                               "}"                                                 \
                     : WGMMA_OPERANDS_##n_sums(kind, d, 0)                                         \
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
                     "wgmma.mma_async.sync.aligned.m64n" #n_                                       \
                     "k32.f32.e4m3.e4m3 {" WGMMA_NAMES_##n_sums "}, {" a_names "}, " b_name        \
                                                                ", is_sum, 1, 1;\n"                \
                                                                "}"                                \
                     : WGMMA_OPERANDS_##n_sums("+f", d, 0)                                         \
                     : WGMMA_OPERANDS_4("r", a, 0), "l"(b), "r"(is_sum));                          \
        }                                                                                          \
    }

WGMMA8_REGISTERS(64, 32, "%32, %33, %34, %35", "%36", "%37");
WGMMA8_REGISTERS(128, 64, "%64, %65, %66, %67", "%68", "%69");
