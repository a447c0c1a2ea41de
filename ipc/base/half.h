/* half.h - scalar conversions between binary32, binary16 and bfloat16.
 *
 * Narrowing rounds to nearest, ties to even; overflow gives an infinity; every NaN becomes the
 * quiet NaN 0x7e00 (binary16) or 0x7fc0 (bfloat16). Widening is exact. Portable C: the vector
 * kernels must give the same bits, and tests hold them to it over all codes. */
#pragma once

#include <stdint.h>

/* half_*: binary16. bf16_*: bfloat16. Pure; any thread. */
float half_to_f32(uint16_t bits);
uint16_t half_from_f32(float value);
float bf16_to_f32(uint16_t bits);
uint16_t bf16_from_f32(float value);
