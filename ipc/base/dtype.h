/* dtype.h - element types of activations, products, scales and checkpoint tensors. The numbers are
 * part of the wire protocol. */
#pragma once

#include <stdint.h>

enum dtype {
    DTYPE_NONE = 0,
    DTYPE_F32 = 1,
    DTYPE_F16 = 2,
    DTYPE_BF16 = 3,
    DTYPE_F64 = 4,
    DTYPE_I8 = 5,
    DTYPE_U8 = 6,
    DTYPE_I16 = 7,
    DTYPE_U16 = 8,
    DTYPE_I32 = 9,
    DTYPE_U32 = 10,
    DTYPE_I64 = 11,
    DTYPE_U64 = 12,
    DTYPE_BOOL = 13,
    DTYPE_F8_E4M3 = 14,
    DTYPE_F8_E5M2 = 15,
    DTYPE_F8_E8M0 = 16,
    DTYPE_F4 = 17,
};

/* dtype_bits() - width of one element; 0 for NONE or an unknown number.
 * dtype_bytes() - the same in bytes; 0 for F4, whose elements are not whole bytes. */
uint32_t dtype_bits(enum dtype dtype);
uint32_t dtype_bytes(enum dtype dtype);

/* dtype_name() - "f16" style for people is lower case, "F16" is the safetensors spelling. Static;
 * "?" for an unknown number. */
const char *dtype_name(enum dtype dtype);
const char *dtype_safetensors_name(enum dtype dtype);

/* dtype_parse() - either spelling, exact case of one of them; DTYPE_NONE when unknown. */
enum dtype dtype_parse(const char *name);
