/* values.c - see values.h. Only exact conversions: rounding is the daemon's business. */
#include "deploy/demo/values.h"

#include <math.h>
#include <string.h>

enum {
    F16_MANTISSA_BITS = 10,
    F16_EXPONENT_BIAS = 15,
    F32_MANTISSA_BITS = 23,
    F32_EXPONENT_BIAS = 127
};

double value_of_f16(uint16_t bits)
{
    int exponent = (bits >> F16_MANTISSA_BITS) & 0x1f;
    int mantissa = bits & 0x3ff;
    double sign = bits & 0x8000 ? -1.0 : 1.0;

    if (exponent == 0) {
        return sign * ldexp(mantissa, 1 - F16_EXPONENT_BIAS - F16_MANTISSA_BITS);
    }
    if (exponent == 0x1f) {
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    }
    return sign * ldexp(mantissa + 1024, exponent - F16_EXPONENT_BIAS - F16_MANTISSA_BITS);
}

static double value_of_bf16(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &word, sizeof(value));
    return (double)value;
}

static uint32_t f32_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static uint16_t f16_bits(float value)
{
    uint32_t bits = f32_bits(value);
    uint32_t exponent = (bits >> F32_MANTISSA_BITS) & 0xff;
    uint32_t sign = (bits >> 16) & 0x8000;

    if (exponent == 0) {
        return (uint16_t)sign;
    }
    exponent -= F32_EXPONENT_BIAS - F16_EXPONENT_BIAS;
    return (uint16_t)(sign | exponent << F16_MANTISSA_BITS |
                      (bits & 0x7fffff) >> (F32_MANTISSA_BITS - F16_MANTISSA_BITS));
}

size_t value_bytes(enum gemmd_dtype dtype)
{
    return dtype == GEMMD_F32 ? sizeof(float) : sizeof(uint16_t);
}

const char *value_name(enum gemmd_dtype dtype)
{
    return dtype == GEMMD_F32 ? "f32" : dtype == GEMMD_F16 ? "f16" : "bf16";
}

double value_roundoff(enum gemmd_dtype dtype)
{
    return dtype == GEMMD_F32 ? 0x1p-24 : dtype == GEMMD_F16 ? 0x1p-11 : 0x1p-8;
}

double value_load(const void *array, enum gemmd_dtype dtype, size_t i)
{
    if (dtype == GEMMD_F32) {
        return (double)((const float *)array)[i];
    }
    uint16_t bits = ((const uint16_t *)array)[i];
    return dtype == GEMMD_F16 ? value_of_f16(bits) : value_of_bf16(bits);
}

void value_store(void *array, enum gemmd_dtype dtype, size_t i, float value)
{
    if (dtype == GEMMD_F32) {
        ((float *)array)[i] = value;
    } else if (dtype == GEMMD_F16) {
        ((uint16_t *)array)[i] = f16_bits(value);
    } else {
        ((uint16_t *)array)[i] = (uint16_t)(f32_bits(value) >> 16);
    }
}
