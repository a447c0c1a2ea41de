/* strip.h - the packed layouts of weights in few bits on a GPU, "cuda-strip16-u4", "-u8", "-e4m3"
 * and "-e2m1": where things lie.
 *
 * A strip is 16 rows of W (columns of y), a slice 256 of k. A unit of a strip is 512 bytes, 32
 * lanes of 16 bytes, so that a warp's 16-byte loads are contiguous and nothing is shuffled: 64 of k
 * in 4-bit codes, 32 of k in 8-bit ones. In 4-bit codes word j of a lane is one A fragment of
 * mma.m16n8k16:
 *
 *   lane = 4 g + t, word j:   rows g and g + 8,   k = 32 (j / 2) + 8 t + 4 (j % 2) + {0, 1, 2, 3}
 *   nibble i and i + 4 (before rotation) are the even and odd half of register i of the fragment:
 *   register 0: row g,     k + {0, 1}        register 1: row g + 8, k + {0, 1}
 *   register 2: row g,     k + {2, 3}        register 3: row g + 8, k + {2, 3}
 *
 * In 8-bit codes words 2j and 2j + 1 are one fragment: rows g and g + 8, bytes k + {0, 1, 2, 3}
 * with k = 8 t + 4 j, as they are.
 *
 * k is permuted inside blocks of 32 only; lane t thereby needs elements 8t..8t+7 of a block of x,
 * which is one 16-byte load from a row as it lies in memory, whatever the group size. A word of
 * 4-bit codes is stored rotated left by 3, so that a nibble can be masked straight into the
 * mantissa of a bf16 (16 + code) or an f16 (128 + code).
 *
 * e4m3 lies as 8-bit codes do, but for the bytes of a word, which are k + {2, 0, 3, 1}: those of
 * registers 0 and 1 are then upper halves already. e2m1 lies in words as 4-bit codes do, the even
 * code of a register in the lower half and the odd one in the upper, but the bits of a half lie so
 * that they come by the fewest instructions to where a bf16 wants them, sign at 15, exponent at 7,
 * mantissa at 6: those of register 0 are there; those of registers 1 and 2 get there by shifts to
 * the left by 3 and 6; those of register 3, which are bits 10, 11, 13 and 14, by a shift to the
 * right by 10 and one product.
 *
 * A step is 16 slices (4096 of k; the last one may have fewer). A strip's step is a record:
 *
 *   codes    2 or 4 KiB a slice, unit after unit
 *   scales   as enum strip_scaling says, slice after slice
 *   zeros    byte pairs that lie as STRIP_SCALES_PAIRS does (weights with zero points)
 *
 * padded to 128 bytes. Records lie step by step, strip after strip, so that SMs which take strips
 * in turn read one moving window of memory. Before them comes perm (k x u32, with act-order),
 * behind them the scales of a float weight that has them for all of k, as it has them, then n x f32
 * column scales and n x bias in its own type, where there are any; each part is 256-byte aligned.
 *
 * k is padded to whole slices with the zero point as code, or with 0, n to whole strips likewise.
 * Groups of 32, 64 and 128 lie as they are; larger multiples of 128 and one group over all of k are
 * repeated for each 128. */
#pragma once

#include <stdint.h>

#define STRIP_N                    16u
#define STRIP_UNIT_K               64u
#define STRIP_SLICE_K              256u
#define STRIP_STEP_SLICES          16u
#define STRIP_UNIT_BYTES           512u
#define STRIP_CODES_BYTES          STRIP_CODES_BYTES_OF(4)
#define STRIP_CODES_BYTES_OF(bits) (STRIP_N * STRIP_SLICE_K * (bits) / 8u) /* of a slice */
#define STRIP_GROUP_MAX            128u
#define STRIP_RECORD_ALIGN         128u
#define STRIP_ROTATION             3u /* to the left */

/* What a slice's scales are. The order of a strip's rows is always g, then the halves g and g + 8.
 */
enum strip_scaling {
    STRIP_SCALES_PAIRS, /* 8 x n_groups words [g][group]: two of 16 bits; integer codes */
    STRIP_SCALES_STRIP, /* 2 x f32, for 128 of k each of the whole strip; 1 where the scales lie
                           behind the records */
    STRIP_SCALES_E8M0,  /* 8 x 8 byte pairs [g][group of 32] */
    STRIP_SCALES_E4M3,  /* 8 x 2 x 8 byte pairs [g][i][block of 32], for groups of 16: group 2 block
                           + i is that of lanes 2i and 2i + 1 of a quad */
};

