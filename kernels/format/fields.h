/* fields.h - fields of 4 and 8 bits in little-endian words, at any address; lowest bits first. */
#pragma once

#include <stdint.h>

/* field_word() - word i_word of an array of 32-bit words. */
static inline uint32_t field_word(const void *words, uint64_t i_word)
{
    const uint8_t *bytes = (const uint8_t *)words + i_word * 4;
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

/* field_of() - field i_field of a word. */
static inline uint8_t field_of(uint32_t word, uint32_t bits, uint32_t i_field)
{
    return (uint8_t)(word >> (bits * i_field) & ((1u << bits) - 1));
}
