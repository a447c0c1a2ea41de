/* plain_choice.h - which algorithms of the vendor's library a plain weight's rows are multiplied
 * by: one for each range of numbers of rows. */
#pragma once

#include <cublasLt.h>
#include <stdint.h>

/* Ranges of rows, each with an algorithm of its own: up to 16, 32, 64, 96, 128, 192, 256, 384, 512,
 * 768 and 1024. */
#define PLAIN_RANGES_MAX 11u

/* The algorithms for calls of up to rows_max rows; 0: there are none. */
struct plain_choice {
    uint32_t rows_max;
    cublasLtMatmulAlgo_t algorithms[PLAIN_RANGES_MAX];
};

/* How rows of one shape are multiplied: to sums in f32, and to y of x's own type, which is these
 * sums and the bias, rounded. */
struct plain_plan {
    struct plain_choice sums;
    struct plain_choice rounded;
};

/* plain_ranges() - how many there are where calls have up to rows_max rows; 0 of 0.
 * plain_range_first(), plain_range_last() - the least and the most rows of one.
 * plain_algorithm() - for a call of m rows, 1 to rows_max. */
uint32_t plain_ranges(uint32_t rows_max);
uint32_t plain_range_first(uint32_t i_range);
uint32_t plain_range_last(uint32_t rows_max, uint32_t i_range);
const cublasLtMatmulAlgo_t *plain_algorithm(const struct plain_choice *choice, uint32_t m);
