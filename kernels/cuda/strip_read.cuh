/* strip_read.cuh - single elements of the layout of strip.h, for kernels that need no speed. */
#pragma once

#include "kernels/layout/strip.h"

/* Where a slice's parts begin. */
struct strip_slice {
    const uint8_t *codes;
    const uint8_t *scales;
    const uint8_t *zeros;
};

static __device__ struct strip_slice strip_slice_at(const struct strip_records &from, uint32_t i_n,
                                                    uint32_t i_k)
{
    uint32_t i_slice = i_k / STRIP_SLICE_K;
    uint32_t i_step = i_slice / STRIP_STEP_SLICES;
    uint32_t i = i_slice % STRIP_STEP_SLICES;
    uint32_t n = min(STRIP_STEP_SLICES, from.n_slices - i_step * STRIP_STEP_SLICES);
    uint32_t codes_bytes = STRIP_CODES_BYTES_OF(from.code_bits);
    uint32_t slice_bytes = codes_bytes + from.slice_scale_bytes + from.slice_zero_bytes;
    uint64_t step = (uint64_t)i_step * from.n_strips * strip_align(STRIP_STEP_SLICES * slice_bytes);
    const uint8_t *record =
        from.records + step + (uint64_t)(i_n / STRIP_N) * strip_align(n * slice_bytes);
    const uint8_t *scales = record + n * codes_bytes;
    const uint8_t *zeros = scales + n * from.slice_scale_bytes;
    return {record + i * codes_bytes, scales + i * from.slice_scale_bytes,
            zeros + i * from.slice_zero_bytes};
}

static __device__ uint32_t strip_int_code(const struct strip_slice *slice, uint32_t code_bits,
                                          uint32_t i_n, uint32_t i_k)
{
    if (code_bits == 8) {
        return slice->codes[strip_byte_of(i_n % STRIP_N, i_k % STRIP_SLICE_K)];
    }
    struct strip_place place = strip_place_of(i_n % STRIP_N, i_k % STRIP_SLICE_K);
    uint32_t word = *(const uint32_t *)(slice->codes + place.word_offset);
    return __funnelshift_r(word, word, STRIP_ROTATION) >> place.shift & 15u;
}

static __device__ uint32_t strip_float_code(const struct strip_slice *slice, uint32_t code_bits,
                                            uint32_t i_n, uint32_t i_k)
{
    if (code_bits == 8) {
        return slice->codes[strip_e4m3_of(i_n % STRIP_N, i_k % STRIP_SLICE_K)];
    }
    struct strip_e2m1_place place = strip_e2m1_of(i_n % STRIP_N, i_k % STRIP_SLICE_K);
    uint32_t word = *(const uint32_t *)(slice->codes + place.word_offset);
    return (word >> place.magnitude_shift & 7u) | (word >> place.sign_shift & 1u) << 3;
}
