/* cuda_kmajor.h - "cuda-kmajor": the layout that any weight can have on a GPU.
 *
 *   codes          k rows of n_stride codes (n rounded up to 64), 4-bit ones two a byte, low first:
 *                  threads that own neighbouring columns read neighbouring bytes
 *   scales, zeros, perm, column scales, bias   as in canonical form, those that there are
 *
 * Each part is 256-byte aligned. Padding codes are zero bits; no kernel looks at them. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"
#include "kernels/layout/parts.h"

struct cuda_kmajor_shape {
    uint32_t n_stride;
    uint64_t row_bytes; /* of codes */
    uint64_t scales_offset;
    uint64_t zeros_offset;
    uint64_t perm_offset;
    uint64_t column_scales_offset;
    uint64_t bias_offset;
    uint64_t total_bytes;
};

/* cuda_kmajor_shape() - desc must pass gk_desc_check(). Parts that are absent have no bytes. */
struct cuda_kmajor_shape cuda_kmajor_shape(const struct gk_desc *desc);

/* cuda_kmajor_parts() - what lies behind the codes as canonical form has it. */
void cuda_kmajor_parts(const struct gk_canonical *canonical, struct part ret_list[PARTS_MAX]);

extern const struct gk_layout cuda_kmajor_layout;
