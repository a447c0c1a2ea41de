/* host_panel.h - "host-n64", the packed layout of the host: every format of a weight.
 *
 *   perm           k words of 32 bits (act-order)
 *   panels         of 64 columns (of y), the last one zero-padded, one after another
 *
 * A panel holds everything a kernel needs for its columns. It and each of its parts is 64-byte
 * aligned:
 *
 *   weights        k rows of row_bytes: the 64 columns' codes at one k, see host_codes.h
 *   scales         n_groups rows of 64, in the checkpoint's type
 *   zeros          n_groups rows of 64 bytes
 *   column scales  one row of 64 f32
 *   bias           one row of 64, in its own type
 *
 * Parts that a format lacks take no space. A scale that covers several columns is repeated for each
 * of them, so a kernel knows nothing of group_n.
 *
 * k is never padded, so padding can never be multiplied into a result: a kernel walks exactly k
 * rows. The alternative, 8 k of one column in a word, needs two shifts a weight on AVX2 and a
 * padded tail. */
#pragma once

#include <stdint.h>

#include "gk/gk.h"
#include "kernels/layout/host_codes.h"

struct host_panel_shape {
    uint32_t n_panels;
    uint32_t row_bytes;
    uint64_t panels_offset; /* bytes from the start of the packed weight */
    uint64_t scales_offset; /* bytes from the start of the panel, as those that follow */
    uint64_t zeros_offset;
    uint64_t column_scales_offset;
    uint64_t bias_offset;
    uint64_t panel_bytes;
};

/* host_panel_shape() - desc must pass gk_desc_check(). */
struct host_panel_shape host_panel_shape(const struct gk_desc *desc);

extern const struct gk_layout host_panel_layout;