/* What a reader must know of the records: see struct strip_shape. */
struct strip_records {
    const uint8_t *records;
    uint32_t n_strips;
    uint32_t n_slices;
    uint32_t code_bits;
    uint32_t slice_scale_bytes;
    uint32_t slice_zero_bytes;
};

#ifdef __CUDACC__
#define STRIP_FUNCTION static __host__ __device__ inline
#else
#define STRIP_FUNCTION static inline
#endif

/* strip_align() - bytes of a record with its padding. */
STRIP_FUNCTION uint32_t strip_align(uint32_t n_bytes)
{
    return (n_bytes + STRIP_RECORD_ALIGN - 1) / STRIP_RECORD_ALIGN * STRIP_RECORD_ALIGN;
}

/* strip_slice_parts() - where a slice's parts begin, in bytes from the start of the records. All
 * steps but the last are whole. */
struct strip_slice_parts {
    uint64_t codes;
    uint64_t scales;
    uint64_t zeros;
};

STRIP_FUNCTION struct strip_slice_parts strip_slice_parts(const struct strip_records *lie,
                                                          uint32_t i_strip, uint32_t i_slice)
{
    uint32_t codes_bytes = STRIP_CODES_BYTES_OF(lie->code_bits);
    uint32_t slice_bytes = codes_bytes + lie->slice_scale_bytes + lie->slice_zero_bytes;
    uint32_t i_step = i_slice / STRIP_STEP_SLICES;
    uint32_t i = i_slice % STRIP_STEP_SLICES;
    uint32_t n_left = lie->n_slices - i_step * STRIP_STEP_SLICES;
    uint32_t n = n_left < STRIP_STEP_SLICES ? n_left : STRIP_STEP_SLICES;
    uint64_t step = (uint64_t)i_step * lie->n_strips * strip_align(STRIP_STEP_SLICES * slice_bytes);
    uint64_t record = step + (uint64_t)i_strip * strip_align(n * slice_bytes);
    uint64_t scales = record + n * codes_bytes;
    struct strip_slice_parts parts;
    parts.codes = record + i * codes_bytes;
    parts.scales = scales + i * lie->slice_scale_bytes;
    parts.zeros = scales + n * lie->slice_scale_bytes + i * lie->slice_zero_bytes;
    return parts;
}

struct strip_place {
    uint32_t word_offset; /* bytes from the start of the slice */
    uint32_t shift;
};

/* strip_place_of() - where a 4-bit code lies in a slice: its word, and there its nibble before the
 * rotation. strip_byte_of() - where an 8-bit code does. i_row 0..15, i_k 0..255. */
STRIP_FUNCTION struct strip_place strip_place_of(uint32_t i_row, uint32_t i_k)
{
    uint32_t in_unit = i_k % STRIP_UNIT_K;
    uint32_t in_block = in_unit % 32;
    uint32_t lane = 4 * (i_row % 8) + in_block / 8;
    uint32_t word = 2 * (in_unit / 32) + in_block % 8 / 4;
    uint32_t nibble = i_row / 8 + 2 * (in_block % 4 / 2) + 4 * (in_block % 2);
    struct strip_place place;
    place.word_offset = i_k / STRIP_UNIT_K * STRIP_UNIT_BYTES + lane * 16 + word * 4;
    place.shift = 4 * nibble;
    return place;
}

STRIP_FUNCTION uint32_t strip_byte_of(uint32_t i_row, uint32_t i_k)
{
    uint32_t in_block = i_k % 32;
    uint32_t lane = 4 * (i_row % 8) + in_block / 8;
    uint32_t word = 2 * (in_block % 8 / 4) + i_row / 8;
    return i_k / 32 * STRIP_UNIT_BYTES + lane * 16 + word * 4 + in_block % 4;
}

