/* strip_codes.c - see strip_codes.h. Four consecutive k of a row always share a word, or lie in two
 * that are packed together, so that is the step. */
#include "kernels/layout/strip_codes.h"

#include <string.h>

#include "ipc/base/num.h"
#include "kernels/layout/strip.h"

static uint32_t rotate_left(uint32_t word, uint32_t n_bits)
{
    return word << n_bits | word >> (32 - n_bits) % 32;
}

static uint32_t load_word(const uint8_t *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

static void store_word(uint8_t *bytes, uint32_t word)
{
    memcpy(bytes, &word, sizeof(word));
}

/* What multiplies to 0. */
static uint8_t padding_code(const struct gk_desc *desc)
{
    bool is_centred = gk_code_is_int(desc->code) && !desc->has_zeros;
    return is_centred ? (uint8_t)(1u << (gk_code_bits(desc->code) - 1)) : 0;
}

/* The codes of a slice, row after row. */
struct slice_codes {
    uint8_t rows[STRIP_N][STRIP_SLICE_K];
};

static void gather_codes(const struct gk_canonical *canonical, uint32_t first_n, uint32_t first_k,
                         struct slice_codes *codes)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_k = num_min(STRIP_SLICE_K, desc->k - first_k);
    uint64_t n_rows = num_min(STRIP_N, desc->n - first_n);
    if (n_k < STRIP_SLICE_K || n_rows < STRIP_N) {
        memset(codes, padding_code(desc), sizeof(*codes));
    }
    for (uint64_t i_row = 0; i_row < n_rows; i_row++) {
        const uint8_t *row = (const uint8_t *)canonical->codes + (first_n + i_row) * desc->k;
        memcpy(codes->rows[i_row], row + first_k, n_k);
    }
}

/* ---- four codes of rows g and g + 8 ------------------------------------------------------------
 */

/* A byte each: the even pair's nibbles 0 and 4, the odd pair's 2 and 6. */
static uint32_t u4_nibbles(uint32_t bytes)
{
    return (bytes & 0xff0000ffu) | (bytes >> 8 & 0xff00u) | (bytes << 8 & 0xff0000u);
}

static void pack_u4(const struct slice_codes *codes, uint32_t g, uint32_t i_k, uint8_t *slice)
{
    uint32_t upper = u4_nibbles(load_word(codes->rows[g] + i_k));
    uint32_t lower = u4_nibbles(load_word(codes->rows[g + 8] + i_k));
    store_word(slice + strip_place_of(g, i_k).word_offset,
               rotate_left(upper | lower << 4, STRIP_ROTATION));
}

static void pack_u8(const struct slice_codes *codes, uint32_t g, uint32_t i_k, uint8_t *slice)
{
    memcpy(slice + strip_byte_of(g, i_k), codes->rows[g] + i_k, 4);
    memcpy(slice + strip_byte_of(g + 8, i_k), codes->rows[g + 8] + i_k, 4);
}

static uint32_t e4m3_order(uint32_t bytes)
{
    return (bytes >> 16 & 0xffu) | (bytes & 0xffu) << 8 | (bytes >> 24) << 16 |
           (bytes >> 8 & 0xffu) << 24;
}

static void pack_e4m3(const struct slice_codes *codes, uint32_t g, uint32_t i_k, uint8_t *slice)
{
    store_word(slice + strip_byte_of(g, i_k), e4m3_order(load_word(codes->rows[g] + i_k)));
    store_word(slice + strip_byte_of(g + 8, i_k), e4m3_order(load_word(codes->rows[g + 8] + i_k)));
}

static void pack_e2m1(const struct slice_codes *codes, uint32_t g, uint32_t i_k, uint8_t *slice)
{
    uint32_t word = 0;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t i_row = g + i / 4 * 8;
        uint32_t code = codes->rows[i_row][i_k + i % 4];
        struct strip_e2m1_place place = strip_e2m1_of(i_row, i_k + i % 4);
        word |= (code & 7u) << place.magnitude_shift | (code >> 3 & 1u) << place.sign_shift;
    }
    store_word(slice + strip_place_of(g, i_k).word_offset, word);
}

/* ---- a slice ---- */

typedef void (*packer)(const struct slice_codes *codes, uint32_t g, uint32_t i_k, uint8_t *slice);

static packer packer_of(enum gk_code code)
{
    static const packer packers[] = {[GK_CODE_U4] = pack_u4,
                                     [GK_CODE_U8] = pack_u8,
                                     [GK_CODE_E4M3] = pack_e4m3,
                                     [GK_CODE_E2M1] = pack_e2m1};
    return packers[code];
}

void strip_pack_codes(const struct gk_canonical *canonical, uint32_t first_n, uint32_t first_k,
                      uint8_t *slice)
{
    struct slice_codes codes;
    gather_codes(canonical, first_n, first_k, &codes);
    packer pack = packer_of(canonical->desc.code);
    for (uint32_t g = 0; g < STRIP_N / 2; g++) {
        for (uint32_t i_k = 0; i_k < STRIP_SLICE_K; i_k += 4) {
            pack(&codes, g, i_k, slice);
        }
    }
}

static uint8_t packed_code(const uint8_t *slice, enum gk_code code, uint32_t i_row, uint32_t i_k)
{
    if (code == GK_CODE_U8) {
        return slice[strip_byte_of(i_row, i_k)];
    }
    if (code == GK_CODE_E4M3) {
        return slice[strip_e4m3_of(i_row, i_k)];
    }
    struct strip_place place = strip_place_of(i_row, i_k);
    uint32_t word = load_word(slice + place.word_offset);
    if (code == GK_CODE_U4) {
        return rotate_left(word, 32 - STRIP_ROTATION) >> place.shift & 15;
    }
    struct strip_e2m1_place parts = strip_e2m1_of(i_row, i_k);
    return (uint8_t)((word >> parts.magnitude_shift & 7u) | (word >> parts.sign_shift & 1u) << 3);
}

void strip_unpack_codes(const uint8_t *slice, uint32_t first_n, uint32_t first_k,
                        struct gk_canonical *canonical)
{
    const struct gk_desc *desc = &canonical->desc;
    uint8_t *codes = canonical->codes;
    uint32_t n_rows = (uint32_t)num_min(STRIP_N, desc->n - first_n);
    uint32_t n_k = (uint32_t)num_min(STRIP_SLICE_K, desc->k - first_k);
    for (uint32_t i_row = 0; i_row < n_rows; i_row++) {
        uint8_t *row = codes + (uint64_t)(first_n + i_row) * desc->k + first_k;
        for (uint32_t i = 0; i < n_k; i++) {
            row[i] = packed_code(slice, desc->code, i_row, i);
        }
    }
}
