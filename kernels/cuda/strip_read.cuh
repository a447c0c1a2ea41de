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
    struct strip_slice_parts parts = strip_slice_parts(&from, i_n / STRIP_N, i_k / STRIP_SLICE_K);
    return {from.records + parts.codes, from.records + parts.scales, from.records + parts.zeros};
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
    return strip_e2m1_code(word, &place);
}
