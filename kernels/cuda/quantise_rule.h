/* quantise_rule.h - what a weight says about its activations, for the kernels that quantise them.
 * Read by C and by nvcc. */
#pragma once

#include <stdint.h>

struct quantise_rule {
    uint32_t act; /* enum gk_act, not FLOAT */
    uint32_t is_pow2;
    float act_scale;  /* *_TENSOR */
    int32_t act_zero; /* INT8_TENSOR */
};
