/* plain_trial.h - trying the vendor's algorithms on the current device: which give the rows of a
 * product the same bits however many there are, and which of these is the fastest. */
#pragma once

#include <stdint.h>

#include "kernels/cuda/cublaslt.h"

/* Ranges of rows, each with an algorithm of its own: up to 16, 32, 64, 96, 128, 192, 256, 384, 512,
 * 768 and 1024. */
#define PLAIN_RANGES_MAX 11u

/* The algorithms for calls of up to rows_max rows; 0: there are none. */
struct plain_choice {
    uint32_t rows_max;
    cublasLtMatmulAlgo_t algorithms[PLAIN_RANGES_MAX];
};

/* plain_range_end() - the last m of a range, where calls have up to rows_max rows.
 * plain_algorithm() - for a call of m rows, 1 to rows_max. */
uint32_t plain_range_end(uint32_t rows_max, uint32_t i_range);
const cublasLtMatmulAlgo_t *plain_algorithm(const struct plain_choice *choice, uint32_t m);

/* How rows of one shape are multiplied: to sums in f32, and to y of x's own type, which is these
 * sums and the bias, rounded. */
struct plain_plan {
    struct plain_choice sums;
    struct plain_choice rounded;
};

/* plain_trial() - make a plan for calls of up to sums->m and rounded->m rows of a product with
 * `packed`, which differ in their y and its bias; rounded->m of 0: of sums only. Off the submit
 * path; allocates, and takes as long as some hundred products. 0 with *ret_text NULL, or (static)
 * why there are no sums; or a cudaError_t. */
int plain_trial(const struct cublaslt_gemm *sums, const struct cublaslt_gemm *rounded,
                const void *packed, struct plain_plan *ret_plan, const char **ret_text);
