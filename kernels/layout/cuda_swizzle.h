/* cuda_swizzle.h - packing for the layout of swizzle.h: sizes and offsets. */
#pragma once

#include "gk/gk.h"
#include "kernels/layout/parts.h"

struct swizzle_shape {
    uint32_t n_groups; /* of 8 rows */
    uint32_t n_blocks; /* of 128 k */
    uint64_t scales_offset;
    uint64_t zeros_offset;
    uint64_t code_sums_offset;
    uint64_t column_scales_offset;
    uint64_t bias_offset;
    uint64_t total_bytes;
};

/* swizzle_shape() - of a weight that cuda_swizzle_layout fits: e4m3 or 8-bit integer codes whose
 * activations are of the same kind, with one scale over all of k, or e4m3 in groups of 128 k by
 * multiples of 128 n. Parts that are absent have no bytes. */
struct swizzle_shape swizzle_shape(const struct gk_desc *desc);

/* swizzle_parts() - what lies behind the codes as canonical form has it. */
void swizzle_parts(const struct gk_canonical *canonical, struct part ret_list[PARTS_MAX]);

extern const struct gk_layout cuda_swizzle_layout;
