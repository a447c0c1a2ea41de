/* strip_prefill_instance.h - the instances of strip_prefill_kernel.cuh, which are compiled apart,
 * and what strip_prefill.cu tells them by. C++. */
#pragma once

#include <cuda.h>
#include <stdint.h>

#include "kernels/cuda/strip_prefill_args.h"

/* Float codes whose scales hold for all of k, and lie behind the records. */
#define STRIP_PREFILL_NO_SCALES 255

struct strip_prefill_instance {
    void (*function)(strip_prefill_args, CUtensorMap);
    uint32_t shared_bytes;
    uint32_t n_threads;
    uint32_t n_box_rows; /* of x that are copied at once */
    uint8_t x_dtype;
    uint8_t code_bits;
    uint8_t scaling;        /* enum strip_scaling, or STRIP_PREFILL_NO_SCALES */
    uint8_t n_slice_groups; /* 0: any */
    uint8_t i_tile;
};

/* A tile of y, a CTA's: rows of W by rows of x. */
struct strip_prefill_tile {
    uint32_t n_w;
    uint32_t n_x;
    uint32_t cost;      /* the time of one: us at k 8192 on an H200 */
    uint32_t half_cost; /* of one of half as many rows of x; 0: it cannot be halved */
    bool is_rounded;    /* weights are */
    bool can_hand_over; /* sums of a part of k */
};
/* With exact weights those of strip_prefill_kernel.cuh, then that of strip_staged_kernel.cuh; then
 * those with rounded ones. */
constexpr strip_prefill_tile strip_prefill_tiles[] = {
    {128, 192, 88, 0, false, false}, {128, 128, 68, 0, false, false},
    {64, 128, 46, 0, false, false},  {128, 128, 88, 0, false, false},
    {128, 256, 87, 58, true, true},  {128, 192, 70, 0, true, true},
    {64, 64, 36, 0, true, false},    {64, 128, 40, 0, true, false},
    {64, 192, 50, 0, true, false},   {64, 256, 57, 0, true, false}};

constexpr uint32_t strip_prefill_k_stage = 64; /* of x, in a stage */
constexpr uint32_t strip_prefill_cluster = 2;  /* CTAs that share tiles of x */

/* Sums that clusters hand over, of so many at most: a word for each warpgroup, and one for the
 * numbers of clusters, then sums. */
constexpr uint32_t strip_prefill_handing_clusters = 80;
constexpr uint32_t strip_prefill_handed_words_bytes = 4096;
constexpr uint32_t strip_prefill_counter_word = strip_prefill_handed_words_bytes / 4 - 1;
static_assert(strip_prefill_handing_clusters * strip_prefill_cluster * 2 <=
                  strip_prefill_counter_word,
              "a word each");
constexpr uint32_t strip_prefill_handed_bytes = 64 * 256 * 4; /* of a warpgroup */
constexpr uint64_t strip_prefill_handed_all_bytes =
    strip_prefill_handed_words_bytes + strip_prefill_handing_clusters * 2 * strip_prefill_cluster *
                                           static_cast<uint64_t>(strip_prefill_handed_bytes);

struct strip_prefill_instances {
    const strip_prefill_instance *all;
    uint32_t n;
};

/* Of the file of that name each. */
strip_prefill_instances strip_prefill_u4_instances();
strip_prefill_instances strip_prefill_u8_instances();
strip_prefill_instances strip_prefill_e4m3_instances();
strip_prefill_instances strip_prefill_e2m1_instances();
strip_prefill_instances strip_staged_e4m3_instances();
strip_prefill_instances strip_staged_e2m1_instances();
