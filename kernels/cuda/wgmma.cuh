/* wgmma.cuh - warpgroup mma of 16-bit operands: d (64 x n, f32) = a (64 x 16) b (16 x n), plus d
 * where it is to be added to. b is in shared memory as a matrix descriptor says; a is in registers,
 * or in shared memory likewise. */
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/wgmma_operands.cuh"

/* The descriptor of a K-major tile of 16-bit elements in rows of 128 bytes, swizzled in groups of
 * eight rows (1024 bytes, and so aligned): its lower half for the tile's address in shared memory,
 * to which 2 is added for each 16 elements along k, and a 16th of the bytes to another tile. The
 * upper half is the same for all. */
__device__ __forceinline__ uint32_t wgmma_descriptor_low(uint32_t shared)
{
    constexpr uint32_t unused = 1u << 16;
    return unused | (shared & 0x3ffffu) >> 4;
}

__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t low)
{
    constexpr uint64_t swizzle_128b = 1ull << 62;
    constexpr uint64_t group_bytes = 1024ull >> 4 << 32;
    return swizzle_128b | group_bytes | low;
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

struct wgmma_bf16 {};
struct wgmma_f16 {};

template <typename element, int n> struct wgmma;

#define WGMMA_ASM(type, n, n_sums, a_names, b_name, is_added_name, transposed)                     \
    "{\n"                                                                                          \
    ".reg .pred is_added;\n"                                                                       \
    "setp.ne.b32 is_added, " is_added_name ", 0;\n"                                                \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" WGMMA_NAMES_##n_sums      \
        "}, " a_names ", " b_name ", is_added, 1, 1" transposed ";\n"                              \
        "}"

/* operand_1 to operand_6: names of the operands behind the n_sums sums. */
#define WGMMA(element, type, n, n_sums, operand_1, operand_2, operand_3, operand_4, operand_5,     \
              operand_6)                                                                           \
    template <> struct wgmma<element, n> {                                                         \
        static __device__ __forceinline__ void                                                     \
        multiply(float (&d)[n_sums], const uint32_t (&a)[4], uint64_t b, bool is_added = true)     \
        {                                                                                          \
            PTX_SM90(WGMMA_ASM(type, n, n_sums,                                                    \
                               "{" operand_1 ", " operand_2 ", " operand_3 ", " operand_4 "}",     \
                               operand_5, operand_6, ", 0")                                        \
                     : WGMMA_OPERANDS_##n_sums("+f", d, 0)                                         \
                     : WGMMA_OPERANDS_4("r", a, 0), "l"(b), "r"(static_cast<int>(is_added)));      \
        }                                                                                          \
        static __device__ __forceinline__ void multiply(float (&d)[n_sums], uint64_t a,            \
                                                        uint64_t b, bool is_added = true)          \
        {                                                                                          \
            PTX_SM90(WGMMA_ASM(type, n, n_sums, operand_1, operand_2, operand_3, ", 0, 0")         \
                     : WGMMA_OPERANDS_##n_sums("+f", d, 0)                                         \
                     : "l"(a), "l"(b), "r"(static_cast<int>(is_added)));                           \
        }                                                                                          \
    }

#define WGMMA_BOTH(...)                                                                            \
    WGMMA(wgmma_bf16, "bf16", __VA_ARGS__);                                                        \
    WGMMA(wgmma_f16, "f16", __VA_ARGS__)

WGMMA_BOTH(16, 8, "%8", "%9", "%10", "%11", "%12", "%13");
WGMMA_BOTH(32, 16, "%16", "%17", "%18", "%19", "%20", "%21");
WGMMA_BOTH(48, 24, "%24", "%25", "%26", "%27", "%28", "%29");
WGMMA_BOTH(64, 32, "%32", "%33", "%34", "%35", "%36", "%37");
WGMMA_BOTH(128, 64, "%64", "%65", "%66", "%67", "%68", "%69");
WGMMA_BOTH(192, 96, "%96", "%97", "%98", "%99", "%100", "%101");
WGMMA_BOTH(256, 128, "%128", "%129", "%130", "%131", "%132", "%133");

#undef WGMMA_BOTH
#undef WGMMA
#undef WGMMA_ASM