/* strip_e4m3_of() - as strip_byte_of(), of an e4m3 code. */
STRIP_FUNCTION uint32_t strip_e4m3_of(uint32_t i_row, uint32_t i_k)
{
    uint32_t in_word = i_k % 4;
    return strip_byte_of(i_row, i_k - in_word) + (in_word < 2 ? 2 * in_word + 1 : 2 * in_word - 4);
}

/* strip_e2m1_of() - where an e2m1 code lies: its word, and there its bits. */
struct strip_e2m1_place {
    uint32_t word_offset; /* bytes from the start of the slice */
    uint32_t sign_shift;
    uint32_t exponent_shift; /* two bits */
    uint32_t mantissa_shift;
};

STRIP_FUNCTION struct strip_e2m1_place strip_e2m1_of(uint32_t i_row, uint32_t i_k)
{
    const uint8_t signs[4] = {15, 12, 9, 13};
    const uint8_t exponents[4] = {7, 4, 1, 10};
    const uint8_t mantissas[4] = {6, 3, 0, 14};
    uint32_t i_register = i_row % STRIP_N / 8 + 2 * (i_k % 4 / 2);
    uint32_t half = 16 * (i_k % 2);
    struct strip_e2m1_place place;
    place.word_offset = strip_place_of(i_row, i_k).word_offset;
    place.sign_shift = half + signs[i_register];
    place.exponent_shift = half + exponents[i_register];
    place.mantissa_shift = half + mantissas[i_register];
    return place;
}

/* strip_e2m1_code() - the code there. */
STRIP_FUNCTION uint32_t strip_e2m1_code(uint32_t word, const struct strip_e2m1_place *place)
{
    return (word >> place->sign_shift & 1u) << 3 | (word >> place->exponent_shift & 3u) << 1 |
           (word >> place->mantissa_shift & 1u);
}

/* Words of four codes, a byte each, of row g (upper) and row g + 8 (lower), lowest k first:
 * strip_u4_word() and strip_e2m1_word() hold both rows; strip_e4m3_word() one. */
STRIP_FUNCTION uint32_t strip_u4_nibbles(uint32_t bytes)
{
    return (bytes & 0xff0000ffu) | (bytes >> 8 & 0xff00u) | (bytes << 8 & 0xff0000u);
}

STRIP_FUNCTION uint32_t strip_u4_word(uint32_t upper, uint32_t lower)
{
    uint32_t word = strip_u4_nibbles(upper) | strip_u4_nibbles(lower) << 4;
    return word << STRIP_ROTATION | word >> (32 - STRIP_ROTATION);
}

STRIP_FUNCTION uint32_t strip_e4m3_word(uint32_t bytes)
{
    return (bytes >> 16 & 0xffu) | (bytes & 0xffu) << 8 | (bytes >> 24) << 16 |
           (bytes >> 8 & 0xffu) << 24;
}

STRIP_FUNCTION uint32_t strip_e2m1_word(uint32_t upper, uint32_t lower)
{
    uint32_t word = 0;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t code = (i < 4 ? upper : lower) >> 8 * (i % 4);
        struct strip_e2m1_place place = strip_e2m1_of(i / 4 * 8, i % 4);
        word |= (code >> 3 & 1u) << place.sign_shift | (code >> 1 & 3u) << place.exponent_shift |
                (code & 1u) << place.mantissa_shift;
    }
    return word;
}

/* strip_scale_index() - where the scale of an element lies in its slice, counted in scales, and its
 * zero point likewise. n_groups: of STRIP_SCALES_PAIRS. */
STRIP_FUNCTION uint32_t strip_scale_index(enum strip_scaling scaling, uint32_t n_groups,
                                          uint32_t i_row, uint32_t i_k)
{
    uint32_t g = i_row % 8;
    uint32_t half = i_row % STRIP_N / 8;
    uint32_t in_slice = i_k % STRIP_SLICE_K;
    switch (scaling) {
    case STRIP_SCALES_STRIP:
        return in_slice / STRIP_GROUP_MAX;
    case STRIP_SCALES_E8M0:
        return 2 * (g * 8 + in_slice / 32) + half;
    case STRIP_SCALES_E4M3:
        return 2 * ((g * 2 + in_slice % 32 / 16) * 8 + in_slice / 32) + half;
    default:
        return 2 * (g * n_groups + in_slice / (STRIP_SLICE_K / n_groups)) + half;
    }
}
