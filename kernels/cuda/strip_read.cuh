/* strip_read.cuh - single elements of the layout of strip.h, for kernels that need no speed. */
#pragma once

#include "kernels/layout/strip.h"

/* Where a slice's parts begin. */
struct strip_slice {
    const uint8_t *codes;
    const uint8_t *scales;
    const uint8_t *zeros;
};

static __device__ struct strip_slice strip_slice_at(const uint8_t *records, uint32_t n_strips,
                                                    uint32_t n_slices, uint32_t code_bits,
                                                    uint32_t n_groups, bool has_zeros, uint32_t i_n,
                                                    uint32_t i_k)
{
    uint32_t i_slice = i_k / STRIP_SLICE_K;
    uint32_t i_step = i_slice / STRIP_STEP_SLICES;
    uint32_t i = i_slice % STRIP_STEP_SLICES;
    uint32_t n = min(STRIP_STEP_SLICES, n_slices - i_step * STRIP_STEP_SLICES);
    uint32_t scale_bytes = 8 * n_groups * 4;
    uint32_t zero_bytes = has_zeros ? 8 * n_groups * 2 : 0;
    uint32_t codes_bytes = STRIP_CODES_BYTES_OF(code_bits);
    uint32_t slice_bytes = codes_bytes + scale_bytes + zero_bytes;
    uint64_t step = (uint64_t)i_step * n_strips * strip_align(STRIP_STEP_SLICES * slice_bytes);
    const uint8_t *record =
        records + step + (uint64_t)(i_n / STRIP_N) * strip_align(n * slice_bytes);
    const uint8_t *scales = record + n * codes_bytes;
    const uint8_t *zeros = scales + n * scale_bytes;
    return {record + i * codes_bytes, scales + i * scale_bytes, zeros + i * zero_bytes};
}

static __device__ uint32_t strip_code(const struct strip_slice *slice, uint32_t code_bits,
                                      uint32_t i_n, uint32_t i_k)
{
    if (code_bits == 8) {
        return slice->codes[strip_byte_of(i_n % STRIP_N, i_k % STRIP_SLICE_K)];
    }
    struct strip_place place = strip_place_of(i_n % STRIP_N, i_k % STRIP_SLICE_K);
    uint32_t word = *(const uint32_t *)(slice->codes + place.word_offset);
    return __funnelshift_r(word, word, STRIP_ROTATION) >> place.shift & 15u;
}

/* Index of a scale, and of its zero point, within its slice. */
static __device__ uint32_t strip_scale_index(uint32_t n_groups, uint32_t i_n, uint32_t i_k)
{
    uint32_t i_group = i_k % STRIP_SLICE_K / (STRIP_SLICE_K / n_groups);
    return 2 * (i_n % 8 * n_groups + i_group) + i_n % STRIP_N / 8;
}
