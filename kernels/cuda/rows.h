/* rows.h - row tables as kernel parameters: 1 KiB by value, well under the 4 KiB that every GPU
 * takes, so that a launch copies nothing to the device. Read by C and by nvcc. */
#pragma once

#include <stdint.h>

#define CUDA_ROWS_MAX 64u /* GK_BATCH_ROWS_MAX */

struct cuda_rows {
    const void *x[CUDA_ROWS_MAX];
    void *y[CUDA_ROWS_MAX];
};
