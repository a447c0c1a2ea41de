/* plain_choice.c - see plain_choice.h. */
#include "kernels/cuda/plain_choice.h"

#include "ipc/base/num.h"

static const uint16_t ends[PLAIN_RANGES_MAX] = {16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024};

static uint32_t range_of(uint32_t m)
{
    uint32_t i_range = 0;
    while (ends[i_range] < m) {
        i_range++;
    }
    return i_range;
}

uint32_t plain_ranges(uint32_t rows_max)
{
    return rows_max == 0 ? 0 : range_of(rows_max) + 1;
}

uint32_t plain_range_first(uint32_t i_range)
{
    return i_range == 0 ? 1 : ends[i_range - 1] + 1u;
}

uint32_t plain_range_last(uint32_t rows_max, uint32_t i_range)
{
    return (uint32_t)num_min(ends[i_range], rows_max);
}

const cublasLtMatmulAlgo_t *plain_algorithm(const struct plain_choice *choice, uint32_t m)
{
    return &choice->algorithms[range_of(m)];
}
