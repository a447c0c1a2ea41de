/* reference.h - random rows for each layer and their products in float64, made once before the
 * client processes start: each of them then draws its requests from these rows and checks every
 * element. */
#ifndef DEPLOY_DEMO_REFERENCE_H
#define DEPLOY_DEMO_REFERENCE_H

#include <gemmd.h>
#include <stdbool.h>
#include <stdint.h>

#include "deploy/demo/checkpoint.h"

#define REFERENCE_ROWS 8u /* of each layer */

/* What one layer's products must be. */
struct reference {
    float *x;  /* (REFERENCE_ROWS, k): multiples of 1/64 below 2, exact in every type */
    double *y; /* (REFERENCE_ROWS, n): x W^T + bias in float64 */
    double
        *absolute; /* (REFERENCE_ROWS, n): |x| |W|^T + |bias|, what errors are measured against */
};

/* How far products were from the reference. */
struct error_sum {
    uint64_t n_elements;
    uint64_t n_wrong;     /* outside the tolerance */
    double worst_share;   /* largest error, as a share of its tolerance */
    double squared_error; /* sums for the relative Frobenius error */
    double squared_product;
};

/* reference_init() - rows and products of a layer; seed: the same one gives the same rows.
 * Return: false when there is no memory. To be given to reference_finish() either way. */
bool reference_init(struct reference *reference, const struct layer *layer, uint64_t seed);
void reference_finish(struct reference *reference);

/* reference_check() - compare y (m, n) of dtype with rows i_row to i_row + m, adding to *sum.
 *
 * The tolerance of an element is what fp32 accumulation can lose at most when partial sums restart
 * every 128 of k, (128 + k / 128 + 4) 2^-24 (|x| |W|^T + |bias|), and the rounding of y to its
 * type. A NaN is outside it. */
void reference_check(const struct reference *reference, const struct layer *layer, uint32_t i_row,
                     uint32_t m, const void *y, enum gemmd_dtype dtype, struct error_sum *sum);

#endif
