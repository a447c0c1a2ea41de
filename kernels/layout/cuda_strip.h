/* cuda_strip.h - packing for the layout of strip.h: sizes and offsets. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gk/gk.h"

struct strip_shape {
    uint32_t n_strips;
    uint32_t n_slices; /* of the whole k */
    uint32_t code_bits;
    uint32_t n_slice_groups; /* scales of a row in a slice: 2, 4 or 8 */
    uint32_t slice_scale_bytes;
    uint32_t slice_zero_bytes;
    uint64_t records_offset; /* bytes from the start of the packed weight; perm lies at 0 */
    uint64_t column_scales_offset;
    uint64_t bias_offset;
    uint64_t packed_bytes;
};

/* strip_shape() - of a weight that cuda_strip_u4_layout or cuda_strip_u8_layout fits: integer codes
 * with 16-bit scales in groups of 32, 64, any multiple of 128, or all of k. */
struct strip_shape strip_shape(const struct gk_desc *desc);

extern const struct gk_layout cuda_strip_u4_layout;
extern const struct gk_layout cuda_strip_u8_layout;
