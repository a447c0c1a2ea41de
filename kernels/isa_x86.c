/* isa_x86.c - CPU detection on x86-64.
 *
 * F16C has a CPUID bit that not every compiler's __builtin_cpu_supports() knows, so it is read by
 * hand; the builtin does the rest, the operating system's part (XGETBV) included. */
#include <cpuid.h>

#include "kernels/isa.h"

static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

enum isa isa_detect(void)
{
    if (!has_avx2()) {
        return ISA_PORTABLE;
    }
    return has_avx512() ? ISA_AVX512 : ISA_AVX2;
}
