/* noise.h - numbers to multiply with where only their being there counts: kernels are timed and
 * compared on them. Zeros would make a CPU or GPU faster than it is. */
#pragma once

#include <stdint.h>

#include "ipc/base/dtype.h"

/* noise_fill() - n elements of F32, F16 or BF16 in [-1, 1), which use every bit of a mantissa; the
 * same each time. */
void noise_fill(void *elems, enum dtype dtype, uint64_t n);
