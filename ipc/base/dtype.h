/* dtype.h - element types of activations, products, scales and checkpoint tensors. The numbers are
 * part of the wire protocol. */
#pragma once

#include <stdint.h>

/* X(name, value, bits, safetensors spelling) */
#define DTYPE_LIST(X)                                                                              \
    X(NONE, 0, 0, "none")                                                                          \
    X(F32, 1, 32, "F32")                                                                           \
    X(F16, 2, 16, "F16")                                                                           \
    X(BF16, 3, 16, "BF16")                                                                         \
    X(F64, 4, 64, "F64")                                                                           \
    X(I8, 5, 8, "I8")                                                                              \
    X(U8, 6, 8, "U8")                                                                              \
    X(I16, 7, 16, "I16")                                                                           \
    X(U16, 8, 16, "U16")                                                                           \
    X(I32, 9, 32, "I32")                                                                           \
    X(U32, 10, 32, "U32")                                                                          \
    X(I64, 11, 64, "I64")                                                                          \
    X(U64, 12, 64, "U64")                                                                          \
    X(BOOL, 13, 8, "BOOL")                                                                         \
    X(F8_E4M3, 14, 8, "F8_E4M3")                                                                   \
    X(F8_E5M2, 15, 8, "F8_E5M2")                                                                   \
    X(F8_E8M0, 16, 8, "F8_E8M0")                                                                   \
    X(F4, 17, 4, "F4")

enum dtype {
#define DTYPE_X(name, value, bits, text) DTYPE_##name = (value),
    DTYPE_LIST(DTYPE_X)
#undef DTYPE_X
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
