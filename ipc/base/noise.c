/* noise.c - see noise.h. */
#include "ipc/base/noise.h"

#include "ipc/base/half.h"

static void store(void *elems, enum dtype dtype, uint64_t i, float value)
{
    if (dtype == DTYPE_F16) {
        ((uint16_t *)elems)[i] = half_from_f32(value);
    } else if (dtype == DTYPE_BF16) {
        ((uint16_t *)elems)[i] = bf16_from_f32(value);
    } else {
        ((float *)elems)[i] = value;
    }
}

void noise_fill(void *elems, enum dtype dtype, uint64_t n)
{
    uint32_t state = 1;
    for (uint64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes': its high bits are good */
        store(elems, dtype, i, (float)(int32_t)state * 0x1p-31f);
    }
}
