/* strip.h - the packed layouts of integer weights on a GPU, "cuda-strip16-u4" and "-u8": where
 * things lie.
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
 * A step is 16 slices (4096 of k; the last one may have fewer). A strip's step is a record:
 *
 *   codes    2 or 4 KiB a slice, unit after unit
 *   scales   a slice: 8 x n_groups words, word [g][group] = the 16-bit scales of rows g and g + 8
 *   zeros    likewise, byte pairs (weights with zero points)
 *
 * padded to 128 bytes. Records lie step by step, strip after strip, so that SMs which take strips
 * in turn read one moving window of memory. Before them comes perm (k x u32, with act-order),
 * behind them n x f32 column scales and n x bias in its own type, where there are any; each part is
 * 256-byte aligned.
 *
 * k is padded to whole slices with the zero point as code, n to whole strips likewise. Groups of
 * 32, 64 and 128 lie as they are; larger multiples of 128 and one group over all of k are repeated
 * for each 128. */
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
