/* scalar.h - one element of any floating type, at any address. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ipc/base/dtype.h"
#include "ipc/base/half.h"

/* scalar_e4m3() - 4 bits of exponent with bias 7, 3 of mantissa, no infinities: 448 is the largest
 * value, 0x7f and 0xff are NaN. scalar_e2m1() - of the low 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and
 * their negatives. scalar_e8m0() - 2^(bits - 127); 255 is NaN. All exact. */
static inline float scalar_e4m3(uint8_t bits)
{
    int exponent = bits >> 3 & 15;
    int mantissa = bits & 7;
    float value =
        exponent == 0 ? ldexpf((float)mantissa, -9) : ldexpf((float)(8 + mantissa), exponent - 10);
    value = (bits & 0x7f) == 0x7f ? NAN : value;
    return (bits & 0x80) != 0 ? -value : value;
}

static inline float scalar_e2m1(uint8_t bits)
{
    static const float values[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    float value = values[bits & 7];
    return (bits & 8) != 0 ? -value : value;
}

static inline float scalar_e8m0(uint8_t bits)
{
    return bits == 255 ? NAN : ldexpf(1.0f, bits - 127);
}

/* scalar_load() - element `index` of an array of F32, F16, BF16, F8_E4M3 or F8_E8M0, exactly. The
 * array may be unaligned. */
static inline float scalar_load(const void *array, enum dtype dtype, uint64_t index)
{
    if (dtype == DTYPE_F32) {
        float value;
        memcpy(&value, (const char *)array + index * sizeof(value), sizeof(value));
        return value;
    }
    if (dtype == DTYPE_F8_E4M3) {
        return scalar_e4m3(((const uint8_t *)array)[index]);
    }
    if (dtype == DTYPE_F8_E8M0) {
        return scalar_e8m0(((const uint8_t *)array)[index]);
    }
    uint16_t bits;
    memcpy(&bits, (const char *)array + index * sizeof(bits), sizeof(bits));
    return dtype == DTYPE_F16 ? half_to_f32(bits) : bf16_to_f32(bits);
}
