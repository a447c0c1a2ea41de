/* vector.h - what the AVX2 and AVX-512 files of the host share by name. */
#pragma once

#include "kernels/host/panel.h"

/* vector_row_bytes() - of a row of a panel; a constant where the code is one. */
static inline __attribute__((always_inline)) uint32_t vector_row_bytes(enum gk_code code)
{
    switch (code) {
    case GK_CODE_F32:
        return HOST_PANEL_N * 4;
    case GK_CODE_F16:
    case GK_CODE_BF16:
        return HOST_PANEL_N * 2;
    case GK_CODE_U4:
    case GK_CODE_E2M1:
        return HOST_PANEL_N / 2;
    default:
        return HOST_PANEL_N;
    }
}

/* n elements of a type to float; and a panel of HOST_PANEL_N floats to a type, rounding to nearest
 * even. */
void avx2_widen(const void *source, enum dtype dtype, uint64_t n, float *values);
void avx2_narrow(const float *values, enum dtype dtype, void *target);

/* The same bits with AVX-512. */
void avx512_widen(const void *source, enum dtype dtype, uint64_t n, float *values);
void avx512_narrow(const float *values, enum dtype dtype, void *target);
