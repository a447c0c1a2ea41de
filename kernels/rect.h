/* rect.h - copying a rectangle of one canonical weight into another. */
#pragma once

#include "gk/gk.h"

/* Rows [from_n, from_n + n), positions [from_k, from_k + k) of one weight, to rows from to_n and
 * all k of another. */
struct rect {
    uint32_t from_n;
    uint32_t from_k;
    uint32_t n;
    uint32_t k;
    uint32_t to_n;
};

/* rect_copy() - everything that belongs to these rows, and perm. Exact. The extent of a scale of
 * `to` must cut the rectangle where an extent of `from` is cut, or inside one; to_n must be a
 * multiple of its group_n. Zero points, column scales and a bias that `from` lacks become the
 * symmetric ones, 1 and -0; f16 and bf16 become f32 where `to` says so. Codes stay alone where `to`
 * has none. */
void rect_copy(const struct gk_canonical *from, const struct rect *rect, struct gk_canonical *to);
