/* reference_case.h - products against the double reference, within the tolerance of
 * kernels/NUMERICS.md. */
#pragma once

#include "kernel_case.h"

/* How far y is from the reference: relative in the Frobenius norm, and at the worst element, as a
 * share of what is allowed there (at most 1). */
struct errors {
    double frobenius;
    double worst_share;
};

/* reference_errors() - of all rows of y. Elements that are not finite in the reference must not be
 * finite in y either; they do not count. */
struct errors reference_errors(const struct gk_canonical *canonical, const struct rows_case *x,
                               const struct rows_case *y);

/* frobenius_tolerance() - of results of that type. */
double frobenius_tolerance(enum dtype y_dtype);

void assert_near_reference(const struct gk_canonical *canonical, const struct rows_case *x,
                           const struct rows_case *y);
