/* pack_source.cuh - one code of a weight, from wherever a checkpoint's tensor has it.
 *
 * Single loads, of which neighbouring threads find most in the L1 cache: a tensor is read once in a
 * load, and comes over the bus at a tenth of the speed that this has. */
#pragma once

#include <stdint.h>

#include "kernels/cuda/pack_source.h"

/* enum gk_code_order; gk.h is C. pack.c holds them equal. */
enum { ORDER_GPTQ = 1, ORDER_AWQ, ORDER_CT_PACKED, ORDER_INT8, ORDER_FP8, ORDER_FP4, ORDER_PLAIN };

constexpr uint32_t pack_grid_y_max = 65535;

template <typename element>
static __device__ uint32_t element_at(const uint8_t *bytes, uint64_t i_elem)
{
    return reinterpret_cast<const element *>(bytes)[i_elem];
}

/* Element i_k of row i_n of a tensor of integers or of small floats. */
template <uint32_t bits>
static __device__ uint32_t small_code_at(const pack_part &part, uint32_t i_n, uint32_t i_k)
{
    constexpr uint32_t n_fields = 32 / bits;
    constexpr uint32_t mask = (1u << bits) - 1;
    uint64_t stride = part.row_stride;
    switch (part.order) {
    case ORDER_GPTQ:
        return element_at<uint32_t>(part.bytes, i_k / n_fields * stride + i_n) >>
                   bits * (i_k % n_fields) &
               mask;
    case ORDER_CT_PACKED:
        return element_at<uint32_t>(part.bytes, i_n * stride + i_k / n_fields) >>
                   bits * (i_k % n_fields) &
               mask;
    case ORDER_AWQ: /* columns 0, 2, 4, 6, 1, 3, 5, 7 of a word */
        return element_at<uint32_t>(part.bytes, i_k * stride + i_n / 8) >>
                   4 * (i_n % 8 / 2 + i_n % 2 * 4) &
               15u;
    case ORDER_FP4:
        return part.bytes[i_n * stride + i_k / 2] >> 4 * (i_k % 2) & 15u;
    default:
        return part.bytes[i_n * stride + i_k] ^ (part.order == ORDER_INT8 ? 0x80u : 0);
    }
}

/* The part that a row of the weight comes from. */
static __device__ const pack_part &part_of(const pack_source &source, uint32_t i_n)
{
    uint32_t i = source.n_parts - 1;
    while (i_n < source.parts[i].to_n) {
        i--;
    }
    return source.parts[i];
}

/* The canonical code, of that many bits, of row i_n at position i_k, which are in the weight. */
template <uint32_t bits>
static __device__ uint32_t code_of(const pack_source &source, uint32_t i_n, uint32_t i_k)
{
    const pack_part &part = part_of(source, i_n);
    uint32_t i_row = i_n - part.to_n + part.first_n;
    uint32_t i_elem = (source.perm != nullptr ? source.perm[i_k] : i_k) + part.first_k;
    if constexpr (bits == 32) {
        return element_at<uint32_t>(part.bytes,
                                    static_cast<uint64_t>(i_row) * part.row_stride + i_elem);
    } else if constexpr (bits == 16) {
        return element_at<uint16_t>(part.bytes,
                                    static_cast<uint64_t>(i_row) * part.row_stride + i_elem);
    } else {
        uint32_t code = small_code_at<bits>(part, i_row, i_elem);
        if (bits == 8 && source.n_damaged != nullptr && (code & 0x7fu) == 0x7fu) {
            atomicAdd(source.n_damaged, 1);
        }
        return code;
    }
}
