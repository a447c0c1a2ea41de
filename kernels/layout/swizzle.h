/* swizzle.h - the packed layout of 8-bit weights whose activations are 8-bit too, "cuda-swizzle8":
 * where things lie.
 *
 * An atom is 8 rows of W by 128 of k, 1 KiB, in the form in which wgmma reads shared memory: row r
 * is bytes 128 r to 128 r + 127, and its 16-byte unit u lies at unit u ^ r. So a block of the
 * weight comes to shared memory by one plain bulk copy, and no kernel shuffles anything.
 *
 * Atoms lie k block by k block, in each the groups of 8 rows in turn: any run of rows is one run of
 * memory, whatever number of rows a kernel takes, and SMs that go along k together read one moving
 * window. n is padded to whole groups and k to whole blocks, with zero bytes.
 *
 * e4m3 codes lie as they are; integer codes as signed bytes, 128 taken off. Behind them, each part
 * 256-byte aligned, those that there are: scales and zero points as in canonical form, n x i32 sums
 * of the signed bytes of each row (integer codes), n x f32 column scales, n x bias in its own type.
 */
#pragma once

#include <stdint.h>

#define SWIZZLE_ROWS       8u
#define SWIZZLE_K          128u
#define SWIZZLE_ATOM_BYTES 1024u

#ifdef __CUDACC__
#define SWIZZLE_FUNCTION static __host__ __device__ inline
#else
#define SWIZZLE_FUNCTION static inline
#endif

/* swizzle_byte_of() - where an element lies in its atom: row 0..7, k 0..127. */
SWIZZLE_FUNCTION uint32_t swizzle_byte_of(uint32_t i_row, uint32_t i_k)
{
    return i_row * SWIZZLE_K + ((i_k / 16 ^ i_row) * 16) + i_k % 16;
}
