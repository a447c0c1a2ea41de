/* strip_instance.h - the instances of strip_kernel.cuh, which are compiled apart, and what
 * strip_gemm.cu tells them by. C++. */
#pragma once

#include <stdint.h>

#include "gk/cuda.h"
#include "kernels/cuda/strip_args.h"

/* Of a CTA's shared memory, in front of what a launch asks for: strip_rows.cuh. A multiple of 128,
 * since copies to places across the lines of shared memory take longer. */
#define STRIP_ROWS_BYTES 256u

struct strip_instance {
    void (*function)(strip_args, const gk_ahead *);
    uint32_t stage_of_warp_bytes;
    uint32_t starts_of_warp_bytes;
    uint8_t x_dtype;
    uint8_t code_bits;
    uint8_t scaling;
    uint8_t n_m8; /* blocks of 8 rows of x */
    uint8_t n_groups;
    bool has_zeros;
};

struct strip_instances {
    const strip_instance *all;
    uint32_t n;
};

/* Of strip_gemm_u4.cu, strip_gemm_u8.cu and strip_gemm_float.cu. */
strip_instances strip_u4_instances();
strip_instances strip_u8_instances();
strip_instances strip_float_instances();
