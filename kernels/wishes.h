/* wishes.h - what an operator wants of the choice of kernels; see gk_disable() and gk_prefer(). */
#pragma once

#include "gk/gk.h"

/* wish_is_preferred() - was it named? As gk_is_disabled(). */
bool wish_is_preferred(const struct gk_kernel *kernel);
/* wish_preferred() - the i-th, first wish first; NULL: there are no more. */
const struct gk_kernel *wish_preferred(uint32_t i);
