/* strip_codes.c - see strip_codes.h. Four consecutive k of a row always share a word, or lie in two
 * that are packed together, so that is the step. */
#include "kernels/layout/strip_codes.h"

#include <string.h>

#include "ipc/base/num.h"
#include "kernels/layout/strip.h"

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

/* ---- four codes of rows g and g + 8 ---- */

static void pack_u4(const struct slice_codes *codes, uint32_t g, uint32_t i_k, uint8_t *slice)
{
    uint32_t word =
        strip_u4_word(load_word(codes->rows[g] + i_k), load_word(codes->rows[g + 8] + i_k));
    store_word(slice + strip_place_of(g, i_k).word_offset, word);
}

static void pack_u8(const struct slice_codes *codes, uint32_t g, uint32_t i_k, uint8_t *slice)
{
    memcpy(slice + strip_byte_of(g, i_k), codes->rows[g] + i_k, 4);
    memcpy(slice + strip_byte_of(g + 8, i_k), codes->rows[g + 8] + i_k, 4);
}

static void pack_e4m3(const struct slice_codes *codes, uint32_t g, uint32_t i_k, uint8_t *slice)
{
    store_word(slice + strip_byte_of(g, i_k), strip_e4m3_word(load_word(codes->rows[g] + i_k)));
    store_word(slice + strip_byte_of(g + 8, i_k),
               strip_e4m3_word(load_word(codes->rows[g + 8] + i_k)));
}

static void pack_e2m1(const struct slice_codes *codes, uint32_t g, uint32_t i_k, uint8_t *slice)
{
    uint32_t word =
        strip_e2m1_word(load_word(codes->rows[g] + i_k), load_word(codes->rows[g + 8] + i_k));
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
        return (word >> STRIP_ROTATION | word << (32 - STRIP_ROTATION)) >> place.shift & 15;
    }
    struct strip_e2m1_place parts = strip_e2m1_of(i_row, i_k);
    return (uint8_t)strip_e2m1_code(word, &parts);
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
