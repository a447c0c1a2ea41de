/* pack_source.h - where the packers of kernels/cuda/ find the codes of a weight: in tensors as a
 * checkpoint has them, in memory of the device. */
#pragma once

#include <stdint.h>

#define PACK_PARTS_MAX 8u

/* As struct gk_codes. */
struct pack_part {
    const uint8_t *bytes;
    uint32_t order; /* enum gk_code_order */
    uint32_t
        row_stride; /* elements, bytes or words of 32 bits from a line of the tensor to the next */
    uint32_t first_n;
    uint32_t first_k;
    uint32_t to_n;
};

struct pack_source {
    uint32_t n;
    uint32_t k;
    const uint32_t *perm; /* NULL: none */
    uint32_t *n_damaged;  /* counts NaN among fp8 codes; NULL: there are no such codes */
    uint32_t n_parts;
    struct pack_part parts[PACK_PARTS_MAX]; /* ascending in to_n */
};
