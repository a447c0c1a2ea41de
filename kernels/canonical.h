/* canonical.h - canonical weights as the library itself sees them. */
#pragma once

#include "gk/gk.h"

/* canonical_value_at() - as gk_canonical_value(), of the position along k at which the code lies:
 * with act-order the element of x is perm[i_position]. */
double canonical_value_at(const struct gk_canonical *canonical, uint32_t i_n, uint32_t i_position);

/* canonical_alloc_like() - with codes where the source has them. 0 or -ENOMEM. */
int canonical_alloc_like(struct gk_canonical *canonical, const struct gk_desc *desc,
                         const struct gk_canonical *source) GD_MUST_CHECK;
