/* fields.h - fields of 4 and 8 bits in little-endian words, at any address; lowest bits first. */
#pragma once

#include <endian.h>
#include <stdint.h>
#include <string.h>

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

/* field_unpack() - all fields of a word, one to a byte: 8 of 4 bits, 4 of 8 bits. */
static inline void field_unpack(uint32_t word, uint32_t bits, uint8_t *fields)
{
    if (bits == 8) {
        uint32_t bytes = htole32(word);
        memcpy(fields, &bytes, sizeof(bytes));
        return;
    }
    uint64_t spread = word; /* halves, then bytes, then nibbles move apart */
    spread = (spread | spread << 16) & 0x0000ffff0000ffffu;
    spread = (spread | spread << 8) & 0x00ff00ff00ff00ffu;
    spread = (spread | spread << 4) & 0x0f0f0f0f0f0f0f0fu;
    uint64_t bytes = htole64(spread);
    memcpy(fields, &bytes, sizeof(bytes));
}
