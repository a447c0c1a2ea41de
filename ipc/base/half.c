#include "ipc/base/half.h"

#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

float half_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1f) {
        return float_of(sign | 0x7f800000u | mantissa << 13);
    }
    if (exponent == 0) {
        /* Subnormal: mantissa * 2^-24, exact in binary32. */
        float magnitude = (float)mantissa * 0x1p-24f;
        return float_of(sign | bits_of(magnitude));
    }
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* Shift right by n (1..31) and round to nearest, ties to even. */
static uint32_t shift_round(uint32_t value, uint32_t n)
{
    uint32_t half = 1u << (n - 1);
    uint32_t is_odd = (value >> n) & 1u;
    return (value + half - 1 + is_odd) >> n;
}

uint16_t half_from_f32(float value)
{
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0x7e00;
    }
    if (magnitude >= 0x47800000u) { /* 2^16 and more; 65520 and up round there by carry */
        return sign | 0x7c00;
    }
    if (magnitude >= 0x38800000u) { /* normal: a carry out of the mantissa raises the exponent */
        return (uint16_t)(sign | shift_round(magnitude - 0x38000000u, 13));
    }
    uint32_t exponent = magnitude >> 23;
    if (exponent < 102) { /* below 2^-25: rounds to zero */
        return sign;
    }
    uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | shift_round(mantissa, 126 - exponent));
}

float bf16_to_f32(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint16_t bf16_from_f32(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fc0;
    }
    uint32_t is_odd = (bits >> 16) & 1u;
    return (uint16_t)((bits + 0x7fffu + is_odd) >> 16);
}
