/* isa_x86.c - CPU detection on x86-64.
 *
 * F16C has a CPUID bit that not every compiler's __builtin_cpu_supports() knows, so it is read by
 * hand; the builtin does the rest, the operating system's part (XGETBV) included. */
#include <cpuid.h>
#include <stdatomic.h>

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

static enum isa ask_cpu(void)
{
    if (!has_avx2()) {
        return ISA_PORTABLE;
    }
    return has_avx512() ? ISA_AVX512 : ISA_AVX2;
}

/* Asked once: CPUID traps in a virtual machine and costs tens of microseconds there, and this is
 * called for every launch. Threads that race here find the same answer. */
enum isa isa_detect(void)
{
    static _Atomic int known = -1;
    int isa = atomic_load_explicit(&known, memory_order_relaxed);
    if (isa < 0) {
        isa = (int)ask_cpu();
        atomic_store_explicit(&known, isa, memory_order_relaxed);
    }
    return (enum isa)isa;
}
