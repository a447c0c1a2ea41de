/* rows.h - the registry's rows of the host, and how one is made. */
#pragma once

#include "kernels/host/panel.h"

extern const struct gk_kernel portable_int4_gemm_group;
extern const struct gk_kernel portable_int8_gemm_group;
extern const struct gk_kernel portable_fp8_gemm_group;
extern const struct gk_kernel portable_fp4_gemm_group;
extern const struct gk_kernel portable_plain_gemm;
extern const struct gk_kernel avx2_int4_gemm_group;
extern const struct gk_kernel avx2_int8_gemm_group;
extern const struct gk_kernel avx2_fp8_gemm_group;
extern const struct gk_kernel avx2_fp4_gemm_group;
extern const struct gk_kernel avx2_plain_gemm;
extern const struct gk_kernel avx512_int4_gemm_group;
extern const struct gk_kernel avx512_int8_gemm_group;
extern const struct gk_kernel avx512_fp8_gemm_group;
extern const struct gk_kernel avx512_fp4_gemm_group;
extern const struct gk_kernel avx512_plain_gemm;

/* HOST_ROW() - define a registry row of a set of codes from a host_ops and host_rates. The
 * functions of a row get no context, so each row has its own four, which only name the row's
 * constants. */
#define HOST_ROW(row, codes, codes_text, host_ops, host_rates, tile_text)                          \
    static int row##_can_implement(const struct gk_problem *problem, struct reason *why)           \
    {                                                                                              \
        return host_can_implement(problem, (host_ops).isa, codes, codes_text, why);                \
    }                                                                                              \
    static double row##_predicted_usec(const struct gk_problem *problem, uint32_t n_threads)       \
    {                                                                                              \
        return host_predicted_usec(problem, &(host_rates), n_threads);                             \
    }                                                                                              \
    static void row##_prepare(const struct gk_launch *launch, uint32_t i_part, uint32_t n_parts)   \
    {                                                                                              \
        host_prepare(launch, &(host_ops), i_part, n_parts);                                        \
    }                                                                                              \
    static void row##_run(const struct gk_launch *launch, uint32_t i_part, uint32_t n_parts)       \
    {                                                                                              \
        host_run(launch, &(host_ops), i_part, n_parts);                                            \
    }                                                                                              \
    const struct gk_kernel row = {                                                                 \
        .name = #row,                                                                              \
        .device_kind = GK_DEVICE_HOST,                                                             \
        .tile = tile_text,                                                                         \
        .numerics = "host",                                                                        \
        .can_implement = row##_can_implement,                                                      \
        .workspace_bytes = host_workspace_bytes,                                                   \
        .predicted_usec = row##_predicted_usec,                                                    \
        .prepare = row##_prepare,                                                                  \
        .run = row##_run,                                                                          \
    };
