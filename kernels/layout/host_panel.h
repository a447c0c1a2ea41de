/* host_panel.h - what both packed layouts of the host have in common.
 *
 * A weight is cut along n into panels of 64 columns (of y), the last one zero-padded; panels follow
 * one another. A panel holds everything a kernel needs for its columns, each part 64-byte aligned:
 *
 *   weights  k rows of row_bytes: the 64 columns' weights at one k
 *   scales   n_groups rows of 64, in the checkpoint's type (INT)
 *   bias     one row of 64, in its own type (if any)
 *
 * k is never padded, so padding can never be multiplied into a result: a kernel walks exactly k
 * rows. The alternative, 8 k of one column in a word, needs two shifts a weight on AVX2 and a
 * padded tail. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"

#define HOST_PANEL_N 64u

struct host_panel_shape {
    uint32_t n_panels;
    uint32_t row_bytes;
    uint64_t scales_offset; /* bytes from the start of the panel */
    uint64_t bias_offset;
    uint64_t panel_bytes;
};

/* host_panel_shape() - desc must pass gk_desc_check(). */
struct host_panel_shape host_panel_shape(const struct gk_desc *desc);

/* host_panel_packed_bytes() - of the whole weight. */
uint64_t host_panel_packed_bytes(const struct gk_desc *desc);

/* host_panel_pack_columns() / host_panel_unpack_columns() - scales and bias of every panel; padding
 * columns are written as zero bits. */
void host_panel_pack_columns(const struct gk_canonical *canonical, void *packed);
void host_panel_unpack_columns(const void *packed, struct gk_canonical *canonical);

extern const struct gk_layout host_int4_layout;
extern const struct gk_layout host_plain_layout;
