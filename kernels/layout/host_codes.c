/* host_codes.c - see host_codes.h. Transpositions, a step of rows at a time for all columns, so
 * that both sides stay in the L1 cache. */
#include "kernels/layout/host_codes.h"

#include <string.h>

#include "ipc/base/num.h"

#define K_STEP           64u
#define WORDS_PER_ROW    16u
#define NIBBLE_ROW_BYTES (HOST_PANEL_N / 2)

uint32_t host_codes_bytes(enum gk_code code)
{
    return (uint32_t)num_max(1, gk_code_bits(code) / 8);
}

/* ---- 4 bits ---- */

/* Which byte of a row, and how far up in it. */
static uint32_t byte_of(uint32_t i_column)
{
    return 2 * (i_column % WORDS_PER_ROW) + i_column / (2 * WORDS_PER_ROW);
}

static uint32_t shift_of(uint32_t i_column)
{
    return 4 * (i_column / WORDS_PER_ROW % 2);
}

static void pack_nibbles(const uint8_t *column, uint32_t i_column, uint32_t n_k, uint8_t *rows)
{
    uint8_t *byte = rows + byte_of(i_column);
    uint32_t shift = shift_of(i_column);
    for (uint32_t i_k = 0; i_k < n_k; i_k++, byte += NIBBLE_ROW_BYTES) {
        *byte = (uint8_t)(*byte | column[i_k] << shift);
    }
}

static void unpack_nibbles(const uint8_t *rows, uint32_t i_column, uint32_t n_k, uint8_t *column)
{
    const uint8_t *byte = rows + byte_of(i_column);
    uint32_t shift = shift_of(i_column);
    for (uint32_t i_k = 0; i_k < n_k; i_k++, byte += NIBBLE_ROW_BYTES) {
        column[i_k] = *byte >> shift & 15;
    }
}

/* ---- whole bytes ---- */

/* n elements, so many bytes apart on either side. elem_bytes is a constant of each instance. */
static inline __attribute__((always_inline)) void copy_strided(const char *source,
                                                               uint64_t source_bytes, char *target,
                                                               uint64_t target_bytes, uint32_t n,
                                                               uint32_t elem_bytes)
{
    for (uint32_t i = 0; i < n; i++, source += source_bytes, target += target_bytes) {
        memcpy(target, source, elem_bytes);
    }
}

static void copy_elems(const char *source, uint64_t source_bytes, char *target,
                       uint64_t target_bytes, uint32_t n, uint32_t elem_bytes)
{
    switch (elem_bytes) {
    case 1:
        copy_strided(source, source_bytes, target, target_bytes, n, 1);
        return;
    case 2:
        copy_strided(source, source_bytes, target, target_bytes, n, 2);
        return;
    default:
        copy_strided(source, source_bytes, target, target_bytes, n, 4);
    }
}

/* ---- a panel ---- */

void host_codes_pack(const struct gk_desc *desc, const void *columns, uint32_t n_columns,
                     void *rows)
{
    uint32_t bits = gk_code_bits(desc->code);
    uint32_t elem_bytes = host_codes_bytes(desc->code);
    uint64_t row_bytes = HOST_PANEL_N * bits / 8;
    for (uint32_t i_k = 0; i_k < desc->k; i_k += K_STEP) {
        uint32_t n_k = (uint32_t)num_min(K_STEP, desc->k - i_k);
        char *step = (char *)rows + i_k * row_bytes;
        for (uint32_t i = 0; i < n_columns; i++) {
            const char *column = (const char *)columns + ((uint64_t)i * desc->k + i_k) * elem_bytes;
            if (bits == 4) {
                pack_nibbles((const uint8_t *)column, i, n_k, (uint8_t *)step);
            } else {
                copy_elems(column, elem_bytes, step + (uint64_t)i * elem_bytes, row_bytes, n_k,
                           elem_bytes);
            }
        }
    }
}

void host_codes_unpack(const struct gk_desc *desc, const void *rows, uint32_t n_columns,
                       void *columns)
{
    uint32_t bits = gk_code_bits(desc->code);
    uint32_t elem_bytes = host_codes_bytes(desc->code);
    uint64_t row_bytes = HOST_PANEL_N * bits / 8;
    for (uint32_t i_k = 0; i_k < desc->k; i_k += K_STEP) {
        uint32_t n_k = (uint32_t)num_min(K_STEP, desc->k - i_k);
        const char *step = (const char *)rows + i_k * row_bytes;
        for (uint32_t i = 0; i < n_columns; i++) {
            char *column = (char *)columns + ((uint64_t)i * desc->k + i_k) * elem_bytes;
            if (bits == 4) {
                unpack_nibbles((const uint8_t *)step, i, n_k, (uint8_t *)column);
            } else {
                copy_elems(step + (uint64_t)i * elem_bytes, row_bytes, column, elem_bytes, n_k,
                           elem_bytes);
            }
        }
    }
}
