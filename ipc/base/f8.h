/* f8.h - scalar conversions between binary32 and the floats of 8 and 4 bits of the OCP formats.
 *
 *   e4m3  sign, 4 bits of exponent, 3 of mantissa; the "fn" kind: up to 448, NaN 0x7f and 0xff, no
 *         infinity
 *   e5m2  up to 57344, infinities 0x7c and 0xfc, NaN above them
 *   e2m1  0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, in the low 4 bits of a byte
 *   e8m0  2^(code - 127), no sign, no zero; 0xff is NaN
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even, and saturates: what is larger than
 * the largest finite value, an infinity too, becomes that value with its sign; a negative value too
 * small becomes -0. Written without branches, so that a loop over it becomes vector code. Pure; any
 * thread. */
#pragma once

#include <stdint.h>
#include <string.h>

/* f8_bits_of() / f8_float_of() - a binary32 and its bits. */
static inline uint32_t f8_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float f8_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#define F8_NAN_BITS 0x7fc00000u
#define F8_INF_BITS 0x7f800000u

/* f8_widen() - the value of a finite code without its sign, of a format with that many bits of
 * mantissa and that bias. */
static inline float f8_widen(uint32_t code, uint32_t mantissa_bits, uint32_t bias)
{
    uint32_t exponent_of_ulp = 128 - bias - mantissa_bits; /* biased; of the subnormals */
    float subnormal = (float)(int32_t)code * f8_float_of(exponent_of_ulp << 23);
    uint32_t normal = (code << (23 - mantissa_bits)) + ((127 - bias) << 23);
    return code >> mantissa_bits == 0 ? subnormal : f8_float_of(normal);
}

/* f8_narrow() - the code nearest to a magnitude, given as bits of binary32 of a value that is not
 * above the largest finite one. Adding a power of two whose last place is that of the code rounds
 * it: the difference is the mantissa, hidden one included. */
static inline uint32_t f8_narrow(uint32_t magnitude, uint32_t mantissa_bits, uint32_t bias)
{
    uint32_t smallest_normal = (128 - bias) << 23;
    uint32_t binade = magnitude & F8_INF_BITS;
    binade = binade > smallest_normal ? binade : smallest_normal;
    uint32_t aligner = binade + ((23 - mantissa_bits) << 23);
    uint32_t mantissa = f8_bits_of(f8_float_of(magnitude) + f8_float_of(aligner)) - aligner;
    return ((binade - smallest_normal) >> (23 - mantissa_bits)) + mantissa;
}

/* f8_limit() - bits of a magnitude, or of the largest finite one if that is less. */
static inline uint32_t f8_limit(uint32_t magnitude, uint32_t max)
{
    return magnitude < max ? magnitude : max;
}

/* e4m3_from_f32() - NaN gives 0x7f, whatever its sign. */
static inline float e4m3_to_f32(uint8_t code)
{
    uint32_t magnitude = code & 0x7fu;
    uint32_t bits = f8_bits_of(f8_widen(magnitude, 3, 7)) | (code & 0x80u) << 24;
    return f8_float_of(magnitude == 0x7f ? F8_NAN_BITS : bits);
}

static inline uint8_t e4m3_from_f32(float value)
{
    uint32_t bits = f8_bits_of(value);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t code = f8_narrow(f8_limit(magnitude, 0x43e00000u), 3, 7) | (bits >> 24 & 0x80u);
    return (uint8_t)(magnitude > F8_INF_BITS ? 0x7f : code);
}

/* e5m2_from_f32() - NaN gives 0x7f; an infinity saturates as every large value does. */
static inline float e5m2_to_f32(uint8_t code)
{
    uint32_t magnitude = code & 0x7fu;
    uint32_t sign = (code & 0x80u) << 24;
    if (magnitude > 0x7c) {
        return f8_float_of(F8_NAN_BITS);
    }
    if (magnitude == 0x7c) {
        return f8_float_of(F8_INF_BITS | sign);
    }
    return f8_float_of(f8_bits_of(f8_widen(magnitude, 2, 15)) | sign);
}

static inline uint8_t e5m2_from_f32(float value)
{
    uint32_t bits = f8_bits_of(value);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t code = f8_narrow(f8_limit(magnitude, 0x47600000u), 2, 15) | (bits >> 24 & 0x80u);
    return (uint8_t)(magnitude > F8_INF_BITS ? 0x7f : code);
}

/* e2m1_to_f32() - of the low 4 bits. e2m1_from_f32() - 0..15; there is no NaN: one gives 6. */
static inline float e2m1_to_f32(uint8_t code)
{
    uint32_t bits = f8_bits_of(f8_widen(code & 0x7u, 1, 1)) | (code & 0x8u) << 28;
    return f8_float_of(bits);
}

static inline uint8_t e2m1_from_f32(float value)
{
    uint32_t bits = f8_bits_of(value);
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t code = f8_narrow(f8_limit(magnitude, 0x40c00000u), 1, 1) | (bits >> 28 & 0x8u);
    return (uint8_t)(magnitude > F8_INF_BITS ? 0x7 : code);
}

/* e8m0_from_f32() - zero gives 2^-127, the smallest; NaN and negative values give NaN. */
static inline float e8m0_to_f32(uint8_t code)
{
    if (code == 0) {
        return 0x1p-127f;
    }
    return f8_float_of(code == 0xff ? F8_NAN_BITS : (uint32_t)code << 23);
}

static inline uint8_t e8m0_from_f32(float value)
{
    uint32_t bits = f8_bits_of(value);
    if (!(value >= 0)) {
        return 0xff;
    }
    if ((bits & 0x7fffffffu) < 0x00800000u) { /* between 2^-127 and 2^-126, or nearer to neither */
        return bits << 1 > 0x00c00000u ? 1 : 0;
    }
    uint32_t rounded = (bits + 0x3fffffu + (bits >> 23 & 1u)) >> 23;
    return (uint8_t)(rounded < 0xfe ? rounded : 0xfe);
}
