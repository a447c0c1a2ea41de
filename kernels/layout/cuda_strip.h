/* cuda_strip.h - packing for the layouts of strip.h: sizes and offsets. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gk/gk.h"
#include "kernels/layout/parts.h"
#include "kernels/layout/strip.h"

struct strip_shape {
    uint32_t n_strips;
    uint32_t n_slices; /* of the whole k */
    uint32_t code_bits;
    enum strip_scaling scaling;
    uint32_t n_slice_groups; /* sums in a slice that have a scale of their own: 2, 4 or 8 */
    uint32_t packed_group_k; /* elements along k that share a scale as packed */
    uint32_t slice_scale_bytes;
    uint32_t slice_zero_bytes;
    bool has_row_scales;     /* a float weight's scales hold for all of k */
    uint64_t records_offset; /* bytes from the start of the packed weight; perm lies at 0 */
    uint64_t row_scales_offset;
    uint64_t column_scales_offset;
    uint64_t bias_offset;
    uint64_t packed_bytes;
};

/* strip_shape() - of a weight that one of the layouts below fits. */
struct strip_shape strip_shape(const struct gk_desc *desc);

/* strip_records_of() - the records of a weight that is packed there; NULL: for offsets alone. */
struct strip_records strip_records_of(const struct strip_shape *shape, const void *packed);

/* strip_list_parts() - what lies outside the records and is copied as canonical form has it. */
void strip_list_parts(const struct gk_canonical *canonical, const struct strip_shape *shape,
                      struct part ret_list[PARTS_MAX]);

/* cuda_strip_is_layout() - is that one of the layouts below? */
bool cuda_strip_is_layout(const struct gk_layout *layout);

/* Weights whose x is not quantised. u4, u8: 16-bit scales in groups of 32, 64, any multiple of 128,
 * or all of k, a row at a time; u4 also of x in e4m3 with a scale a row of its own or the weight's,
 * in groups of 128 or more and without act-order. e4m3: float scales for all of k, or in groups of
 * a multiple of 128 by a multiple of 16 rows, or e8m0 ones in groups of 32. e2m1: e4m3 scales in
 * groups of 16, or e8m0 ones in groups of 32. */
extern const struct gk_layout cuda_strip_u4_layout;
extern const struct gk_layout cuda_strip_u8_layout;
extern const struct gk_layout cuda_strip_e4m3_layout;
extern const struct gk_layout cuda_strip_e2m1_layout;
