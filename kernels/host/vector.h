/* vector.h - what the AVX2 and AVX-512 files of the host share by name. */
#pragma once

#include "kernels/host/panel.h"

/* n elements of a type to float; and a panel of HOST_PANEL_N floats to a type, rounding to nearest
 * even. */
void avx2_widen(const void *source, enum dtype dtype, uint64_t n, float *values);
void avx2_narrow(const float *values, enum dtype dtype, void *target);

/* The same bits with AVX-512. */
void avx512_widen(const void *source, enum dtype dtype, uint64_t n, float *values);
void avx512_narrow(const float *values, enum dtype dtype, void *target);
