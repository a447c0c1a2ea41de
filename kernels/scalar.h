/* scalar.h - one element of any type that numbers of a weight or of x have, at any address. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "ipc/base/dtype.h"
#include "ipc/base/f8.h"
#include "ipc/base/half.h"

/* scalar_load() - element `index` of an array of F32, F16, BF16, F8_E4M3, F8_E8M0, I8 or U8,
 * exactly. The array may be unaligned. */
static inline float scalar_load(const void *array, enum dtype dtype, uint64_t index)
{
    switch (dtype) {
    case DTYPE_F8_E4M3:
        return e4m3_to_f32(((const uint8_t *)array)[index]);
    case DTYPE_F8_E8M0:
        return e8m0_to_f32(((const uint8_t *)array)[index]);
    case DTYPE_U8:
        return (float)((const uint8_t *)array)[index];
    case DTYPE_I8:
        return (float)((const int8_t *)array)[index];
    default:
        break;
    }
    if (dtype == DTYPE_F32) {
        float value;
        memcpy(&value, (const char *)array + index * sizeof(value), sizeof(value));
        return value;
    }
    uint16_t bits;
    memcpy(&bits, (const char *)array + index * sizeof(bits), sizeof(bits));
    return dtype == DTYPE_F16 ? half_to_f32(bits) : bf16_to_f32(bits);
}
