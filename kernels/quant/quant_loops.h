/* quant_loops.h - the loops of quant.c over the elements of a row, to be compiled once for each
 * instruction set: a file that includes this defines its quant_ops with QUANT_OPS().
 *
 * Infinities and NaN are found by the bits of a magnitude taken as an integer: all NaN are above
 * infinity there, and a maximum of integers has one answer in any order and any number of lanes.
 * The loops have no branches, so that a compiler makes vector code of them. */
#pragma once

#include "ipc/base/f8.h"
#include "kernels/quant/quant.h"

#define MAGNITUDE_MASK    0x7fffffffu
#define ROUNDING_CONSTANT 0x1.8p23f /* adding and subtracting it rounds what is below 2^22 */

/* The largest |x|; an infinity or a NaN if there is one. */
static float largest(const float *x, uint32_t n)
{
    int32_t max = 0;
    for (uint32_t i = 0; i < n; i++) {
        int32_t magnitude = (int32_t)(f8_bits_of(x[i]) & MAGNITUDE_MASK);
        max = magnitude > max ? magnitude : max;
    }
    return f8_float_of((uint32_t)max);
}

/* Integers in the order of the floats whose bits they are, and back: negative ones have their
 * magnitude complemented. NaN lie beyond the infinity of their sign. */
static int32_t ordered(uint32_t bits)
{
    return (int32_t)(bits ^ ((uint32_t) - (int32_t)(bits >> 31) & MAGNITUDE_MASK));
}

/* Smallest and largest of x and 0. */
static void range_of(const float *x, uint32_t n, float *ret_low, float *ret_high)
{
    int32_t low = 0;
    int32_t high = 0;
    for (uint32_t i = 0; i < n; i++) {
        int32_t value = ordered(f8_bits_of(x[i]));
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    *ret_low = f8_float_of((uint32_t)ordered((uint32_t)low));
    *ret_high = f8_float_of((uint32_t)ordered((uint32_t)high));
}

/* x / NaN is NaN, whose code is NaN. */
static void fp8_codes(const float *restrict x, uint32_t n, float scale, uint8_t *restrict codes)
{
    for (uint32_t i = 0; i < n; i++) {
        codes[i] = e4m3_from_f32(x[i] / scale);
    }
}

/* round(x / scale) + zero, saturated. A NaN fails the first comparison, so that it has a code too.
 * Limits are applied before the rounding, which they commute with. */
static void int8_codes(const float *restrict x, uint32_t n, float scale, int32_t zero,
                       uint8_t *restrict codes)
{
    float low = (float)(-128 - zero);
    float high = (float)(127 - zero);
    for (uint32_t i = 0; i < n; i++) {
        float value = x[i] / scale;
        value = value > low ? value : low;
        value = value < high ? value : high;
        value = (value + ROUNDING_CONSTANT) - ROUNDING_CONSTANT;
        codes[i] = (uint8_t)((int32_t)value + zero);
    }
}

#define QUANT_OPS(name) const struct quant_ops name = {largest, range_of, fp8_codes, int8_codes}
