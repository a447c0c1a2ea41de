/* strip_pack.h - between strip_pack.c and the device code that packs weights into strips. */
#pragma once

#include <stdint.h>

#include "ipc/base/dtype.h"
#include "kernels/layout/strip.h"

#define STRIP_PACK_PARTS_MAX 8u

/* As struct gk_codes, in device memory. */
struct strip_pack_part {
    const uint8_t *bytes;
    uint32_t order;      /* enum gk_code_order */
    uint32_t row_stride; /* words of 32 bits, or bytes, from a line of the tensor to the next */
    uint32_t first_n;
    uint32_t first_k;
    uint32_t to_n;
};

/* One weight. Addresses are the device's; the target is zeroed. */
struct strip_pack {
    struct strip_records lie;
    uint8_t *records;
    enum strip_scaling scaling;
    uint32_t n_slice_groups;
    uint32_t packed_group_k; /* of scales */
    uint32_t n;
    uint32_t k;
    uint32_t group_n;
    uint32_t group_k;
    uint32_t scale_columns;
    uint32_t padding_code;
    uint32_t is_float;
    uint32_t is_one; /* scales lie behind the records, which have 1 */
    enum dtype scale_dtype;
    const void *scales;   /* canonical */
    const uint8_t *zeros; /* NULL: none */
    const uint32_t *perm; /* NULL: none */
    uint32_t *n_damaged;  /* counts NaN among fp8 codes; zeroed */
    uint32_t n_parts;
    struct strip_pack_part parts[STRIP_PACK_PARTS_MAX]; /* ascending in to_n */
};

#ifdef __cplusplus
extern "C" {
#endif

/* strip_pack_enqueue() - codes, scales and zero points into the records, on a stream. 0 or a
 * cudaError. strip_pack_load() - once a device, before. */
int strip_pack_enqueue(const struct strip_pack *pack, void *stream);
int strip_pack_load(void);

#ifdef __cplusplus
}
#endif
