/* strip_prefill_instance.h - the instances of strip_prefill_kernel.cuh, which are compiled apart,
 * and what strip_prefill.cu tells them by. C++. */
#pragma once

#include <cuda.h>
#include <stdint.h>

#include "kernels/cuda/strip_prefill_args.h"

struct strip_prefill_instance {
    void (*function)(strip_prefill_args, CUtensorMap);
    uint32_t shared_bytes;
    uint8_t x_dtype;
    uint8_t code_bits;
    uint8_t n_slice_groups; /* 0: any */
    uint8_t i_tile;
};

/* A tile of y, a CTA's: rows of W by rows of x. */
struct strip_prefill_tile {
    uint32_t n_w;
    uint32_t n_x;
    uint32_t cost;   /* the time of one: us at k 8192 on an H200 */
    bool is_rounded; /* weights are */
};
constexpr strip_prefill_tile strip_prefill_tiles[] = {{128, 192, 88, false}, {128, 128, 68, false},
                                                      {64, 128, 58, false},  {128, 256, 88, true},
                                                      {128, 128, 70, true},  {64, 128, 58, true}};

constexpr uint32_t strip_prefill_k_stage = 64; /* of x, in a stage */
constexpr uint32_t strip_prefill_cluster = 2;  /* CTAs that share tiles of x */
constexpr uint32_t strip_prefill_threads = 384;

struct strip_prefill_instances {
    const strip_prefill_instance *all;
    uint32_t n;
};

/* Of strip_prefill_u4.cu and strip_prefill_u8.cu. */
strip_prefill_instances strip_prefill_u4_instances();
strip_prefill_instances strip_prefill_u8_instances();
