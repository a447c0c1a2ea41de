/* vector.h - what the AVX2 and AVX-512 files of the host share by name. */
#pragma once

#include "kernels/host/panel.h"

void avx2_widen(const void *source, enum dtype dtype, uint64_t n, float *values);
void avx2_narrow(const float *values, enum dtype dtype, void *target);

void avx512_widen(const void *source, enum dtype dtype, uint64_t n, float *values);
void avx512_narrow(const float *values, enum dtype dtype, void *target);
