/* percentile.c - see percentile.h. */
#include "tests/harness/percentile.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

double percentile(double *values, uint64_t n, uint32_t percent)
{
    if (n == 0) {
        return 0;
    }
    qsort(values, n, sizeof(*values), compare);
    return values[(n - 1) * percent / 100];
}
