/* percentile.h - of figures that a bench or a simulation gathered. */
#pragma once

#include <stdint.h>

/* percentile() - the smallest value that `percent` of them do not exceed; sorts them. 0 of none. */
double percentile(double *values, uint64_t n, uint32_t percent);
