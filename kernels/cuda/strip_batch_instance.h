/* strip_batch_instance.h - the instances of strip_batch_kernel.cuh, which are compiled apart, and
 * what strip_batch.cu tells them by. C++. */
#pragma once

#include "kernels/cuda/strip_parts.h"

struct strip_batch_instance {
    strip_parts_kernel kernel;
    uint8_t x_dtype;
    uint8_t code_bits;
    uint8_t scaling;
    uint8_t n_groups;
    uint32_t scale_bytes; /* of a slice, and of its zero points */
    uint32_t zero_bytes;
};

struct strip_batch_instances {
    const strip_batch_instance *all;
    uint32_t n;
};

/* Of strip_batch_u4.cu, strip_batch_u8.cu and strip_batch_float.cu. */
strip_batch_instances strip_batch_u4_instances();
strip_batch_instances strip_batch_u8_instances();
strip_batch_instances strip_batch_float_instances();
